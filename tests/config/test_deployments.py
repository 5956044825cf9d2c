from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import yaml

from hicache_bench.config.catalogue import list_presets, presets_folder
from hicache_bench.config.deployments import (
    list_links,
    list_systems,
    load_compute,
    load_link,
    load_system,
    parse_link,
    parse_system,
)
from hicache_bench.errors import ConfigError, PresetNotFoundError
from hicache_bench.links.system import PrefillFit

LINKS = [entry.name for entry in list_links()]
SYSTEMS = [entry.name for entry in list_systems()]
PREFILL = Path(__file__).parents[1] / "golden" / "prefill.csv"

# Names of aiconfigurator's models.
MODELS = {
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "Qwen/Qwen3.5-35B-A3B": "qwen3.5-35b-a3b",
    "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3.2": "deepseek-v3.2",
    "deepseek-ai/DeepSeek-V4-Flash": "deepseek-v4-flash",
    "sgl-project/DeepSeek-V4-Flash-FP8": "deepseek-v4-flash",
    "meta-llama/Meta-Llama-3.1-70B": "llama-3.1-70b",
    "meta-llama/Meta-Llama-3.1-8B": "llama-3.1-8b",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "openai/gpt-oss-20b": "gpt-oss-20b",
    "zai-org/GLM-5-FP8": "glm-5",
}


def prefill_rows() -> dict[tuple[str, str], list[tuple[int, int, float]]]:
    """``(tokens, prefix, seconds)`` by system and preset."""
    rows = defaultdict(list)
    with PREFILL.open() as file:
        for row in csv.DictReader(file):
            if row["model"] in MODELS and row["backend"].startswith("sglang"):
                key = row["system"].removesuffix("_sxm"), MODELS[row["model"]]
                rows[key].append((int(row["isl"]), int(row["prefix"]), float(row["ttft_ms"]) / 1e3))
    return dict(rows)


ROWS = prefill_rows()
FITS = {(name, model): fit for name in SYSTEMS for model, fit in load_system(name).prefill.items()}


def seconds(fit: PrefillFit, tokens: int, prefix: int) -> float:
    return fit.c0 + fit.c1 * (tokens - prefix) + fit.c2 * (tokens**2 - prefix**2)


# --- what ships -----------------------------------------------------------------------------------------


def test_every_link_and_system_of_the_issue_ships() -> None:
    assert {"rdma-4x200g", "rdma-8x400g", "efa-p5", "efa-p5en", "efa-p6-b300", "tcp-100gbe", "tcp-25gbe"} | {
        "nvme-gen3", "nvme-gen4", "s3",
    } == set(LINKS)  # fmt: skip
    assert {"a800", "h800", "h100", "h200", "b200"} == set(SYSTEMS)


@pytest.mark.parametrize("name", LINKS)
def test_a_link_is_what_its_file_is_named(name: str) -> None:
    assert name == load_link(name).name
    assert all(constant.source for constant in load_link(name).constants)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_is_what_its_file_is_named(name: str) -> None:
    system = load_system(name.upper())
    assert (name, 8) == (system.name, system.gpus)
    assert set(system.prefill) <= {preset.name for preset in list_presets()}


def test_aliases_lead_to_their_file() -> None:
    for entry in list_links():
        assert {entry.name} <= {load_link(alias).name for alias in entry.aliases} | {entry.name}
    assert ("rdma-8x400g", "h200") == (load_link("roce-8x400g").name, load_system("8xh200").name)


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("rdma-4x200g", 87e9),
        ("rdma-8x400g", 190e9),
        ("efa-p5", 63.05e9),  # a read, host to host, and not the 382 GB/s between GPUs
        ("efa-p5en", 212.18e9),
        ("efa-p6-b300", 270.47e9),
        ("tcp-100gbe", 10e9),
        ("tcp-25gbe", 2.5e9),
        ("nvme-gen4", 7e9),
        ("nvme-gen3", 3.5e9),
        ("s3", 1e9),
    ],
)
def test_rates_are_those_that_were_published(name: str, rate: float) -> None:
    assert rate == load_link(name).bytes_per_second(1 << 26)


