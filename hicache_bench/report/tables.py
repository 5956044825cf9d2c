"""A run record as tables of at most 80 columns. Every table names the tag of its figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from statistics import median

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.records.schema import (
    Amount,
    Evidence,
    LengthResult,
    PolicyResult,
    PoolAccount,
    RankResult,
    RunRecord,
    SharingRecord,
)
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
    pools = {pool.name: pool for pool in record.pools}
    logical = [pool.name for pool in pools.values() if pool.decision == "skip"]
    stored = len(pools) - len(logical)
    page_tokens = record.preset["page_tokens"] * record.deployment["dcp"]
    pages = f"pages of {plural(page_tokens, 'token')}"
    lines = [
        f"{record.preset['name']}: profile {record.profile}, {pages}, {plural(stored, 'pool')}",
        f"store {record.store}, keys {record.key_scheme}, saved {record.save_policy}",
    ]
    if logical:
        lines.append(f"logical anchor {', '.join(logical)}: no buffer, no key, 0 bytes")
    if _num_ranks(record) > 1:
        lines += [_groups(record), *map(_shared, record.sharing)]
    if record.local_prefix_tokens:
        lines.append(
            f"local prefix of {format_tokens(record.local_prefix_tokens)} tokens: what lies wholly in it "
            "is not read"
        )
    return Text("\n".join(lines))


def _num_ranks(record: RunRecord) -> int:
    return len(record.results[0].ranks)


def _groups(record: RunRecord) -> str:
    """``16 ranks: TP 8, PP 2``."""
    deployment = record.deployment
    context = "CP sharded" if deployment["cp_sharded"] else "CP replicated"
    sizes = {
        "TP": deployment["tp"], "PP": deployment["pp"], context: deployment["cp"], "DCP": deployment["dcp"]
    }  # fmt: skip
    groups = ", ".join(f"{name} {size}" for name, size in sizes.items() if size != 1)
    return f"{_num_ranks(record)} ranks: {groups}; here one works after the other"


def _shared(sharing: SharingRecord) -> str:
    """How often the store holds a pool, and why."""
    if sharing.copies <= 1:
        times = "stored once"
    elif sharing.kv_heads is not None:
        times = f"{sharing.kv_heads} KV heads, so stored {sharing.copies:g} times"
    else:
        times = f"padded to {sharing.copies:g} times the bytes of one rank"
    return f"{sharing.pool}: {plural(sharing.shards, 'shard')} on {plural(sharing.ranks, 'rank')}; {times}"


def plural(number: int, what: str) -> str:
    """``1 pool``, ``2 pools``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _length(result: LengthResult) -> Iterator[RenderableType]:
    moved = _moved_in_part(result)
    how = "moved and verified" if result.evidence == Evidence.MEASURED.value else "counted, not moved"
    how = f"counted; {' and '.join(moved)} moved and verified" if moved else how
    title = f"\n{format_tokens(result.tokens)} tokens, {plural(result.pages, 'page')}: {how}"
    yield Text(title + (f" ({result.evidence_reason})" if result.evidence_reason else ""), style="bold")
    for warning in result.warnings:
        yield Text(f"warning: {warning}", style="yellow")
    for ranks in _alike(result.ranks):
        if len(result.ranks) > 1:
            others = f", and {plural(len(ranks) - 1, 'rank')} like it" if len(ranks) > 1 else ""
            yield Text(f"\nrank {ranks[0].rank}{others}")
        yield from _accounts(ranks[0])
    tag = f"[{result.evidence}]"
    if moved:
        by_evidence = _grouped(result.ranks[0].policies, lambda policy: policy.evidence)
        tags = (
            f"{' and '.join(policy.policy for policy in group)} [{group[0].evidence}]"
            for group in by_evidence
        )
        tag = f"({', '.join(tags)})"
    yield Text(f"\n{'policies' if len(result.ranks) == 1 else 'ranks and cluster'} compared {tag}")
    yield _policies(result)
    yield Text(_endpoints(result.ranks[0]))
    yield Text(_timing(result))


def _moved_in_part(result: LengthResult) -> list[str]:
    """The policies that were moved although the length is counted."""
    if result.evidence == Evidence.MEASURED.value:
        return []
    policies = result.ranks[0].policies
    return [policy.policy for policy in policies if policy.evidence == Evidence.MEASURED.value]


