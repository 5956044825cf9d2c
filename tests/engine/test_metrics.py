from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from hicache_bench.engine.metrics import LATENCY_BUCKETS, MetricsSink
from hicache_bench.planning.ledger import Ledger, PoolLedger, Volume
from hicache_bench.planning.plan import SkipReason
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.store.faults import EvictBeforeGet
from tests.engine.rig import INDEX, LATENT, SELECTIVE, WINDOW, Rig

NAME = "mooncake_hicache"


def families(sink: MetricsSink) -> dict[str, Metric]:
    """What a Prometheus server would scrape."""
    found = list(text_string_to_metric_families(sink.to_prometheus()))
    assert len({family.name for family in found}) == len(found)
    return {family.name: family for family in found}


def value(sink: MetricsSink, name: str, **labels: str) -> float | None:
    """A counter by its name without prefix and ``_total``; None where it was never written."""
    family = families(sink).get(f"{NAME}_{name}")
    if family is None:
        return None
    assert family.type == "counter"
    found = [sample.value for sample in family.samples if sample.labels == labels]
    assert len(found) <= 1
    return found[0] if found else None


NOTHING = Volume()


def ledger(read: Volume = NOTHING, policy: TransferPolicy = SELECTIVE) -> Ledger:
    skipped = {SkipReason.OUT_OF_WINDOW: Volume(7, 14, 700)}
    pool = PoolLedger(pool="swa", read=read, skipped=skipped, wasted=Volume(1, 2, 100))
    return Ledger(policy=policy, hit_tokens=64, fulfilled_tokens=48, used_tokens=32, pools=(pool,))


def test_a_restore_is_counted_by_pool_policy_and_reason() -> None:
    sink = MetricsSink()
    sink.record_restore(ledger(Volume(3, 6, 300)), 0.2)
    sink.record_restore(ledger(Volume(2, 4, 200)), 0.2)
    sink.record_restore(ledger(Volume(1, 2, 100), TransferPolicy.DENSE), 0.2)
    where = {"pool": "swa", "policy": "selective"}
    assert (5, 500) == (value(sink, "read_pages", **where), value(sink, "read_bytes", **where))
    assert 100 == value(sink, "read_bytes", pool="swa", policy="dense")
    assert 1400 == value(sink, "skipped_bytes", reason="out_of_window", **where)
    assert (200, 0) == (value(sink, "wasted_bytes", **where), value(sink, "failed_bytes", **where))
    for stage, tokens in (("hit", 128), ("fulfilled", 96), ("used", 64)):
        assert tokens == value(sink, f"endpoint_{stage}_tokens", policy="selective")


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


def test_a_save_of_what_exists_writes_nothing() -> None:  # cases E50
    rig = Rig([LATENT], 4)
    rig.save()
    rig.save()
    assert 4 == value(rig.metrics, "written_pages", pool="kv")


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_the_histogram_is_cumulative(samples: list[float]) -> None:  # cases E90
    sink = MetricsSink()
    for seconds in samples:
        sink.record_restore(ledger(), seconds)
    family = families(sink)[f"{NAME}_restore_seconds"]
    assert family.type == "histogram"
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    expected = {str(bound): sum(s <= bound for s in samples) for bound in LATENCY_BUCKETS}
    assert {**expected, "+Inf": len(samples)} == buckets
    (count,) = [s.value for s in family.samples if s.name.endswith("_count")]
    (total,) = [s.value for s in family.samples if s.name.endswith("_sum")]
    assert buckets["+Inf"] == count
    assert pytest.approx(sum(samples)) == total
    assert all(sample.labels["policy"] == "selective" for sample in family.samples)


STRANGE_NAMES = ['quote"d', "back\\slash", "new\nline", "\\n", 'all\\"\n', "ünïcode", "", "}", "a,b=c"]


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_labels_survive_the_text_format(name: str) -> None:
    sink = MetricsSink()
    sink.record("read", Volume(1, 1, 5), pool=name)
    assert 5 == value(sink, "read_bytes", pool=name)


def test_counters_never_fall() -> None:  # cases E84
    sink = MetricsSink()
    sink.record("read", Volume(1, 1, 5), pool="kv")
    with pytest.raises(ValueError, match="read_bytes cannot fall by 6"):
        sink.record("read", Volume(0, 0, -6), pool="kv")
    assert 5 == value(sink, "read_bytes", pool="kv")


def test_every_counter_is_described_and_ends_in_total() -> None:  # cases E90
    sink = MetricsSink()
    sink.record_restore(ledger(), 0.1)
    sink.record_write("kv", Volume(1, 1, 1))
    for family in families(sink).values():
        assert family.documentation
        assert family.type in {"counter", "histogram"}
    text = sink.to_prometheus()
    assert text.endswith("\n")
    counters = [line for line in text.splitlines() if line[0] != "#" and "restore_seconds" not in line]
    assert all(line.split("{")[0].endswith("_total") for line in counters)
    assert all("#" in line or " " in line for line in text.splitlines())


def test_an_empty_sink_is_valid_text_and_json() -> None:
    assert {} == families(MetricsSink())
    assert {"counters": [], "restore_seconds": {}} == json.loads(MetricsSink().to_json())


def test_json_says_what_the_text_says() -> None:
    sink = MetricsSink()
    sink.record_restore(ledger(Volume(3, 6, 300)), 0.2)
    data = json.loads(sink.to_json())
    scraped = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families(sink).values()
        if family.type == "counter"
        for sample in family.samples
    }
    told = {
        (counter["name"], tuple(sorted(counter["labels"].items()))): counter["value"]
        for counter in data["counters"]
    }
    assert scraped == told
    latency = data["restore_seconds"]["selective"]
    assert (1, 0.2) == (sum(latency["counts"]), latency["sum"])
    assert len(latency["buckets"]) + 1 == len(latency["counts"])