def test_rates_of_systems_are_those_that_were_published() -> None:
    a800, h100, b200 = (load_system(name) for name in ("a800", "h100", "b200"))
    assert (312e12, 989e12, 2250e12) == tuple(system.flops.value for system in (a800, h100, b200))
    assert (0.38, 0.45) == (a800.mfu.value, h100.mfu.value)
    # FAST'25 table 1; nvbandwidth's figures on PCIe 4.0 and 5.0.
    assert (128e9, 26e9, 56e9) == (a800.h2d_node.value, a800.h2d.value, h100.h2d.value)


@pytest.mark.parametrize("name", LINKS + SYSTEMS)
def test_what_says_that_it_is_an_estimate_has_a_band(name: str) -> None:
    if name in LINKS:
        constants = load_link(name).constants
    else:
        system = load_system(name)
        constants = (system.flops, system.mfu, system.h2d, system.h2d_node, system.prefill_scale)
    estimates = [constant for constant in constants if "estimate" in constant.source]
    assert [constant.name for constant in estimates if constant.low is None and constant.high is None] == []


def test_small_objects_are_slow_on_efa() -> None:
    link = load_link("efa-p5en")
    assert (96.87e9, 203.88e9, 212.18e9) == tuple(
        link.bytes_per_second(size << 10) for size in (64, 128, 256)
    )


# --- prefill fits against the rows that they were made of -----------------------------------------------


@pytest.mark.parametrize("key", FITS, ids="-".join)
def test_a_fit_is_as_good_as_it_says(key: tuple[str, str]) -> None:
    fit = FITS[key]
    errors = [
        abs(seconds(fit, tokens, 0) / expected - 1) for tokens, prefix, expected in ROWS[key] if not prefix
    ]
    assert max(errors) <= (5e-4 if fit.max_error is None else fit.max_error + 1e-3)
    if fit.max_error is not None:
        assert fit.num_rows == len(errors)


@pytest.mark.parametrize("key", [key for key, fit in FITS.items() if fit.max_error is not None], ids="-".join)
def test_a_fit_is_the_least_squares_of_relative_errors(key: tuple[str, str]) -> None:
    rows = [(tokens, expected) for tokens, prefix, expected in ROWS[key] if not prefix]
    tokens, expected = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    matrix = np.stack([np.ones_like(tokens), tokens, tokens**2], axis=1) / expected[:, None]
    best, *_ = np.linalg.lstsq(matrix, np.ones_like(expected), rcond=None)
    fit = FITS[key]
    assert best == pytest.approx([fit.c0, fit.c1, fit.c2], rel=1e-3)


WITH_PREFIX = [
    (key, *row) for key, rows in ROWS.items() for row in rows
    if row[1] and key in FITS and (FITS[key].max_error or 1) <= 0.03
]  # fmt: skip


def test_there_are_rows_with_a_prefix() -> None:
    assert 8 == len(WITH_PREFIX)
    assert {("h200", "deepseek-v3"), ("h200", "gpt-oss-120b")} == {key for key, *_ in WITH_PREFIX}


@pytest.mark.parametrize(("key", "tokens", "prefix", "expected"), WITH_PREFIX)
def test_behind_a_prefix_a_fit_is_within_5_percent(
    key: tuple[str, str], tokens: int, prefix: int, expected: float
) -> None:
    assert expected == pytest.approx(seconds(FITS[key], tokens, prefix), rel=0.05)


# --- compute dimensions ---------------------------------------------------------------------------------


def test_every_preset_has_compute_dimensions() -> None:
    assert {preset.name for preset in list_presets()} == set(load_compute())


def test_widths_are_those_of_transformers() -> None:
    mapping = pytest.importorskip("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    for name, kind in {
        "deepseek-v4-flash": "deepseek_v4", "gpt-oss-120b": "gpt_oss", "glm-5": "glm_moe_dsa",
        "minimax-m2": "minimax_m2", "jamba-1.5-mini": "jamba", "kimi-linear-48b-a3b": "kimi_linear",
        "llama-4-scout": "llama4_text", "mistral-7b-v0.3": "mistral", "step-3.5-flash": "step3p5",
        "ministral-3-8b": "ministral3", "qwen3-next-80b-a3b": "qwen3_next", "nemotron-h-8b": "nemotron_h",
        "qwen3.5-35b-a3b": "qwen3_5_moe_text", "mimo-v2-flash": "mimo_v2_flash", "deepseek-v3": "deepseek_v3",
    }.items():  # fmt: skip
        if kind in mapping:
            assert mapping[kind]().hidden_size == load_compute()[name].hidden_size, name


