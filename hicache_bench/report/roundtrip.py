"""A ``roundtrip`` record as a table of at most 80 columns: what was proved, and what failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.records.proof import Proof, RoundtripRecord
from hicache_bench.report.tables import plural
from hicache_bench.units import format_seconds, format_size

_MAX_ROWS = 60
"""With more proofs than this, those of one section and subject share a row."""

_MAX_FAILURES = 20
CONTROL = "control"


@dataclass(frozen=True, slots=True)
class _Row:
    """Proofs that stand together."""

    proofs: tuple[Proof, ...]

    @property
    def what(self) -> str:
        return self.proofs[0].name if len(self.proofs) == 1 else f"{len(self.proofs)} proofs"


def render_roundtrip(record: RoundtripRecord) -> RenderableType:
    """Everything that a roundtrip has to say."""
    parts: list[RenderableType] = [Text(_heading(record)), _table(_rows(record.proofs))]
    restored = [proof for proof in record.proofs if "max_difference" in proof.figures]
    if restored:
        parts += [Text("attention from a selective restore, pool by pool [measured]"), _pools(restored)]
    parts += [Text(line, style="red") for line in _failures(record)]
    parts += [Text(line) for line in _conclusions(record)]
    return Group(*parts)


def _heading(record: RoundtripRecord) -> str:
    names = list(record.presets)
    what = "faults alone" if not names else names[0] if len(names) == 1 else f"{len(names)} presets"
    return f"{what}: store {record.store}, seed {record.seed}"


def _rows(proofs: Sequence[Proof]) -> list[_Row]:
    if len(proofs) <= _MAX_ROWS:
        return [_Row((proof,)) for proof in proofs]
    alike = groupby(proofs, key=lambda proof: (proof.section, proof.subject))
    return [_Row(tuple(group)) for _, group in alike]


def _table(rows: Sequence[_Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("section", no_wrap=True)
    table.add_column("subject", overflow="fold", max_width=24)
    table.add_column("what", overflow="fold")
    table.add_column("checks", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        first = row.proofs[0]
        checks = sum(len(proof.checks) for proof in row.proofs)
        table.add_row(
            *map(Text, (first.section, first.subject, row.what)), Text(f"{checks:,}"), _verdict(row)
        )
    return table


def _pools(proofs: Sequence[Proof]) -> Table:
    """What the arithmetic proofs restored, and how far the outputs are from a prompt without any cache."""
    several = len({proof.subject for proof in proofs}) > 1
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("restored", overflow="fold")
    for column in ("pages\nread", "pages\nskipped", "max\n|difference|", "tolerance"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for proof in proofs:
        figures = proof.figures
        table.add_row(
            Text(f"{proof.subject}, {proof.name}" if several else proof.name),
            f"{figures['pages_restored']:,}",
            f"{figures['pages_skipped']:,}",
            f"{float(figures['max_difference']):.1e}",
            f"{float(figures['tolerance']):.1e}",
            _verdict(_Row((proof,))),
        )
    return table


def _verdict(row: _Row) -> Text:
    failed = sum(not check.passed for proof in row.proofs for check in proof.checks)
    if failed:
        return Text(f"{failed} failed", style="bold red")
    if not all(proof.passed for proof in row.proofs):
        return Text("not checked", style="bold red")
    return Text("ok", style="green")


def _failures(record: RoundtripRecord) -> Iterator[str]:
    failed = [(proof, check) for proof in record.proofs for check in proof.checks if not check.passed]
    for proof, check in failed[:_MAX_FAILURES]:
        yield f"{proof.section} {proof.subject}, {proof.name}: {check.name}"
        yield f"    expected {check.expected}"
        yield f"    found    {check.actual}"
    if len(failed) > _MAX_FAILURES:
        yield f"... and {len(failed) - _MAX_FAILURES} checks more; the record has all of them"


def _conclusions(record: RoundtripRecord) -> Iterator[str]:
    controls = [proof for proof in record.proofs if proof.section == CONTROL]
    found = sum(proof.passed for proof in controls)
    missed = len(controls) - found
    if controls:
        yield f"{plural(found, 'control')} came out as they must" + (f", {missed} did NOT" if missed else "")
    elif record.presets:
        yield "no controls ran: nothing here shows that the checks can fail"
    for proof in record.proofs:
        if "inapplicable_control" in proof.figures:
            control = proof.figures["inapplicable_control"]
            yield f"{proof.subject}: no control {control!r}, as its index selects from no pool"
    compared = sum(int(proof.figures.get("bytes_compared", 0)) for proof in record.proofs)
    if compared:
        rate = _rate(record.proofs)
        yield f"{format_size(compared)} compared, every byte" + (
            f", at {rate:.1f} GB/s [measured]" if rate else ""
        )
    digests = [proof.figures for proof in record.proofs if "digest_bytes" in proof.figures]
    if digests:
        cost = format_size(sum(int(figures["digest_bytes"]) for figures in digests))
        taken = format_seconds(sum(float(figures["digest_seconds"]) for figures in digests))
        yield f"checksums cost {cost} of the store and {taken} [measured]"
    yield from _batches(record.proofs)
    checks = sum(len(proof.checks) for proof in record.proofs)
    failed = len(record.failed_checks)
    seconds = format_seconds(sum(proof.seconds for proof in record.proofs))
    verdict = "all passed" if not failed else f"{failed} FAILED"
    counts = f"{plural(len(record.proofs), 'proof')}, {plural(checks, 'check')}"
    yield f"{counts}: {verdict}; {seconds} of proving"


def _rate(proofs: Sequence[Proof]) -> float:
    """GB compared per second, of those proofs that say so; outside every timed transfer."""
    timed = [
        (int(proof.figures["bytes_compared"]) / 1e9, float(proof.figures["gb_per_s"]))
        for proof in proofs
        if proof.figures.get("gb_per_s")
    ]
    seconds = sum(gigabytes / rate for gigabytes, rate in timed)
    return sum(gigabytes for gigabytes, _ in timed) / seconds if seconds else 0.0


def _batches(proofs: Sequence[Proof]) -> Iterator[str]:
    """Where the seams lie: at fewer pages where more did not fit in memory."""
    sizes: dict[int, list[str]] = {}
    for proof in proofs:
        if "batch_pages" in proof.figures:
            names = sizes.setdefault(int(proof.figures["batch_pages"]), [])
            if proof.subject not in names:
                names.append(proof.subject)
    for size, names in sorted(sizes.items(), reverse=True):
        whose = names[0] if len(names) == 1 else f"{len(names)} presets"
        yield f"batches of {size} pages for {whose}"
