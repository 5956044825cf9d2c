"""A run record as tables of at most 80 columns. Every table names the tag of its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from statistics import median

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.records.schema import Amount, Evidence, LengthResult, PolicyResult, PoolAccount, RunRecord
from hicache_bench.units import format_seconds, format_size, format_tokens

_POOL_WIDTH = 22
_REASONS = {"superseded_state": "superseded", "out_of_window": "out of window"}


def render_run(record: RunRecord) -> RenderableType:
    """Everything that a run has to say."""
    parts: list[RenderableType] = [_heading(record)]
    for result in record.results:
        parts += _length(result)
    if len(record.results) > 1:
        parts.append(_summary(record.results))
    parts += [Text(line) for line in _conclusions(record)]
    return Group(*parts)


def _heading(record: RunRecord) -> Text:
    logical = [pool.name for pool in record.pools if pool.decision == "skip"]
    stored = len(record.pools) - len(logical)
    page_tokens = record.preset["page_tokens"]
    lines = [
        f"{record.preset['name']}: profile {record.profile}, pages of {page_tokens} tokens, {stored} pools",
        f"store {record.store}, keys {record.key_scheme}, saved {record.save_policy}",
    ]
    if logical:
        lines.append(f"logical anchor {', '.join(logical)}: no buffer, no key, 0 bytes")
    if record.local_prefix_tokens:
        lines.append(
            f"local prefix of {format_tokens(record.local_prefix_tokens)} tokens: what lies wholly in it "
            "is not read"
        )
    return Text("\n".join(lines))


def _length(result: LengthResult) -> Iterator[RenderableType]:
    tag = f"[{result.evidence}]"
    how = "moved and verified" if result.evidence == Evidence.MEASURED.value else "counted, not moved"
    title = f"\n{format_tokens(result.tokens)} tokens, {result.pages} pages: {how}"
    yield Text(title + (f" ({result.evidence_reason})" if result.evidence_reason else ""), style="bold")
    for warning in result.warnings:
        yield Text(f"warning: {warning}", style="yellow")
    for policies in _grouped(
        result.policies, lambda policy: (policy.used_tokens, policy.pools, policy.notes)
    ):
        agree = " (they agree)" if len(policies) > 1 else ""
        yield Text(f"\n{_names(policies)}{agree}, pool by pool {tag}")
        yield _pools(policies[0])
        for note in policies[0].notes:
            yield Text(f"note: {note}")
        if any(policies[0].selection_seconds):
            taken = format_seconds(median(policies[0].selection_seconds))
            yield Text(f"note: scoring the index took {taken} here, which the time below leaves out")
    yield Text(f"\npolicies compared {tag}")
    yield _policies(result)
    yield Text(_endpoints(result))
    yield Text(_timing(result))


def _grouped(
    policies: Sequence[PolicyResult], key: Callable[[PolicyResult], object]
) -> list[list[PolicyResult]]:
    """Neighbouring policies that agree in ``key``."""
    return [list(group) for _, group in groupby(policies, key)]


def _names(policies: Sequence[PolicyResult]) -> str:
    return ", ".join(policy.policy for policy in policies)


def _table(*columns: str, left: Sequence[str] = (), gap: int = 1) -> Table:
    """A table without rules between rows; only the last column and long pool names are folded."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0), show_edge=False)
    for column in columns:
        last = column == columns[-1]
        table.add_column(
            column,
            justify="left" if column in left else "right",
            no_wrap=not last and column != "pool",
            max_width=_POOL_WIDTH if column == "pool" else None,
            overflow="fold",
        )
    return table


def _pools(policy: PolicyResult) -> Table:
    table = _table(
        "pool", "pages\nstored", "pages\nneeded", "pages\nread", "bytes\nread", "bytes\nskipped", "why",
        left=("pool", "why"), gap=0,
    )  # fmt: skip
    for account in policy.pools:
        table.add_row(
            account.pool,
            str(account.total.pages),
            str(account.needed.pages),
            str(account.read.pages),
            format_size(account.read.num_bytes),
            format_size(_skipped_bytes(account)),
            _why(account),
        )
    table.add_section()
    table.add_row(
        "total",
        str(sum(account.total.pages for account in policy.pools)),
        str(sum(account.needed.pages for account in policy.pools)),
        str(policy.read.pages),
        format_size(policy.read.num_bytes),
        format_size(sum(map(_skipped_bytes, policy.pools))),
    )
    return table


def _skipped_bytes(account: PoolAccount) -> int:
    return sum(amount.num_bytes for amount in account.skipped.values())