# --- faults ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rdma-8x40g", "no link is named 'rdma-8x40g'; did you mean 'rdma-8x400g'"),
        ("zzz", "known: efa-p5.*measured:FILE"),
    ],
)
def test_an_unknown_link_is_told_the_nearest(name: str, message: str) -> None:
    with pytest.raises(PresetNotFoundError, match=message):
        load_link(name)


def test_an_unknown_system_is_told_the_nearest() -> None:
    with pytest.raises(PresetNotFoundError, match="no system is named 'h20'; did you mean 'h200'"):
        load_system("h20")


def test_a_file_of_ones_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text((presets_folder("links") / "s3.yaml").read_text().replace("name: s3", "name: mine"))
    assert "mine" == load_link(str(path)).name
    with pytest.raises(ConfigError, match="no such file"):
        load_link(str(tmp_path / "gone.yaml"))


def changed(kind: str, name: str, old: str, new: str) -> bytes:
    text = (presets_folder(kind) / f"{name}.yaml").read_text()
    assert old in text
    return text.replace(old, new, 1).encode()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "value: 4e11",
            "value: -4e11",
            r"x.yaml:8:3: line_rate.value: given -400000000000.0; allowed: at le",
        ),
        ("value: 4e11", "value: .nan", r"x.yaml:8:10: line_rate.value: given .nan; allowed: finite numbers"),
        ("value: 4e11", "value: nan", r"line_rate.value: given 'nan' \(text\); allowed: a number"),
        ("value: 4e11", "value: fast", r"line_rate.value: given 'fast' \(text\); allowed: a number"),
        ("value: 4e11", "value: 1e9", "above its line rate of 1e"),
        ("low: 9.0275e10", "low: 1.91e11", r"bandwidth\[0\]: given a map; allowed: low 1.91e\+11 <= value"),
        (
            "object_bytes: 65536",
            "object_bytes: 1.5",
            r"bandwidth\[0\].object_bytes: given 1.5; allowed: a wh",
        ),
        (
            "object_bytes: 65536",
            "object_bytes: 0",
            r"bandwidth\[0\].object_bytes: given 0; allowed: at least",
        ),
        ("op_seconds:", "op_second:", r"op_second: unknown field; .*did you mean 'op_seconds'"),
        ("op_seconds:", "op_second:", r"op_seconds: missing \(seconds of a store call"),
        ('source: "8 x 400 Gb/s"', 'source: " "', "line_rate.source: given ' '.*not blank"),
        ('  source: "8 x 400 Gb/s"\n', "", r"line_rate.source: missing \(where it comes from\)"),
        ("schema: 1", "schema: 2", "schema: given 2; allowed: 1"),
        ("schema: 1", "[", "not YAML"),
    ],
)
def test_a_fault_of_a_link_is_told_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_link(changed("links", "rdma-8x400g", old, new), file="x.yaml")


def test_every_fault_is_told_at_once() -> None:
    content = changed("links", "rdma-8x400g", "value: 4e11", "value: x").replace(b"summary:", b"summery:")
    with pytest.raises(ConfigError, match=r"x\.yaml has 3 problems") as caught:
        parse_link(content, file="x.yaml")
    assert all(part in str(caught.value) for part in ("line_rate.value", "summery", "summary: missing"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gpus: 8", "gpus: 0", "gpus: given 0; allowed: at least 1"),
        ("c0_seconds: 0.030843", "c0_seconds: -1", r"prefill.deepseek-v3.c0_seconds: given -1; allowed"),
        (
            "c0_seconds: 0.030843",
            "c_seconds: 1",
            r"prefill.deepseek-v3.c_seconds: unknown field; .*did you m",
        ),
        ("max_error: 0.0011", "max_err: 1", r"prefill.deepseek-v3.max_error: missing \(largest relative"),
        ("value: 9.89e14", "value: 0", "peak of a GPU, bf16 must be above zero"),
        ("  deepseek-v3:", "  DeepSeek V3:", "lower-case letters"),
    ],
)
def test_a_fault_of_a_system_is_told_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_system(changed("systems", "h200", old, new), file="x.yaml")


@pytest.mark.parametrize("content", [b"", b"- 1", b"\xff", yaml.safe_dump("x").encode()])
def test_what_is_no_map_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml"):
        parse_link(content, file="x.yaml")
