from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.engine.metrics import FAMILIES, LATENCY_BUCKETS, MAX_LABEL_VALUES, OTHER, MetricsSink
from hicache_bench.errors import ConfigError
from hicache_bench.planning.ledger import Ledger, PoolLedger, Volume
from hicache_bench.planning.plan import SkipReason
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.store.faults import EvictBeforeGet
from tests.engine.rig import INDEX, LATENT, PAGE_TOKENS, SELECTIVE, WINDOW, Rig
from tests.engine.scraped import NAME, families, value

NOTHING = Volume()


def ledger(read: Volume = NOTHING, policy: TransferPolicy = SELECTIVE) -> Ledger:
    skipped = {SkipReason.OUT_OF_WINDOW: Volume(7, 14, 700)}
    pool = PoolLedger(pool="swa", read=read, skipped=skipped, wasted=Volume(1, 2, 100))
    return Ledger(
        policy=policy,
        hit_tokens=64,
        fulfilled_tokens=48,
        used_tokens=32,
        pools=(pool,),
        unused_tokens={SkipReason.TRANSFER_SHORTFALL: 32},
    )


def restored(sink: MetricsSink, found: Ledger, seconds: float = 0.2) -> None:
    sink.record_restore(found, seconds, prompt_tokens=100)


def test_a_restore_is_counted_by_pool_policy_and_reason() -> None:
    sink = MetricsSink()
    restored(sink, ledger(Volume(3, 6, 300)))
    restored(sink, ledger(Volume(2, 4, 200)))
    restored(sink, ledger(Volume(1, 2, 100), TransferPolicy.DENSE))
    where = {"pool": "swa", "policy": "selective"}
    assert (5, 500) == (value(sink, "read_pages", **where), value(sink, "read_bytes", **where))
    assert 100 == value(sink, "read_bytes", pool="swa", policy="dense")
    assert 1400 == value(sink, "skipped_bytes", reason="out_of_window", **where)
    assert (200, 0) == (value(sink, "wasted_bytes", **where), value(sink, "failed_bytes", **where))
    for stage, tokens in (("hit", 128), ("fulfilled", 96), ("used", 64)):
        assert tokens == value(sink, f"endpoint_{stage}_tokens", policy="selective")


def test_every_hit_token_is_used_or_has_one_reason() -> None:  # cases E86
    sink = MetricsSink()
    restored(sink, ledger())
    used = value(sink, "endpoint_used_tokens", policy="selective")
    unused = value(sink, "unused_tokens", policy="selective", reason="transfer_shortfall")
    assert used is not None
    assert unused is not None
    assert value(sink, "endpoint_hit_tokens", policy="selective") == used + unused


@pytest.mark.parametrize(
    ("hit", "prompt", "local", "expected"),
    [
        (800, 1000, 600, (400, 200)),
        (0, 1000, 600, (400, 0)),
        (600, 1000, 600, (400, 0)),
        (1000, 1000, 0, (1000, 1000)),
        (64, 0, 0, (0, 0)),
    ],
)
def test_local_tokens_are_no_query(
    hit: int, prompt: int, local: int, expected: tuple[int, int]
) -> None:  # cases E83
    sink = MetricsSink()
    sink.record_restore(replace(ledger(), hit_tokens=hit), 0.1, prompt_tokens=prompt, local_tokens=local)
    found = [value(sink, name, policy="selective") for name in ("query_tokens", "query_hit_tokens")]
    assert list(expected) == found


def test_a_real_restore_is_counted_once() -> None:  # cases E85
    writer = Rig([LATENT, INDEX, WINDOW], 8)
    writer.save()
    assert 8 == value(writer.metrics, "written_pages", pool="kv")
    reader = Rig(
        [LATENT, INDEX, WINDOW], 8, [EvictBeforeGet(frozenset({writer.key("indexer", 5)}))], writer.inner
    )
    reader.restore()
    where = {"pool": "indexer", "policy": "selective"}
    found = [
        value(reader.metrics, f"{event}_pages", **where) for event in ("read", "missed", "wasted", "failed")
    ]
    # The window of endpoint 5 was not read, so that nothing of the index can be used.
    assert [7, 1, 7, 0] == found
    total = sum(
        sample.value
        for event in ("read", "skipped", "missed", "failed")
        for sample in families(reader.metrics)[f"{NAME}_{event}_bytes"].samples
    )
    assert 8 * (LATENT.unit_bytes + INDEX.unit_bytes + WINDOW.unit_bytes) == total


def test_what_is_skipped_is_no_miss() -> None:  # cases E84
    rig = Rig([LATENT, WINDOW], 8)
    rig.save()
    rig.restore()
    where = {"pool": "swa", "policy": "selective"}
    skipped = value(rig.metrics, "skipped_pages", reason="out_of_window", **where)
    assert skipped is not None
    assert 8 == skipped + (value(rig.metrics, "read_pages", **where) or 0)
    assert 0 == value(rig.metrics, "missed_pages", **where)


def test_a_request_for_which_the_store_has_nothing_is_counted() -> None:  # cases E83
    rig = Rig([LATENT], 4)
    rig.restore()
    assert 4 * PAGE_TOKENS + 1 == value(rig.metrics, "query_tokens", policy="selective")
    assert 0 == value(rig.metrics, "query_hit_tokens", policy="selective")