def _alike(ranks: Sequence[RankResult]) -> list[list[RankResult]]:
    """Ranks whose tables would be the same, such as those of one pipeline stage."""
    groups: list[tuple[object, list[RankResult]]] = []
    for rank in ranks:
        shown = [_shown(policy) for policy in rank.policies]
        group = next((members for found, members in groups if found == shown), None)
        if group is None:
            groups.append((shown, [rank]))
        else:
            group.append(rank)
    return [members for _, members in groups]


def _accounts(rank: RankResult) -> Iterator[RenderableType]:
    """One rank, pool by pool; policies that agree, and whose bytes were come by in one way, share a table."""
    for policies in _grouped(rank.policies, lambda policy: (_shown(policy), policy.evidence)):
        agree = " (they agree)" if len(policies) > 1 else ""
        yield Text(f"\n{_names(policies)}{agree}, pool by pool [{policies[0].evidence}]")
        yield _pools(policies[0])
        for note in policies[0].notes:
            yield Text(f"note: {note}")
        if any(policies[0].selection_seconds):
            taken = format_seconds(median(policies[0].selection_seconds))
            yield Text(f"note: scoring the index took {taken} here, which the time below leaves out")


def _shown(policy: PolicyResult) -> tuple[object, ...]:
    """What a table shows of a policy."""
    return policy.used_tokens, policy.pools, policy.notes


def _grouped(
    policies: Sequence[PolicyResult], key: Callable[[PolicyResult], object]
) -> list[list[PolicyResult]]:
    """Neighbouring policies that agree in ``key``."""
    return [list(group) for _, group in groupby(policies, key)]


def _names(policies: Sequence[PolicyResult]) -> str:
    return ", ".join(policy.policy for policy in policies)


