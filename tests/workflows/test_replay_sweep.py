from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.cost.prefetch import PrefetchOptions
from hicache_bench.errors import ConfigError, InputError
from hicache_bench.records.replay import ReplayRecord
from hicache_bench.workflows.replay_options import ReplayArguments
from hicache_bench.workflows.replay_sweep import ReplayAxes, SweepOptions, replay_sweep
from hicache_bench.workflows.traces import open_trace
from hicache_bench.workflows.variant import VariantOptions
from tests.workflows.runs import quiet

ARGUMENTS = ReplayArguments(trace="multi-turn", capacity="inf", policy="selective")


def swept(preset: str = "deepseek-v3", *, said: Any = quiet, **given: Any) -> list[ReplayRecord]:
    """Every point; ``variant`` and ``prefetch`` are options, all else are axes."""
    options = {name: given.pop(name) for name in ("variant", "prefetch") if name in given}
    return list(
        replay_sweep(
            SweepOptions(source=load_model(preset), arguments=ARGUMENTS, axes=ReplayAxes(**given), **options),
            said,
        )
    )


def test_a_point_is_a_replay_with_its_place() -> None:
    said: list[str] = []
    records = swept(page_tokens=(64, 128), local_tokens=(0, 1024), said=said.append)
    assert [(1, 4), (2, 4), (3, 4), (4, 4)] == [(record.point, record.points) for record in records]
    assert [(64, 0), (64, 1024), (128, 0), (128, 1024)] == [
        (record.page_tokens, record.limits["local_tokens"]) for record in records
    ]
    assert "replay-deepseek-v3-" in records[0].subject
    assert records[3].subject.endswith("-4of4")
    assert said[0] == "[----------] 0 of 4 done: building the tree of prefixes"
    (alone,) = swept()
    assert "of" not in alone.subject.rpartition("-")[2]


def test_the_trace_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def counted(*arguments: Any, **options: Any) -> Any:
        opened.append(arguments)
        return open_trace(*arguments, **options)

    monkeypatch.setattr("hicache_bench.workflows.replay_options.open_trace", counted)
    swept(host_capacity_tokens=(1024, 2048, None))
    assert 1 == len(opened)


def test_without_a_link_no_second_is_modelled_on_one_rank() -> None:
    (record,) = swept()
    assert (None, None, 1, 0) == (
        record.timing,
        record.timing_basis,
        record.deployment["tp"],
        record.limits["threshold_tokens"],
    )
    assert all(result.summary.ttft is None for result in record.results)


def test_with_a_link_the_ranks_and_the_threshold_are_those_of_a_request() -> None:
    one, two = swept(
        prefetch=PrefetchOptions(),
        link=("rdma-4x200g", "s3"),
        system=("h200",),
        queue_seconds=(0.25,),
        concurrency=(4,),
    )
    assert one.timing is not None
    assert ("rdma-4x200g", "h200", 4, 0.25) == (
        one.timing.link,
        one.timing.system,
        one.timing.concurrency,
        one.timing.queue_seconds,
    )
    assert (8, 256) == (one.deployment["tp"], one.limits["threshold_tokens"])
    assert two.timing is not None
    assert "s3" == two.timing.link
    assert [result.summary.tokens for result in one.results] == [
        result.summary.tokens for result in two.results
    ]
    (asked,) = swept(
        prefetch=PrefetchOptions(), link=("s3",), system=("h200",), tp=(4,), threshold_tokens=(0,)
    )
    assert (4, 0) == (asked.deployment["tp"], asked.limits["threshold_tokens"])


def test_a_variant_reaches_every_point() -> None:
    (record,) = swept(variant=VariantOptions(kv_dtype="fp8"), pp=(2,))
    assert ("fp8", 2) == (record.preset["kv_dtype"], record.deployment["pp"])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="no link is named"):
        swept(prefetch=PrefetchOptions(), link=("rdma",), system=("h200",))
    with pytest.raises(InputError, match="make 40,000 points"):
        swept(local_tokens=tuple(range(200)), threshold_tokens=tuple(range(200)))


def test_a_replay_without_seconds_imports_neither_the_cost_model_nor_the_transfer_engine() -> None:
    """Their import would be a tenth of a second of each short replay."""
    script = (
        "import sys; import hicache_bench.workflows.replay_sweep, hicache_bench.report.replay;"
        "print([name for name in sys.modules if name.startswith(('hicache_bench.cost', "
        "'hicache_bench.engine.transfer', 'hicache_bench.store'))])"
    )
    assert (
        "[]\n"
        == subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    )