def test_the_local_prefix_of_a_real_restore_is_no_query() -> None:  # cases E83
    rig = Rig([LATENT], 8)
    rig.save()
    rig.restore(local_tokens=2 * PAGE_TOKENS)
    assert 6 * PAGE_TOKENS + 1 == value(rig.metrics, "query_tokens", policy="selective")
    assert 6 * PAGE_TOKENS == value(rig.metrics, "query_hit_tokens", policy="selective")


def test_a_save_of_what_exists_writes_nothing() -> None:  # cases E50
    rig = Rig([LATENT], 4)
    rig.save()
    rig.save()
    assert 4 == value(rig.metrics, "written_pages", pool="kv")
    (count,) = [
        sample.value
        for sample in families(rig.metrics)[f"{NAME}_transfer_seconds"].samples
        if sample.name.endswith("_count")
    ]
    assert 2 == count


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_the_histogram_is_cumulative(samples: list[float]) -> None:  # cases E90
    sink = MetricsSink()
    for seconds in samples:
        restored(sink, ledger(), seconds)
    family = families(sink)[f"{NAME}_transfer_seconds"]
    assert family.type == "histogram"
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    expected = {str(bound): sum(s <= bound for s in samples) for bound in LATENCY_BUCKETS}
    assert {**expected, "+Inf": len(samples)} == buckets
    (count,) = [s.value for s in family.samples if s.name.endswith("_count")]
    (total,) = [s.value for s in family.samples if s.name.endswith("_sum")]
    assert buckets["+Inf"] == count
    assert pytest.approx(sum(samples)) == total
    labels = ({**sample.labels, "le": ""} for sample in family.samples)
    assert all(found == {"operation": "restore", "policy": "selective", "le": ""} for found in labels)


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    sink = MetricsSink()
    restored(sink, ledger(), 0.5)
    restored(sink, ledger(), -0.25)
    (total,) = [
        sample.value
        for sample in families(sink)[f"{NAME}_transfer_seconds"].samples
        if sample.name.endswith("_sum")
    ]
    assert 0.5 == total


def test_counters_never_fall() -> None:  # cases E84
    sink = MetricsSink()
    sink.record("read", Volume(1, 1, 5), pool="kv")
    with pytest.raises(ValueError, match="read_bytes_total cannot fall by 6"):
        sink.record("read", Volume(3, 0, -6), pool="kv")
    assert (1, 5) == (value(sink, "read_pages", pool="kv"), value(sink, "read_bytes", pool="kv"))


def test_a_restore_that_cannot_be_counted_is_not_half_counted() -> None:
    sink = MetricsSink()
    pool = PoolLedger(pool="kv", read=Volume(1, 1, 1), wasted=Volume(0, 0, -1))
    with pytest.raises(ValueError, match="wasted_bytes_total cannot fall"):
        restored(sink, replace(ledger(), pools=(pool,)))
    assert sink.is_empty
    assert "" == sink.to_prometheus()


def test_an_unknown_event_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'skiped'; allowed: read, .*did you mean 'skipped'"):
        MetricsSink().record("skiped", Volume(1, 1, 1), pool="kv")


def test_too_many_values_of_a_label_are_counted_together() -> None:
    sink = MetricsSink()
    for number in range(MAX_LABEL_VALUES + 10):
        sink.record("read", Volume(1, 1, 7), pool=f"pool {number}")
    sink.record("read", Volume(1, 1, 7), pool="pool 3")
    samples = families(sink)[f"{NAME}_read_bytes"].samples
    assert MAX_LABEL_VALUES + 1 == len(samples)
    assert 7 * (MAX_LABEL_VALUES + 11) == sum(sample.value for sample in samples)
    assert 70 == value(sink, "read_bytes", pool=OTHER)
    assert 14 == value(sink, "read_bytes", pool="pool 3")
    # Pages and bytes are two samples.
    assert 20 == value(sink, "folded_label_values", label="pool")


def test_every_counter_is_described_and_ends_in_total() -> None:  # cases E90
    assert all(text.endswith(".") for text in FAMILIES.values())
    assert all(name.endswith(("_total", "_seconds")) for name in FAMILIES)
    sink = MetricsSink()
    restored(sink, ledger())
    sink.record_save({"kv": Volume(1, 1, 1)}, 0.1)
    for family in families(sink).values():
        assert family.documentation
        assert family.type == ("histogram" if family.name.endswith("_seconds") else "counter")


def test_the_docs_name_every_family_and_no_other() -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    named = re.findall(r"`(mooncake_(?:hicache|store)_[\w*]+)`", text)
    spelled = {name.replace("*", unit) for name in named for unit in ("pages_total", "bytes_total")}
    assert set(FAMILIES) == spelled


def test_an_empty_sink_is_valid_text_and_json() -> None:
    assert MetricsSink().is_empty
    assert {} == families(MetricsSink())
    assert {} == json.loads(MetricsSink().to_json())


def test_a_reader_never_sees_half_of_a_restore() -> None:
    sink = MetricsSink()
    torn: list[str] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            found = {family.name: dict(family.samples) for family in sink.collect()}
            read_bytes = sum(found.get(f"{NAME}_read_bytes_total", {}).values())  # type: ignore[arg-type]
            hits = sum(found.get(f"{NAME}_endpoint_hit_tokens_total", {}).values())  # type: ignore[arg-type]
            if read_bytes != hits:
                torn.append(f"{read_bytes} {hits}")

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(2000):
        restored(sink, ledger(Volume(1, 1, 64)))
    ended.set()
    reader.join()
    assert [] == torn
    assert 64 * 2000 == value(sink, "read_bytes", pool="swa", policy="selective")