def _table(*columns: str, left: Sequence[str] = (), gap: int = 1) -> Table:
    """A table without rules between rows; only the last column is folded."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0), show_edge=False)
    for column in columns:
        last = column == columns[-1]
        table.add_column(
            column,
            justify="left" if column in left else "right",
            no_wrap=not last,
            overflow="fold",
        )
    return table


def _broken(pool: str) -> str:
    """The name of a pool on lines of at most ``_POOL_WIDTH``, which start at its underscores."""
    lines = [""]
    for part in re.split("(?=_)", pool):
        if lines[-1] and len(lines[-1]) + len(part) > _POOL_WIDTH:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _pools(policy: PolicyResult) -> Table:
    table = _table(
        "pool", "pages\nstored", "pages\nneeded", "pages\nread", "bytes\nread", "bytes\nskipped", "why",
        left=("pool", "why"), gap=0,
    )  # fmt: skip
    for account in policy.pools:
        table.add_row(
            _broken(account.pool),
            f"{account.total.pages:,}",
            f"{account.needed.pages:,}",
            f"{account.read.pages:,}",
            format_size(account.read.num_bytes),
            format_size(_skipped_bytes(account)),
            _why(account),
        )
    table.add_section()
    table.add_row(
        "total",
        f"{sum(account.total.pages for account in policy.pools):,}",
        f"{sum(account.needed.pages for account in policy.pools):,}",
        f"{policy.read.pages:,}",
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
    """What each policy reads: on one rank, or on each and on all of them."""
    alone = len(result.ranks) == 1
    table = _table(
        "policy",
        *(["bytes read"] if alone else ["bytes read\nby a rank", "bytes read\nby all ranks"]),
        "vs\ndense",
        "vs\nhit_policy",
        *(["headroom over\ndense/hit_policy", "time", "GB/s"] if alone else ["time of the\nslowest rank"]),
        left=("policy",),
    )
    dense, hit, _ = (policy.read.num_bytes for policy in result.policies)
    for index, policy in enumerate(result.policies):
        ranks = [rank.policies[index] for rank in result.ranks]
        seconds = max((median(rank.seconds) for rank in ranks if rank.seconds), default=None)
        read = policy.read.num_bytes
        cells = [policy.policy, f"{read:,}", _change(read, dense), _change(read, hit)]
        if alone:
            cells.append("/".join(_headroom(other, read) for other in (dense, hit)))
        else:
            cells.insert(1, _span([rank.read.num_bytes for rank in ranks]))
        cells.append(format_seconds(seconds) if seconds else "-")
        if alone:
            cells.append(f"{read / seconds / 1e9:.2f}" if seconds else "-")
        table.add_row(*cells)
    return table


def _span(figures: Sequence[int]) -> str:
    low, high = min(figures), max(figures)
    return f"{low:,}" if low == high else f"{low:,}\nto {high:,}"


def _endpoints(rank: RankResult) -> str:
    """Where each policy resumes; one line where they agree and nothing was lost."""
    lines = []
    for policies in _grouped(rank.policies, lambda policy: (policy.hit_tokens, policy.used_tokens)):
        policy = policies[0]
        names = "all policies" if len(policies) == len(rank.policies) else _names(policies)
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
    over = "" if len(result.ranks) == 1 else f" over {len(result.ranks)} ranks"
    objects = plural(result.stored.objects, "object")
    stored = f"[{result.evidence}] stored {result.stored.num_bytes:,} B in {objects}"
    keys = sum(rank.lookup_keys for rank in result.ranks)
    save = [rank.save_seconds for rank in result.ranks if rank.save_seconds is not None]
    lookup = [rank.lookup_seconds for rank in result.ranks if rank.lookup_seconds is not None]
    samples = max(len(policy.seconds) for policy in result.ranks[0].policies)
    median_of = f"time is the median of {plural(samples, 'restore')}"
    if not save:
        lines = [f"{stored}; lookup asks {plural(keys, 'key')}{over}", *([median_of] if samples else [])]
    else:
        lines = [
            f"{stored}; save {format_seconds(sum(save))}{over}",
            f"[{result.evidence}] lookup of {plural(keys, 'key')} {format_seconds(sum(lookup))}{over}; "
            + median_of,
        ]
    lines += _searches(result)
    if not over:
        lines.append("headroom = bytes of that policy / bytes read")
    return "\n".join(lines)


def _searches(result: LengthResult) -> Iterator[str]:
    """What a lookup asks that only looks for the endpoint; once, where the policies agree."""
    asked: dict[tuple[int, int], list[str]] = {}
    for policies in zip(*(rank.policies for rank in result.ranks), strict=True):
        keys = sum(policy.endpoint_keys for policy in policies)
        calls = sum(policy.endpoint_calls for policy in policies)
        asked.setdefault((keys, calls), []).append(policies[0].policy)
    for (keys, calls), names in asked.items():
        whose = "the endpoint" if len(asked) == 1 else f"the endpoint of {' and '.join(names)}"
        yield (
            f"[{result.evidence}] a lookup that only looks for {whose} asks {plural(keys, 'key')} in "
            f"{plural(calls, 'call')}"
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
    ranks = len(results[0].ranks)
    title = "\nall lengths" + (f", bytes read by all {ranks} ranks" if ranks > 1 else "")
    return Group(Text(title, style="bold"), table)


def _needs_everything(policy: PolicyResult) -> bool:
    return all(account.needed == account.total == account.read for account in policy.pools)


def _conclusions(record: RunRecord) -> Iterator[str]:
    yield ""
    policies = [policy for result in record.results for rank in result.ranks for policy in rank.policies]
    if all(map(_needs_everything, policies)):
        yield "The saving is zero: every policy reads every byte, since each page of each pool is needed."
    indexed = dict.fromkeys(pool.name for pool in record.pools if pool.selected_by)
    if indexed and not record.queries:
        names = ", ".join(indexed)
        yield f"An index could select blocks of {names}: --queries N reads those of N queries only."
    checks = [check for result in record.results for check in result.checks]
    failed = record.failed_checks
    yield f"{len(checks) - len(failed)} of {len(checks)} checks passed"
    for check in failed:
        yield f"FAILED {check.name}: expected {check.expected}, found {check.actual}"
    if any(policy.evidence == Evidence.MEASURED.value for policy in policies):
        yield "[measured]: bytes and seconds that this run observed; ratios are of these bytes"
    if any(result.evidence == Evidence.COUNTED.value for result in record.results):
        yield "[counted]: bytes from geometry and plan, not moved; ratios are of these bytes"
