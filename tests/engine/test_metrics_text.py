"""The text format, read back by Prometheus's own parser; the JSON beside it."""

from __future__ import annotations

import json
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.engine.controller import HybridKVController
from hicache_bench.engine.metrics import PREFIX, MetricsSink
from hicache_bench.engine.metrics_store import MeteredStore
from hicache_bench.engine.metrics_text import Family, HistogramValue, to_json, to_prometheus
from hicache_bench.planning.ledger import Volume
from hicache_bench.store.faults import EvictBeforeGet
from tests.engine.rig import LATENT, WINDOW, Rig
from tests.engine.scraped import families, value

STRANGE_NAMES = [
    'quote"d',
    "back\\slash",
    "new\nline",
    "\\n",
    'all\\"\n',
    "ünïcode",
    "}",
    "a,b=c",
    "\r",
    "\0",
]


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_labels_survive_the_text_format(name: str) -> None:
    sink = MetricsSink()
    sink.record("read", Volume(1, 1, 5), pool=name)
    assert 5 == value(sink, "read_bytes", pool=name)


GOLDEN = Path(__file__).parents[1] / "golden" / "outputs" / "metrics.prom"
ANY_TEXT = st.text(st.characters(exclude_categories=()), min_size=1)  # lone surrogates too


@given(st.dictionaries(ANY_TEXT, st.integers(0, 1 << 40), max_size=8))
def test_any_text_is_a_label(amounts: dict[str, int]) -> None:  # cases E90
    sink = MetricsSink()
    expected: Counter[str] = Counter()
    for pool, num_bytes in amounts.items():
        sink.record("read", Volume(0, 0, num_bytes), pool=pool)
        expected[pool.encode("utf-8", "backslashreplace").decode()] += num_bytes
    samples = families(sink)[f"{PREFIX}_read_bytes"].samples if amounts else []
    assert expected == {sample.labels["pool"]: sample.value for sample in samples}
    sink.to_prometheus().encode()


def test_no_value_is_no_label() -> None:
    # Prometheus takes an empty label for a missing one: two such samples would be one series.
    sink = MetricsSink()
    sink.record("read", Volume(1, 1, 5), pool="", policy="")
    sink.record("read", Volume(1, 1, 6), pool="")
    assert 11 == value(sink, "read_bytes")


def test_the_text_of_each_kind() -> None:
    histogram = HistogramValue(bounds=(0.1, 1.0), counts=(2, 0, 1), total=30.5)
    found = to_prometheus(
        [
            Family(name="a_total", help="A.", kind="counter", samples=(((), 3), ((("x", "y"),), 0))),
            Family(name="b_seconds", help="B.", kind="histogram", samples=(((("x", "y"),), histogram),)),
        ]
    )
    assert found == (
        "# HELP a_total A.\n"
        "# TYPE a_total counter\n"
        "a_total 3\n"
        'a_total{x="y"} 0\n'
        "# HELP b_seconds B.\n"
        "# TYPE b_seconds histogram\n"
        'b_seconds_bucket{x="y",le="0.1"} 2\n'
        'b_seconds_bucket{x="y",le="1.0"} 2\n'
        'b_seconds_bucket{x="y",le="+Inf"} 3\n'
        'b_seconds_sum{x="y"} 30.5\n'
        'b_seconds_count{x="y"} 3\n'
    )


def test_json_says_what_the_text_says() -> None:
    sink = MetricsSink()
    sink.record("read", Volume(3, 6, 300), pool="kv", policy="selective")
    sink.record("read", Volume(1, 2, 100), pool="swa", policy="selective")
    sink.record_save({"kv": Volume(1, 1, 1)}, 0.2)
    data = json.loads(sink.to_json())
    scraped = families(sink)
    assert {name.removesuffix("_total") for name in data} == set(scraped)
    for name, family in data.items():
        metric = scraped[name.removesuffix("_total")]
        assert (metric.type, metric.documentation) == (family["type"], family["help"])
        told = {}
        for sample in family["samples"]:
            where = sorted(sample["labels"].values())
            values = {
                (name, *where): sample.get("value"),
                (f"{name}_sum", *where): sample.get("sum"),
                (f"{name}_count", *where): sample.get("count"),
            }
            told.update({series: value for series, value in values.items() if value is not None})
            for bound, observed in sample.get("buckets", {}).items():
                told[(f"{name}_bucket", *sorted([*where, bound]))] = observed
        assert told == {(s.name, *sorted(s.labels.values())): s.value for s in metric.samples}


def test_json_refuses_what_is_no_number() -> None:
    histogram = HistogramValue(bounds=(1.0,), counts=(1, 0), total=float("nan"))
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json([Family(name="a", help="A.", kind="histogram", samples=(((), histogram),))])


def test_a_restore_that_lost_an_object_reads_as_committed() -> None:
    # What an operator scrapes after one save and one restore; reviewed by eye.
    metrics = MetricsSink()
    ticks = count()

    def clock() -> float:
        return next(ticks) / 64

    writer = Rig([LATENT, WINDOW], 8)
    lost = EvictBeforeGet(frozenset({writer.key("kv", 6)}))
    rig = Rig([LATENT, WINDOW], 8, [lost])
    rig.controller.close()
    store = MeteredStore(rig.store, metrics, clock=clock)
    rig.controller = HybridKVController(
        rig.registry, rig.host_pools, rig.keys, store, metrics=metrics, clock=clock
    )
    rig.save()
    rig.restore()
    assert GOLDEN.read_text() == metrics.to_prometheus()
