"""A bench record as tables of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.pools.descriptor import Rank
from hicache_bench.records.bench import BenchRecord, Series, Summary, Together
from hicache_bench.report.tables import plural
from hicache_bench.stats import median, samples_for
from hicache_bench.store.joined import UNKNOWN
from hicache_bench.units import format_seconds, format_size, format_tokens

_TAG = "[measured]"
_SETTINGS_SHOWN = (
    "wheel", "protocol", "device", "segment_bytes", "capacity_bytes", "lease_ttl_ms", "lease_ttl_seconds",
    "eviction_watermark", "eviction_ratio", "master_http", "cluster_segments", "cluster_capacity_bytes",
    "cluster_used_bytes", "cluster_clients", "cluster_evicted_keys",
)  # fmt: skip
_FEW_LEFT = 0.25
"""Processors that are idle while one client works; a second one needs more than that."""


def render_bench(record: BenchRecord) -> RenderableType:
    """Everything that a bench has to say."""
    parts: list[RenderableType] = [Text(line) for line in _heading(record)]
    whole = [item for item in record.series if item.pool is None and item.concurrent == 1]
    copy_rate = next(item for item in whole if item.operation == "copy").summary.bytes_per_second
    parts += [Text(f"\nseconds of each operation, alone {_TAG}", style="bold"), _seconds(whole)]
    parts += [Text(f"\nrates, and where the median goes {_TAG}", style="bold"), _rates(whole, copy_rate)]
    pools = [item for item in record.series if item.pool is not None and item.operation == "restore"]
    if pools:
        parts += [Text(f"\nrestore of one pool at a time, dense {_TAG}", style="bold"), _pools(pools)]
    if record.together:
        title = f"\n{plural(record.clients, 'client')} at once, GB/s or keys/s {_TAG}"
        parts += [Text(title, style="bold"), _clients(record.together)]
    parts += [Text(line) for line in _conclusions(record)]
    return Group(*parts)


def _heading(record: BenchRecord) -> Iterator[str]:
    page_tokens = record.preset["page_tokens"] * record.deployment["dcp"]
    rank = record.series[0].rank
    yield (
        f"{record.preset['name']}: profile {record.profile}, pages of {plural(page_tokens, 'token')}"
        + ("" if rank == str(Rank()) else f", {rank}")
    )
    who = "one process writes and reads"
    if record.clients:
        who = f"{plural(record.clients, 'client')}, and another process that wrote what they read"
    yield f"store {record.store}, keys {record.key_scheme}, saved {record.save_policy}"
    yield who
    yield (
        f"{format_tokens(record.tokens)} tokens, {plural(record.pages, 'page')}: "
        f"{format_size(record.stored_bytes)} in {plural(record.stored_objects, 'object')}; "
        f"calls of up to {plural(record.batch_pages, 'page')}"
    )
    settings = {
        name: record.store_settings[name] for name in _SETTINGS_SHOWN if name in record.store_settings
    }
    known = [_setting(name, value) for name, value in settings.items() if value != UNKNOWN]
    yield "settings: " + ", ".join(known)
    if unknown := [name for name, value in settings.items() if value == UNKNOWN]:
        yield f"unknown here: {', '.join(unknown)}"
    yield f"{record.state}: " + "; ".join(
        f"{check.actual} keys {'before the save' if check.name.startswith('cold') else 'before the reads'}"
        for check in record.checks
        if check.name.startswith(("cold", "warm"))
    )


def _setting(name: str, value: str | int | float) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{name.removesuffix('_bytes')} {format_size(value)}"
    return f"{name} {value}"


def _table(*columns: str, left: int = 1, gap: int = 1) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0), show_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right", no_wrap=True)
    return table


def _seconds(series: Sequence[Series]) -> Table:
    table = _table("operation", "n", "median", "MAD", "±95 %", "p95", "p99", "p99.9")
    for item in series:
        summary = item.summary
        table.add_row(
            _name(item),
            f"{summary.samples:,}",
            format_seconds(summary.median),
            format_seconds(summary.mad),
            _half_width(summary),
            _tail(summary, 95, summary.p95),
            _tail(summary, 99, summary.p99),
            _tail(summary, 99.9, summary.p99_9),
        )
    return table


def _rates(series: Sequence[Series], copy_rate: float) -> Table:
    table = _table(
        "operation", "GB/s", "of\ncopy", "k obj/s", "building\nkeys", "store\ncalls", "engine",
        "verify\n(apart)", gap=0,
    )  # fmt: skip
    for item in series:
        rate = item.summary.bytes_per_second
        cells = [
            _name(item),
            _gigabytes(item.summary),
            f"{rate / copy_rate:.0%}" if rate else "-",
            _thousands(item.summary.objects_per_second),
        ]
        if item.operation != "copy":
            keys, store = median(item.key_seconds), median(item.store_seconds)
            cells += map(format_seconds, (keys, store, max(0.0, item.summary.median - keys - store)))
            cells.append(format_seconds(item.verify_seconds) if item.verify_seconds else "-")
        table.add_row(*cells)
    return table


def _name(series: Series) -> str:
    if series.operation == "copy":
        return "numpy copy"
    if series.operation == "lookup":
        return f"lookup {series.policy or 'all keys'}"
    return f"{series.operation} {series.policy or ''}".strip()


def _half_width(summary: Summary) -> str:
    return f"{(summary.high - summary.low) / 2 / summary.median:.1%}"


def _tail(summary: Summary, percent: float, value: float) -> str:
    """A percentile that too few samples reach is not told: it would be the largest sample."""
    return format_seconds(value) if summary.samples >= samples_for(percent) else "-"


def _gigabytes(summary: Summary) -> str:
    return f"{summary.bytes_per_second / 1e9:.2f}" if summary.bytes_per_second else "-"


def _thousands(objects_per_second: float) -> str:
    thousands = objects_per_second / 1e3
    return f"{thousands:,.0f}" if thousands >= 1000 else f"{thousands:.1f}"


def _pools(series: Sequence[Series]) -> Table:
    table = _table("pool", "object", "objects", "median", "±95 %", "GB/s", "k obj/s")
    for item in sorted(series, key=lambda item: item.num_bytes // item.objects):
        summary = item.summary
        table.add_row(
            item.pool,
            format_size(item.num_bytes // item.objects),
            f"{item.objects:,}",
            format_seconds(summary.median),
            _half_width(summary),
            _gigabytes(summary),
            _thousands(summary.objects_per_second),
        )
    return table


def _clients(together: Sequence[Together]) -> Table:
    table = _table(
        "operation",
        "window",
        "each",
        "all",
        "one\nalone",
        "speed-\nup",
        "effi-\nciency",
        "fair-\nness",
        "busy\nCPUs",
    )
    for item in together:
        name = "numpy copy" if item.operation == "copy" else f"{item.operation} {item.policy or ''}".strip()
        if item.operation == "lookup" and item.policy is None:
            name = "lookup all keys"
        low, high = min(item.client_rates), max(item.client_rates)
        each = _rate(item, low) if low == high else f"{_rate(item, low)}-{_rate(item, high)}"
        table.add_row(
            name,
            format_seconds(item.window_seconds),
            each,
            _rate(item, item.rate),
            _rate(item, item.alone_rate),
            f"{item.speed_up:.2f}",
            f"{item.efficiency:.2f}",
            f"{item.fairness:.3f}",
            "-" if item.busy_processors is None else f"{item.busy_processors:.1f}",
        )
    return table


def _rate(item: Together, rate: float) -> str:
    return f"{rate / 1e9:.2f}" if item.unit == "bytes" else f"{rate / 1e3:.0f}k"


def _conclusions(record: BenchRecord) -> Iterator[str]:
    yield ""
    yield from _why_no_faster(record)
    if record.link_points:
        yield "as a link, fitted to the store time (simulate --link measured:RECORD) [modeled]:"
        for point in record.link_points:
            rate = f"{point.bytes_per_second / 1e9:.2f} GB/s"
            call = f"{format_seconds(point.op_seconds)} a call"
            yield f"  objects of {format_size(point.object_bytes)}: {rate}, and {call}"
    for loss in record.losses:
        who = "the writer" if loss.client is None else f"client {loss.client}"
        yield (
            f"lost and replaced: {who}, in {loss.doing}, after {format_seconds(loss.seconds)}: {loss.reason}"
        )
    for item in record.series:
        if item.pool is None and item.concurrent == 1 and item.summary.warnings:
            yield f"unstable: {_name(item)}: {'; '.join(item.summary.warnings)}"
    for warning in record.warnings:
        yield f"warning: {warning}"
    failed = record.failed_checks
    yield f"{len(record.checks) - len(failed)} of {len(record.checks)} checks passed"
    for check in failed:
        yield f"FAILED {check.name}: expected {check.expected}, found {check.actual}"
    yield f"{_TAG}: seconds and bytes that this run observed; GB/s are 10^9 bytes"
    yield "±95 %: half the interval of the median; p99 takes 100 samples, p99.9 1,000"
    yield "of copy: of this machine's own limit, a numpy copy of the same buffers"


def _why_no_faster(record: BenchRecord) -> Iterator[str]:
    """Several clients share processors with the threads that serve them."""
    processors = int(record.environment["processors"])
    for item in record.together:
        busy, own = item.alone_busy_processors, item.alone_own_processors
        if item.operation != "restore" or busy is None or own is None or busy <= processors - _FEW_LEFT:
            continue
        yield (
            f"restore {item.policy}: with one client, {busy:.1f} of {processors} CPUs are busy, {own:.1f} of "
            "them with\nthis client and its writer; more clients have nothing to run on"
        )
