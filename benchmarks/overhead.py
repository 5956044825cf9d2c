"""The bars of speed: engine over a store against the bare copies or calls that it cannot do without.

``python -m benchmarks.overhead`` prints a table and exits 1 if a bar is not kept. Ratios are medians of pairs
measured in one process; whole processes are medians of several runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.paired import Row, at_least, at_most, median_seconds, paired_ratio, seconds_of
from hicache_bench.config.load import list_presets, load_model
from hicache_bench.engine.controller import HybridKVController
from hicache_bench.engine.prefix import Prefix
from hicache_bench.engine.reports import Lookup
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.planning.plan import build_plan
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.planning.resolve import num_units, resolve
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.pools.names import AttentionType
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.client import mooncake_availability, open_mooncake
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.master import ManagedMaster
from hicache_bench.workflows.prefix import FixtureBytes, build_registry, lay_out, prompt_prefix
from hicache_bench.workflows.stores import arena_bytes

_MIB = 1 << 20
_COMMAND = [sys.executable, "-c", "from hicache_bench.cli.app import main; main()"]


class Saved(NamedTuple):
    """A saved prefix, and a controller over fresh host pools that may restore it."""

    controller: HybridKVController
    prefix: Prefix
    lookup: Lookup
    source: dict[str, HostPool]
    target: dict[str, HostPool]
    store: Any


@contextmanager
def saved_prefix(
    pools: tuple[KVPoolDescriptor, ...], num_tokens: int, open_store: Callable[[int], Any]
) -> Iterator[Saved]:
    """Save a prefix of ``pools`` and look it up, ready to be restored."""
    registry = build_registry(pools)
    layout = lay_out(registry, num_tokens, SavePolicy())
    prefix = prompt_prefix(layout, token_seed=0)
    keys = NamespacedKeyBuilder("benchmark")
    source, target = layout.host_pools(backed=True), layout.host_pools(backed=True)
    FixtureBytes(layout, seed=0).fill(source)
    for host_pool in target.values():
        host_pool.poison()  # commit the memory before it is timed
    with open_store(arena_bytes(layout.stored_bytes)) as store:
        saver = HybridKVController(registry, source, keys, store)
        assert saver.save(prefix, SavePolicy()).complete
        saver.close()
        controller = HybridKVController(registry, target, keys, store)
        lookup = controller.lookup(prefix)
        yield Saved(controller, prefix, lookup, source, target, store)
        controller.close()


def local_restore(object_bytes: int, total_bytes: int = 512 * _MIB, pairs: int = 15) -> float:
    """Restore through ``local`` against one numpy copy per object between host buffers of the same size."""
    pool = KVPoolDescriptor(
        name="kv",
        attention=AttentionType.MLA,
        page_tokens=64,
        components=(Component("k", 1, 1, object_bytes),),
    )
    num_pages = total_bytes // object_bytes
    with saved_prefix((pool,), num_pages * 64, LocalKVStore) as saved:

        def restore() -> None:
            plan = saved.controller.plan(saved.lookup, TransferPolicy.DENSE)
            report = saved.controller.restore(saved.prefix, plan)
            assert report.ledger.used_tokens == num_pages * 64

        to_pages, from_pages = saved.target["kv"].view(0), saved.source["kv"].view(0)
        copies = [(to_pages[page, 0, 0, 0], from_pages[page, 0, 0, 0]) for page in range(num_pages)]

        def copy() -> None:
            for to, come_from in copies:
                to[:] = come_from

        return paired_ratio(copy, restore, pairs=pairs)


def mooncake_restore(pairs: int = 15) -> float:
    """``deepseek-v3.2``, 8k tokens: restore against bare ``batch_get_into`` of the same keys and buffers."""
    preset = load_model("deepseek-v3.2")
    pools = pools_of(preset.spec, profile=preset.profile)

    @contextmanager
    def open_store(capacity: int) -> Iterator[KVStoreBackend]:
        with ManagedMaster() as master, open_mooncake(master.address, segment_bytes=capacity) as store:
            yield store

    with saved_prefix(pools, 8192, open_store) as saved:
        plan = saved.controller.plan(saved.lookup, TransferPolicy.DENSE)
        keys, addresses, sizes = _bare_request(saved)
        native = saved.store.native

        def bare() -> None:
            assert all(result > 0 for result in native.batch_get_into(keys, addresses, sizes))

        def restore() -> None:
            report = saved.controller.restore(saved.prefix, plan)
            assert report.ledger.used_tokens == 8192

        return paired_ratio(bare, restore, pairs=pairs)


def _bare_request(saved: Saved) -> tuple[list[str], list[int], list[int]]:
    """Keys, addresses and sizes of every object, pool after pool, as the engine gives them."""
    keys: list[str] = []
    addresses: list[int] = []
    sizes: list[int] = []
    builder = NamespacedKeyBuilder("benchmark")
    for pool in saved.controller.pools:
        host_pool = saved.target[pool.name]
        indices = np.arange(host_pool.num_slots * host_pool.page_size)
        pool_addresses, pool_sizes = host_pool.get_page_buffer_meta(indices)
        keys += builder.keys(pool, saved.prefix.hashes)
        addresses += pool_addresses
        sizes += pool_sizes
    return keys, addresses, sizes


def resolve_and_plan(samples: int = 51) -> float:
    """Milliseconds to resolve and plan 16,384 pages of ``deepseek-v4-flash``, every page present."""
    preset = load_model("deepseek-v4-flash")
    pools = pools_of(preset.spec, profile=preset.profile)
    pages = 16_384
    presence = {pool.name: np.ones(num_units(pool, pages), dtype=np.bool_) for pool in pools}

    def work() -> None:
        build_plan(
            pools,
            presence,
            resolve(pools, presence, TransferPolicy.SELECTIVE, pages),
            TransferPolicy.SELECTIVE,
        )

    return 1e3 * median_seconds(work, samples=samples)


def _environment() -> dict[str, str]:
    """That of a user: Python keeps what it compiled."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def whole_process(arguments: list[str], runs: int = 5) -> float:
    """Median seconds of a whole command."""
    with tempfile.TemporaryDirectory() as directory:
        command = [*_COMMAND, *arguments, *(["--out", directory] if "run" in arguments else [])]

        def run() -> None:
            quiet = subprocess.DEVNULL
            subprocess.run(command, check=True, stdout=quiet, stderr=quiet, env=_environment())

        run()
        return median(seconds_of(run) for _ in range(runs))


