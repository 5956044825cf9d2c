from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hicache_bench.errors import InputError
from hicache_bench.records.io import write_record
from hicache_bench.records.proof import RoundtripRecord
from hicache_bench.report.plots.catalogue import FIGURES, drawings_of, load_records
from hicache_bench.report.plots.files import write_figures
from tests.report.plots.drawn import DARK, LIGHT
from tests.report.replays import small_record
from tests.workflows.bench.series import made_record, made_series
from tests.workflows.runs import cached_run
from tests.workflows.simulate.rig import simulated

RUN = cached_run("qwen3-32b", 8192)
QUERIES = [cached_run("kitchen-sink", 8192, num_queries=number) for number in (1, 2)]
SWEEP = simulated("qwen3-32b", prefix_tokens=(1024, 8192), with_break_even=True)
PROOF = RoundtripRecord(
    status="ok", created_utc="2026-01-01T00:00:00.000000Z", command=(), tool_version="0", libraries={},
    environment={}, seed=0, store="local", store_settings={}, presets={}, proofs=(),
)  # fmt: skip


def names(*records: object) -> list[str]:
    return [drawing.name for drawing in drawings_of(records)[0]]


def test_every_kind_of_figure_has_its_records() -> None:
    bench = made_record([made_series(pool="kv")])
    records = [RUN, *QUERIES, *SWEEP, small_record(), bench]
    kinds = {figure.name for figure in FIGURES}
    drawn = {name for name in kinds for found in names(*records) if found.startswith(f"{name}-")}
    assert {"bytes", "union", "ttft", "break-even", "capacity", "throughput"} == kinds == drawn
    assert drawings_of(records)[1] == []


def test_a_name_says_the_figure_and_the_model_and_comes_once() -> None:
    digest = RUN.preset_digest[:8]
    assert [f"bytes-qwen3-32b-{digest}", f"bytes-qwen3-32b-{digest}-2"] == names(RUN, replace(RUN, queries=0))
    assert "union-2-models" == names(*QUERIES, cached_run("deepseek-v3.2", 8192, num_queries=3))[-1]


def test_a_name_is_no_path_and_no_formula(tmp_path: Path) -> None:
    hostile = replace(RUN, preset={**RUN.preset, "name": "../$x^2$/\\N{evil}"})
    ((drawing,), _) = drawings_of([hostile])
    assert re.fullmatch(r"[\w.-]+", drawing.name)
    ((name, data),) = drawing.files(LIGHT, ("svg",))
    write_figures({name: data}, tmp_path)
    assert b"../$x^2$/\\N{evil}: bytes read" in data


def test_a_sweep_is_one_figure_and_another_setting_another() -> None:
    other = simulated("qwen3-32b", prefix_tokens=(1024, 8192), concurrency=(1, 4), with_break_even=True)
    assert 1 == sum(name.startswith("ttft") for name in names(*SWEEP))
    assert 2 == sum(name.startswith("ttft") for name in names(*SWEEP, *other))
    assert 2 == sum(name.startswith("break-even") for name in names(*other))


def test_without_break_even_there_is_no_map() -> None:
    without = simulated("qwen3-32b", prefix_tokens=(1024, 8192))
    assert ["ttft"] == [name.partition("-")[0] for name in names(*without)]


@pytest.mark.parametrize(
    ("record", "need"),
    [
        (SWEEP[0], r"1 simulate record: .*at least two prefix lengths.*--break-even"),
        (PROOF, "1 roundtrip record: no figure exists for this kind; of run"),
        (made_record([made_series()]), "1 bench record: .*restores of single pools"),
        (replace(RUN, results=()), "1 run record: .*a result"),
        (replace(small_record(), results=()), "1 replay record: .*simulate --trace"),
    ],
    ids=["simulate", "roundtrip", "bench", "run", "replay"],
)
def test_a_record_of_which_nothing_can_be_drawn_says_what_it_needs(record: object, need: str) -> None:
    with pytest.raises(InputError, match=f"(?s)nothing can be drawn.*{need}"):
        drawings_of([record])
    with pytest.raises(InputError) as refused:
        drawings_of([record])
    assert str(refused.value).count("at least two prefix lengths") <= 1
    drawings, lacking = drawings_of([record, RUN])
    assert 1 == len(drawings) == len(lacking)


def test_files_name_theme_and_format() -> None:
    ((drawing,), _) = drawings_of([RUN])
    light = dict(drawing.files(LIGHT, ("png", "svg")))
    assert [f"{drawing.name}.png", f"{drawing.name}.svg"] == list(light)
    dark = dict(drawing.files(DARK, ("svg",)))
    assert [f"{drawing.name}-dark.svg"] == list(dark)
    assert dark[f"{drawing.name}-dark.svg"] != light[f"{drawing.name}.svg"]


def test_figures_that_do_not_fit_are_a_message() -> None:
    never = made_series(pool="kv", seconds=(0.1, 0.1, 0.1))
    ((drawing,), _) = drawings_of([made_record([replace(never, seconds=(0.0, 0.1, 0.1))])])
    with pytest.raises(InputError, match="cannot be drawn, the record's figures do not fit"):
        list(drawing.files(LIGHT, ("svg",)))


def test_a_file_is_read_once_and_a_directory_whole(tmp_path: Path) -> None:
    path = write_record(RUN, tmp_path)
    write_record(QUERIES[0], tmp_path)
    assert 2 == len(load_records([path, tmp_path, path]))


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no record; hicache-bench run writes some"):
        load_records([tmp_path])