def _why(account: PoolAccount) -> str:
    reasons = [_REASONS.get(reason, reason.replace("_", " ")) for reason in account.skipped]
    for name in ("missed", "failed", "wasted"):
        lost: Amount = getattr(account, name)
        if lost.objects:
            reasons.append(f"{name} {format_size(lost.num_bytes)}")
    if account.degraded:
        reasons.append("degraded")
    return ", ".join(reasons) or "-"


def _policies(result: LengthResult) -> Table:
    table = _table(
        "policy",
        "bytes read",
        "vs\ndense",
        "vs\nhit_policy",
        "headroom over\ndense / hit_policy",
        "time",
        "GB/s",
        left=("policy",),
    )
    dense, hit, _ = result.policies
    for policy in result.policies:
        seconds = median(policy.seconds) if policy.seconds else None
        table.add_row(
            policy.policy,
            f"{policy.read.num_bytes:,}",
            _change(policy.read.num_bytes, dense.read.num_bytes),
            _change(policy.read.num_bytes, hit.read.num_bytes),
            " / ".join(_headroom(other.read.num_bytes, policy.read.num_bytes) for other in (dense, hit)),
            format_seconds(seconds) if seconds else "-",
            f"{policy.read.num_bytes / seconds / 1e9:.2f}" if seconds else "-",
        )
    return table


def _endpoints(result: LengthResult) -> str:
    """Where each policy resumes; one line where they agree and nothing was lost."""
    lines = []
    for policies in _grouped(result.policies, lambda policy: (policy.hit_tokens, policy.used_tokens)):
        policy = policies[0]
        names = "all policies" if len(policies) == len(result.policies) else _names(policies)
        line = f"{names}: hit {policy.hit_tokens:,}, used {policy.used_tokens:,} tokens"
        for reason, tokens in policy.unused_tokens.items():
            line += f"; {tokens:,} unused ({reason.replace('_', ' ')})"
        lines.append(line)
    return "\n".join(lines)


def _change(num_bytes: int, baseline: int) -> str:
    return "-" if not baseline else f"{num_bytes / baseline - 1:+.1%}" if num_bytes != baseline else "0%"


def _headroom(baseline: int, num_bytes: int) -> str:
    """How much slower a link may be and still restore in the same time: baseline bytes over these."""
    return f"{baseline / num_bytes:.2f}x" if num_bytes else "-"


def _timing(result: LengthResult) -> str:
    stored = f"[{result.evidence}] stored {result.stored.num_bytes:,} B in {result.stored.objects:,} objects"
    if result.save_seconds is None or result.lookup_seconds is None:
        return f"{stored}; lookup asks {result.lookup_keys:,} keys"
    samples = len(result.policies[0].seconds)
    return (
        f"{stored}; save {format_seconds(result.save_seconds)}\n"
        f"[{result.evidence}] lookup of {result.lookup_keys:,} keys {format_seconds(result.lookup_seconds)}; "
        f"time is the median of {samples} restores\n"
        "headroom = bytes of that policy / bytes read"
    )


def _summary(results: Sequence[LengthResult]) -> Group:
    table = _table(
        "tokens",
        "evidence",
        "dense bytes",
        "hit_policy bytes",
        "selective bytes",
        "vs dense",
        left=("evidence",),
    )
    for result in results:
        dense, hit, selective = (policy.read.num_bytes for policy in result.policies)
        table.add_row(
            format_tokens(result.tokens),
            result.evidence,
            f"{dense:,}",
            f"{hit:,}",
            f"{selective:,}",
            _change(selective, dense),
        )
    return Group(Text("\nall lengths", style="bold"), table)


def _needs_everything(policy: PolicyResult) -> bool:
    return all(account.needed == account.total == account.read for account in policy.pools)


def _conclusions(record: RunRecord) -> Iterator[str]:
    yield ""
    if all(_needs_everything(policy) for result in record.results for policy in result.policies):
        yield "The saving is zero: every policy reads every byte, since each page of each pool is needed."
    indexed = [pool.name for pool in record.pools if pool.selected_by]
    if indexed and not record.queries:
        names = ", ".join(indexed)
        yield f"An index could select blocks of {names}: --queries N reads those of N queries only."
    checks = [check for result in record.results for check in result.checks]
    failed = record.failed_checks
    yield f"{len(checks) - len(failed)} of {len(checks)} checks passed"
    for check in failed:
        yield f"FAILED {check.name}: expected {check.expected}, found {check.actual}"
    if any(result.evidence == Evidence.MEASURED.value for result in record.results):
        yield "[measured]: bytes and seconds that this run observed; ratios are of these bytes"
    if any(result.evidence == Evidence.COUNTED.value for result in record.results):
        yield "[counted]: bytes from geometry and plan, not moved; ratios are of these bytes"
