"""What the engine adds to a store's own calls, and what a second reader brings.

``python -m benchmarks.delivery`` prints the bars. Ratios are medians of pairs measured in one process on the
same keys and buffers; the bare calls are cut into the batches that the engine sends.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.paired import Row, at_least, at_most, paired_ratio
from benchmarks.saved import PAGE_TOKENS, plain_pool, private_mooncake, saved_prefix
from benchmarks.table import print_rows
from hicache_bench.config.load import load_model
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.store.client import mooncake_availability
from hicache_bench.store.local import LocalKVStore
from hicache_bench.units import KIB, MIB, format_size
from hicache_bench.workflows.bench.measure import bench
from hicache_bench.workflows.bench.options import BenchOptions
from hicache_bench.workflows.variant import VariantOptions, apply_options

PAIRS = 31
MOONCAKE_PAIRS = 61
"""More: the calls of a store with threads of its own vary, and the bars are a hundredth away."""
MOONCAKE_BARS = {4 * KIB: 0.85, 64 * KIB: 0.92, MIB: 0.97, 16 * MIB: 0.98}
LOCAL_BARS = {64 * KIB: 0.90, 256 * KIB: 0.95, MIB: 0.97}
_IDLE = 0.25
"""Processors that one reader leaves idle; a second one needs more than that."""


def mooncake_restore(pools: tuple[KVPoolDescriptor, ...], num_tokens: int) -> float:
    """Bare ``batch_get_into`` seconds over those of a restore through ``mooncake``."""
    with saved_prefix(pools, num_tokens, private_mooncake) as saved:
        keys, addresses, sizes, spans = saved.bare_request()
        native = saved.store.native

        def bare() -> None:
            for span in spans:
                assert native.batch_get_into(keys[span], addresses[span], sizes[span]) == sizes[span]

        return paired_ratio(bare, lambda: saved.restore(TransferPolicy.DENSE), pairs=MOONCAKE_PAIRS)


def local_restore(object_bytes: int, total_bytes: int = 512 * MIB) -> float:
    """Seconds of one numpy copy per object over those of a restore through ``local``."""
    num_pages = total_bytes // object_bytes
    with saved_prefix((plain_pool(object_bytes),), num_pages * PAGE_TOKENS, LocalKVStore) as saved:
        to_pages, from_pages = saved.target["kv"].view(0), saved.source["kv"].view(0)
        copies = [(to_pages[page, 0, 0, 0], from_pages[page, 0, 0, 0]) for page in range(num_pages)]

        def copy() -> None:
            for to, come_from in copies:
                to[:] = come_from

        return paired_ratio(copy, lambda: saved.restore(TransferPolicy.DENSE), pairs=PAIRS)


def selective_share(preset_name: str = "deepseek-v4-flash", num_tokens: int = 32 * KIB) -> float:
    """Seconds of a selective restore over those of a dense one, through ``mooncake``."""
    preset = load_model(preset_name)
    with saved_prefix(pools_of(preset.spec, profile=preset.profile), num_tokens, private_mooncake) as saved:
        return paired_ratio(
            lambda: saved.restore(TransferPolicy.SELECTIVE),
            lambda: saved.restore(TransferPolicy.DENSE),
            pairs=PAIRS,
        )


def second_reader(preset_name: str = "deepseek-v3.2", num_tokens: int = 8 * KIB) -> Row:
    """Two reader processes over one, each restoring over TCP what a third process holds."""
    options = BenchOptions(
        preset=preset_name,
        variant=apply_options(load_model(preset_name), VariantOptions()),
        num_tokens=num_tokens,
        operations=("restore",),
        policies=(TransferPolicy.DENSE,),
        min_seconds=5.0,
        clients=2,
        store="mooncake",
    )
    record = bench(options, lambda _: None)
    (restore,) = (item for item in record.together if item.operation == "restore")
    processors = int(record.environment["processors"])
    busy = restore.alone_busy_processors
    figure = f"{restore.speed_up:.2f}"
    if busy is not None:
        figure += f"; one alone: {busy:.1f} of {processors} CPUs busy"
    has_reason = busy is not None and busy > processors - _IDLE
    return Row(
        "two reader processes / one, TCP",
        figure,
        ">= 1.3, or no CPU idle",
        restore.speed_up >= 1.3 or has_reason,
    )


def rows() -> Iterator[Row]:
    """Every bar, measured."""
    for object_bytes, bar in LOCAL_BARS.items():
        name = f"numpy loop / restore through local, {format_size(object_bytes)} objects"
        yield at_least(name, local_restore(object_bytes), bar)
    availability = mooncake_availability()
    if not availability.importable:
        yield Row("everything on mooncake", f"not measured: {availability.reason}", "", kept=False)
        return
    for object_bytes, bar in MOONCAKE_BARS.items():
        # Enough for several batches of each size: a few objects would time the start of a restore.
        total_bytes = {4 * KIB: 32 * MIB, 64 * KIB: 256 * MIB}.get(object_bytes, 1024 * MIB)
        name = f"bare batch_get_into / restore through mooncake, {format_size(object_bytes)} objects"
        num_tokens = total_bytes // object_bytes * PAGE_TOKENS
        yield at_least(name, mooncake_restore((plain_pool(object_bytes),), num_tokens), bar)
    preset = load_model("deepseek-v3.2")
    pools = pools_of(preset.spec, profile=preset.profile)
    name = "bare batch_get_into / restore through mooncake, DeepSeek-V3.2, 8k"
    yield at_least(name, mooncake_restore(pools, 8 * KIB), 0.95)
    yield at_most("selective / dense seconds, V4-Flash, 32k on mooncake", selective_share(), 0.20, "of dense")
    yield second_reader()


if __name__ == "__main__":
    print_rows(rows())
