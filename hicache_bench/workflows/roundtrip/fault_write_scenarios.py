"""How each fault of the catalogue is brought about: objects that are wrong, and writers that break."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.pools.names import Layout
from hicache_bench.store.base import NO_SPACE
from hicache_bench.store.fault_objects import flip_bit
from hicache_bench.store.fault_writer import DyingWriter, InterruptedWriter, WriterKilledError
from hicache_bench.store.faults import FailCalls
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import Operation
from hicache_bench.workflows.roundtrip.fault_checks import Broken
from hicache_bench.workflows.roundtrip.fault_lab import Lab
from hicache_bench.workflows.roundtrip.fault_models import HYBRID, PLAIN
from hicache_bench.workflows.roundtrip.fault_rig import Asked, Rig
from hicache_bench.workflows.roundtrip.fault_scenarios import (
    NUM_PAGES,
    READ_SCENARIOS,
    Scenario,
)


def _failed_batch_write(lab: Lab) -> None:
    fault = FailCalls(Operation.PUT, frozenset({2}))
    for retries, stored, failed in ((1, 300, 0), (0, 128, 172)):
        plain = lab.rig(PLAIN, 300, model=f"{retries} retries", put_retries=retries)
        report = lab.save(plain, f"{retries} retries", faults=[fault])
        pages = (report.stored_pages, report.failed_pages, report.complete)
        lab.equal(f"{retries} retries: pages stored, failed; complete", (stored, failed, not failed), pages)
        outcome = lab.restore(plain, f"{retries} retries")
        lab.equal(f"{retries} retries: pages used", stored, outcome.used_tokens // plain.page_tokens)
        lab.recover(plain)


def _flipped_bit_at_rest(lab: Lab) -> None:
    READ_SCENARIOS["flipped-bit"](lab)
    _damaged(lab, lambda content: flip_bit(content, lab.chance.randrange(8 * len(content))), seen=False)


def _truncated_object(lab: Lab) -> None:
    _damaged(lab, lambda content: content[: -1 - lab.chance.randrange(4)], seen=True)


def _oversized_object(lab: Lab) -> None:
    _damaged(lab, lambda content: content + content[: 1 + lab.chance.randrange(4)], seen=True)


def _foreign_dtype(lab: Lab) -> None:
    _damaged(lab, lambda content: content[: len(content) // 2], seen=True)
    lab.equal("keys of two dtypes that are the same", 0, _shared_keys(lab, dtype="fp8"))


def _damaged(lab: Lab, damage: Callable[[bytes], bytes], *, seen: bool) -> None:
    """Objects of each pool in turn are changed in the store; ``seen`` if their size tells."""
    for pool in (pool for pool in HYBRID if not pool.is_logical):
        rig = lab.rig(HYBRID, NUM_PAGES, model=str(pool.name))
        editor = lab.editor(rig)
        lab.save(rig, "save")
        damaged = lab.chance.sample(rig.keys_of(pool.name, *range(NUM_PAGES // pool.unit_pages)), 2)
        for key in damaged:
            editor.replace(key, damage(editor.read(key, rig.stored_bytes(key))))
        _met(lab, rig, pool.name, damaged, seen=seen or lab.digest is not None)


def _met(lab: Lab, rig: Rig, label: str, damaged: list[str], *, seen: bool) -> None:
    """Restores meet the damage, and a later one works once it is repaired."""
    broken = Broken(lost=damaged) if seen else Broken(silent=damaged)
    for policy in TransferPolicy:
        lab.restore(rig, f"{label}, {policy}", broken, asked=Asked(policy=policy))
    if seen:
        lab.says_why(rig, broken)
    lab.recover(rig, damaged)


def _foreign_pool(lab: Lab) -> None:
    rig = lab.rig(HYBRID, NUM_PAGES)
    editor = lab.editor(rig)
    lab.save(rig, "save")
    page = lab.chance.randrange(NUM_PAGES)
    (target,), (other,) = rig.keys_of("draft", page), rig.keys_of("chunked", page)
    editor.replace(target, editor.read(other, rig.stored_bytes(other)))
    (latent,), (rows,) = rig.keys_of("kv", page), rig.keys_of("c128", page // 2)
    editor.replace(latent, editor.read(rows, rig.stored_bytes(rows)))
    _met(lab, rig, "objects of other pools", [target, latent], seen=lab.digest is not None)


def _foreign_layout(lab: Lab) -> None:
    rig = lab.rig(HYBRID, NUM_PAGES)
    damaged = [lab.chance.choice(rig.keys_of("swa", NUM_PAGES - 1))]
    rig.fixture.fill(rig.host_pools)
    lab.save(rig, "save")
    reader, writer = lab.editor(rig), lab.writer(rig)
    for key in damaged:
        content = np.frombuffer(reader.read(key, rig.stored_bytes(key))[: rig.sizes[key]], dtype=np.uint8)
        # page_first has (row, layer, byte); page_first_direct has (layer, row, byte).
        writer.replace(key, content.reshape(4, 2, -1).transpose(1, 0, 2).tobytes())
    _met(lab, rig, "a page of another layout", damaged, seen=False)
    lab.equal("keys of two layouts that are the same", 0, _shared_keys(lab, layout=Layout.PAGE_FIRST_DIRECT))


def _shared_keys(lab: Lab, **changes: object) -> int:
    """Keys that a pool has in common with the same pool after a change."""
    keys = NamespacedKeyBuilder(lab.name)
    count = 0
    for pool in HYBRID:
        changed = replace(pool, **changes)  # type: ignore[arg-type]
        count += len(set(keys.keys(pool, ["page"])) & set(keys.keys(changed, ["page"])))
    return count


def _stale_object(lab: Lab) -> None:
    stale = lab.rig(HYBRID, NUM_PAGES, content=1)
    lab.save(stale, "wrong bytes")
    right = lab.rig(HYBRID, NUM_PAGES, content=2)
    before = replace(right.store.stats)
    report = lab.save(right, "right bytes")
    grown = right.store.stats
    lab.equal("right bytes: bytes put by the store's own count", 0, grown.put_bytes - before.put_bytes)
    lab.equal("right bytes: puts that changed nothing", len(right.sizes), grown.put_noops - before.put_noops)
    lab.equal("right bytes: objects written", 0, sum(part.objects for part in report.written.values()))
    _met(lab, right, "stale objects", list(right.sizes), seen=False)


def _null_state(lab: Lab) -> None:
    rig = lab.rig(HYBRID, NUM_PAGES)
    slots = dict(rig.prefix.slots)
    slots["mamba"] = np.where(np.arange(NUM_PAGES) == NUM_PAGES - 2, slots["mamba"], -1)
    whole, rig.prefix = rig.prefix, replace(rig.prefix, slots=slots)
    rig.save()
    rig.prefix = whole
    held = rig.held()
    published = [unit for unit in range(NUM_PAGES) if held.issuperset(rig.keys_of("mamba", unit))]
    lab.equal("pages whose state is published", [NUM_PAGES - 2], published)
    outcome = lab.restore(rig, "one state")
    lab.equal("one state: pages used", NUM_PAGES - 1, outcome.used_tokens // rig.page_tokens)
    # The window of the last page is whole, and that of the page before, which has the state, is not.
    for key in rig.keys_of("swa", NUM_PAGES - 3):
        rig.inner.remove(key, force=True)
    outcome = lab.restore(rig, "its window has a hole")
    lab.equal("its window has a hole: pages used", 0, outcome.used_tokens)
    lab.recover(rig)


def _killed_writer(lab: Lab) -> None:
    for batch_pages in (1, 3, 128):
        reader = lab.rig(HYBRID, NUM_PAGES, model=f"batches of {batch_pages}")
        num_objects = lab.chance.randrange(1, len(reader.sizes))
        writer = lab.rig(
            HYBRID,
            NUM_PAGES,
            model=f"batches of {batch_pages}",
            store=DyingWriter(lab.store, num_objects),
            batch_pages=batch_pages,
        )
        label = f"killed after {num_objects} objects, {batch_pages} pages a batch"
        end = "saved all"
        try:
            writer.save()
        except WriterKilledError:
            end = "killed"
        lab.equal(f"{label}: the writer", "killed", end)
        lab.equal(f"{label}: objects stored", num_objects, len(reader.held()))
        for policy in TransferPolicy:
            lab.restore(reader, f"{label}, {policy}", asked=Asked(policy=policy))
        lab.recover(reader)


def _duplicate_writers(lab: Lab) -> None:
    second = lab.rig(HYBRID, NUM_PAGES)
    reports = []
    store = InterruptedWriter(lab.store, 1 + lab.chance.randrange(4), lambda: reports.append(second.save()))
    first = lab.rig(HYBRID, NUM_PAGES, store=store, batch_pages=2)
    reports.append(first.save())
    amounts = [
        sum(part.objects for report in reports for part in getattr(report, kind).values())
        for kind in ("written", "existing", "failed")
    ]
    count = len(first.sizes)
    lab.equal("objects written, existing, failed by two writers", [count, count, 0], amounts)
    for reader in (first, second):
        outcome = lab.restore(reader, "after both")
        lab.equal("after both: tokens used", reader.num_tokens, outcome.used_tokens)
    lab.recover(second)


def _store_full(lab: Lab) -> None:
    rig = lab.rig(HYBRID, NUM_PAGES, batch_pages=2)
    # Call 4 is the retry of call 3.
    report = lab.save(rig, "full", faults=[FailCalls(Operation.PUT, frozenset({3, 4}), NO_SPACE)])
    lab.equal("full: pages stored, complete", (4, False), (report.stored_pages, report.complete))
    lab.equal("full: batches sent, of 4", 3, report.transfer.batches)
    for policy in TransferPolicy:
        outcome = lab.restore(rig, f"full, {policy}", asked=Asked(policy=policy))
        lab.equal(f"full, {policy}: pages used", 4, outcome.used_tokens // rig.page_tokens)
    lab.recover(rig)


def _arena_full(lab: Lab) -> None:
    seconds = [0.0]
    # Room for the first two requests and a part of the third, digests or not.
    probe = lab.rig(HYBRID, NUM_PAGES, model="probe")
    capacity_bytes = sum(map(probe.stored_bytes, probe.sizes)) * 5 // 2
    store = lab.opened(LocalKVStore(capacity_bytes, eviction_watermark=1.0, clock=lambda: seconds[0]))
    rigs = [lab.rig(HYBRID, NUM_PAGES, model=f"request {index}", store=store) for index in range(3)]
    for index, rig in enumerate(rigs):
        rig.save()
        for policy in TransferPolicy:
            lab.restore(rig, f"request {index}, {policy}", asked=Asked(policy=policy))
    lab.equal("objects refused while all was leased", True, store.stats.put_failures > 0)
    lab.equal("the first request, all leased: objects there", len(probe.sizes), len(rigs[0].held()))
    seconds[0] += 60
    rigs[2].save()
    lab.equal("objects that gave way once no lease held them", True, store.stats.evicted_keys > 0)
    for index, rig in enumerate(rigs):
        lab.restore(rig, f"request {index}, after eviction")
    for rig in rigs:
        rig.forget()
    lab.recover(rigs[0])


SCENARIOS: Mapping[str, Scenario] = {
    **READ_SCENARIOS,
    "flipped-bit": _flipped_bit_at_rest,
    "failed-batch-write": _failed_batch_write,
    "truncated-object": _truncated_object,
    "oversized-object": _oversized_object,
    "foreign-pool": _foreign_pool,
    "foreign-dtype": _foreign_dtype,
    "foreign-layout": _foreign_layout,
    "stale-object": _stale_object,
    "null-state": _null_state,
    "killed-writer": _killed_writer,
    "duplicate-writers": _duplicate_writers,
    "store-full": _store_full,
    "arena-full": _arena_full,
}
"""The way to each fault of the catalogue, by name."""