def rows() -> Iterator[Row]:
    """Every bar, measured."""
    for object_bytes, bar in ((64 << 10, 0.85), (256 << 10, 0.95), (_MIB, 0.95)):
        name = f"numpy loop / restore through local, {object_bytes >> 10} KiB objects"
        yield at_least(name, local_restore(object_bytes), bar)
    availability = mooncake_availability()
    if availability.importable:
        yield at_least("bare batch_get_into / restore through mooncake", mooncake_restore(), 0.95)
    else:
        yield Row("restore through mooncake", f"not measured: {availability.reason}", ">= 0.95", kept=False)
    yield at_most("resolve + plan, 16,384 pages of V4-Flash", resolve_and_plan(), 2, "ms")
    slowest = max(
        (whole_process(["run", "--preset", preset.name, "--tokens", "1M", "--store", "count"]), preset.name)
        for preset in list_presets()
    )
    yield at_most(f"ledger of 1M tokens on count (slowest: {slowest[1]})", slowest[0], 1.0, "s")
    yield at_most("hicache-bench --help", whole_process(["--help"]), 0.3, "s")
    yield at_most("run --preset deepseek", whole_process(["run", "--preset", "deepseek"]), 10, "s")
    peak_kib = _peak_of(["run", "--preset", "deepseek"])
    yield at_most("run --preset deepseek, peak memory", peak_kib / (1 << 20), 2, "GiB")


def _peak_of(arguments: list[str]) -> int:
    """Peak resident KiB of one command, as its own parent sees it."""
    script = (
        "import resource, subprocess, sys;"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", script, *_COMMAND, *arguments, "--out", directory]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the table as it fills; exit 1 if a bar is not kept."""
    table = Table("what", "figure", "bar", "")
    kept = True
    for row in rows():
        table.add_row(row.what, row.figure, row.bar, "kept" if row.kept else "NOT KEPT")
        print(f"{row.what}: {row.figure} ({row.bar})", file=sys.stderr, flush=True)
        kept = kept and row.kept
    Console().print(table)
    sys.exit(not kept)


if __name__ == "__main__":
    main()
