from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from hicache_bench.records.schema import Amount, Check, PolicyResult, RunRecord
from hicache_bench.report.tables import plural, render_run
from hicache_bench.units import MIB
from tests.workflows.runs import PRESETS, cached_run, only_length, read_bytes, run_now

K, M = 1 << 10, 1 << 20
NOTHING_SAVED = "The saving is zero: every policy reads every byte"


def text_of(record: RunRecord, width: int = 80) -> str:
    console = Console(width=width, color_system=None, file=StringIO())
    console.print(render_run(record), highlight=False)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def widest(text: str) -> int:
    return max(cell_len(line) for line in text.splitlines())


def joined(text: str) -> str:
    """The text without the line breaks that only the width made."""
    return " ".join(text.split())


@pytest.mark.parametrize("lengths", [(8 * K,), (M,), (8 * K, M)], ids=["8k", "1M", "both"])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_fits_in_80_columns(preset: str, lengths: Sequence[int]) -> None:
    text = text_of(cached_run(preset, *lengths))
    assert widest(text) <= 80
    assert "…" not in text  # nothing is cut


@pytest.mark.parametrize("preset", PRESETS)
def test_every_figure_stands_there_in_full(preset: str) -> None:
    record = cached_run(preset, 8 * K)
    text = joined(text_of(record))
    for num_bytes in (*read_bytes(record), only_length(record).stored.num_bytes):
        assert f"{num_bytes:,}" in text
    assert f"{only_length(record).pages} pages" in text


@pytest.mark.parametrize(
    ("store", "tag", "other"), [("local", "measured", "counted"), ("count", "counted", "measured")]
)
def test_every_table_has_the_tag_of_its_figures(store: str, tag: str, other: str) -> None:
    text = text_of(cached_run("kitchen-sink", 1024, store=store))
    assert f"[{other}]" not in text
    headings = [line for line in text.splitlines() if "pool by pool" in line or "policies compared" in line]
    assert len(headings) >= 2
    assert all(line.endswith(f"[{tag}]") for line in headings)
    assert f"[{tag}]: bytes" in text
    assert ("moved and verified" if tag == "measured" else "counted, not moved") in text


def test_moved_and_counted_lengths_of_one_run_are_told_apart() -> None:
    record = cached_run("kitchen-sink", 512, 64 * K, store="local", memory_bytes=256 * M)
    text = text_of(record)
    assert widest(text) <= 80
    assert "512 tokens, 8 pages: moved and verified" in text
    assert "64k tokens, 1,024 pages: counted, not moved (needs" in text
    summary = text[text.index("all lengths") :].splitlines()
    rows = {
        line.split()[0]: line.split()[1]
        for line in summary
        if line.split()[1:2] in (["measured"], ["counted"])
    }
    assert {"512": "measured", "64k": "counted"} == rows


def test_a_single_length_has_no_summary() -> None:
    assert "all lengths" not in text_of(cached_run("kitchen-sink", 1024))


def test_a_dense_model_is_told_plainly_that_nothing_is_saved() -> None:
    said = {preset for preset in PRESETS if NOTHING_SAVED in joined(text_of(cached_run(preset, 8 * K)))}
    assert {"deepseek-v3", "deepseek-v3.2", "gemma-3-27b", "llama-3.1-8b"} <= said
    assert not said & {"deepseek-v4-flash", "gpt-oss-120b", "kimi-linear-48b-a3b", "llama-4-scout"}
    for preset in PRESETS:
        assert (preset in said) == (1 == len(set(read_bytes(cached_run(preset, 8 * K)))))


def test_reductions_stand_against_both_baselines() -> None:
    text = text_of(cached_run("gpt-oss-120b", 8 * K))
    row = next(line.split() for line in text.splitlines() if line.startswith("selective") and "%" in line)
    # 306,708,480 of 603,979,776 bytes; hit_policy reads the same.
    assert ["selective", "306,708,480", "-49.2%", "0%", "1.97x/1.00x"] == row[:5]
    scout = text_of(cached_run("llama-4-scout", 8 * K))
    row = next(line.split() for line in scout.splitlines() if line.startswith("selective") and "%" in line)
    assert ["selective", "402,653,184", "-75.0%", "-75.0%", "4.00x/4.00x"] == row[:5]


def test_a_logical_anchor_and_a_local_prefix_are_said() -> None:
    text = text_of(cached_run("deepseek", 1024, local_prefix_tokens=512))
    assert "logical anchor kv: no buffer, no key, 0 bytes" in text
    assert "local prefix of 512 tokens: what lies wholly in it is not read" in text
    assert "local prefix" in text[text.index("pool by pool") :]


def test_every_skipped_byte_has_its_reason() -> None:
    text = text_of(cached_run("kitchen-sink", 8 * K, store="local"))
    selective = text[text.index("selective, pool by pool") if "selective, pool by pool" in text else 0 :]
    swa = next(line for line in selective.splitlines() if line.startswith("swa") and " 0 B " not in line)
    assert "out of" in swa or "window" in swa
    mamba = next(line for line in selective.splitlines() if line.startswith("mamba") and " 0 B " not in line)
    assert "superseded" in mamba


def failing(record: RunRecord) -> RunRecord:
    (result,) = record.results
    bad = Check("dense at 1k tokens: pages that arrived", "192", "191", passed=False)
    return replace(record, status="failed", results=(replace(result, checks=(*result.checks, bad)),))


def test_a_failed_check_is_printed_with_what_was_expected_and_found() -> None:
    good = cached_run("kitchen-sink", 1024)
    text = joined(text_of(failing(good)))
    total = len(only_length(good).checks)
    assert f"{total} of {total + 1} checks passed" in text
    assert "FAILED dense at 1k tokens: pages that arrived: expected 192, found 191" in text
    assert "FAILED" not in text_of(good)


def with_policies(record: RunRecord, policies: tuple[PolicyResult, ...]) -> RunRecord:
    (result,) = record.results
    (rank,) = result.ranks
    return replace(record, results=(replace(result, ranks=(replace(rank, policies=policies),)),))


def test_time_is_the_median_of_the_samples() -> None:
    record = cached_run("kitchen-sink", 1024, store="local")
    (result,) = record.results
    (rank,) = result.ranks
    timed = tuple(replace(policy, seconds=(9.0, 0.25, 0.5)) for policy in rank.policies)
    text = text_of(with_policies(record, timed))
    assert 3 == text.count("500.0 ms")
    assert "median of 3 restores" in text


def test_losses_stand_beside_the_reasons() -> None:
    record = cached_run("kitchen-sink", 1024)
    dense, *others = only_length(record).ranks[0].policies
    lost = replace(
        dense,
        used_tokens=512,
        unused_tokens={"transfer_shortfall": 512},
        pools=(
            replace(dense.pools[0], missed=Amount(pages=1, objects=1, num_bytes=2048), degraded=True),
            *dense.pools[1:],
        ),
    )
    shown = text_of(with_policies(record, (lost, *others)))
    assert "2.00 KiB" in shown
    assert "degraded" in shown
    text = joined(shown)
    assert "dense: hit 1,024, used 512 tokens; 512 unused (transfer shortfall)" in text
    assert "hit_policy, selective: hit 1,024, used 1,024 tokens" in text


def test_warnings_and_notes_are_printed() -> None:
    record = cached_run("kitchen-sink", 128 * K, num_queries=1)
    assert "note: mla: 1 query selects" in text_of(record)
    (result,) = record.results
    warned = replace(record, results=(replace(result, warnings=("alignment 4096 > prompt 2048",)),))
    assert "warning: alignment 4096 > prompt 2048" in text_of(warned)


def test_text_that_looks_like_markup_is_printed_as_it_is() -> None:
    good = cached_run("kitchen-sink", 1024)
    (result,) = good.results
    bad = Check("[bold]name[/bold]", "[red]", "[/]", passed=False)
    text = text_of(replace(good, results=(replace(result, checks=(bad,)),)))
    assert "FAILED [bold]name[/bold]: expected [red], found [/]" in text


RANKS: list[tuple[str, dict[str, object]]] = [
    ("deepseek-v3", {"tp": 8}),
    ("deepseek-v4-flash", {"tp": 8, "pp": 4}),
    ("kitchen-sink", {"tp": 4, "pp": 2}),
    ("llama-3.1-70b", {"cp": "8:sharded", "profile": "by_kind", "tp": 8}),
    ("qwen3-235b-a22b", {"tp": 64}),
]


@pytest.mark.parametrize(("preset", "options"), RANKS, ids=str)
def test_ranks_fit_in_80_columns_and_every_figure_stands_there(
    preset: str, options: dict[str, object]
) -> None:
    record = cached_run(preset, 8 * K, 128 * K, **options)
    text = text_of(record)
    assert widest(text) <= 80
    assert "…" not in text
    for result in record.results:
        assert f"{result.stored.num_bytes:,} B" in text
        for index, policy in enumerate(result.policies):
            assert f"{policy.read.num_bytes:,}" in text
            by_rank = {rank.policies[index].read.num_bytes for rank in result.ranks}
            assert f"{min(by_rank):,}" in text
            assert f"{max(by_rank):,}" in text
    assert f"all lengths, bytes read by all {len(record.results[0].ranks)} ranks" in joined(text)


def test_a_table_stands_for_all_ranks_that_are_like_it() -> None:
    one = text_of(cached_run("deepseek-v3", 8 * K, tp=8))
    assert ["rank tp0, and 7 ranks like it"] == [
        line for line in one.splitlines() if line.startswith("rank ")
    ]
    # 61 layers on two stages: 30 and 31.
    two = text_of(cached_run("deepseek-v3", 8 * K, tp=2, pp=2))
    assert ["rank tp0 pp0, and 1 rank like it", "rank tp0 pp1, and 1 rank like it"] == [
        line for line in two.splitlines() if line.startswith("rank ")
    ]
    rows = [line.split() for line in two.splitlines() if line.startswith("dense ") or " to " in line]
    low, high = (layers * 1152 * 8 * K for layers in (30, 31))
    assert ["dense", f"{low:,}", f"{2 * (low + high):,}"] == rows[0][:3]
    assert ["to", f"{high:,}"] == rows[1]
    assert 2 == sum("pool by pool" in line for line in two.splitlines())


@pytest.mark.parametrize(
    ("preset", "options", "line"),
    [
        ("deepseek-v3", {"tp": 8}, "kv: 1 shard on 8 ranks; stored once"),
        ("llama-3.1-8b", {"tp": 8}, "kv: 8 shards on 8 ranks; stored once"),
        ("qwen3-235b-a22b", {"tp": 8}, "kv: 8 shards on 8 ranks; 4 KV heads, so stored 2 times"),
        ("kimi-linear-48b-a3b", {"tp": 2}, "mamba: 2 shards on 2 ranks; stored once"),
        # 8 groups of B and C on 16 ranks: conv states are padded, temporal ones are not.
        ("nemotron-h-8b", {"tp": 16}, "mamba: 16 shards on 16 ranks; padded to"),
        ("llama-3.1-8b", {"tp": 2, "cp": "2:replicated"}, "kv: 2 shards on 4 ranks; stored once"),
    ],
)
def test_how_often_a_pool_is_stored_is_said(preset: str, options: dict[str, object], line: str) -> None:
    lines = text_of(cached_run(preset, 8 * K, **options)).splitlines()
    pool, _, _ = line.partition(" ")
    (found,) = [shown for shown in lines if shown.startswith(pool + " ")]
    assert found.startswith(line)


def test_the_groups_of_a_deployment_are_said() -> None:
    text = text_of(cached_run("deepseek-v3", 8 * K, tp=4, dcp=2))
    assert "4 ranks: TP 4, DCP 2; here one works after the other" in text
    assert "pages of 128 tokens" in text
    text = text_of(cached_run("llama-3.1-8b", 8 * K, tp=2, pp=2, cp="2:replicated"))
    assert "8 ranks: TP 2, PP 2, CP replicated 2" in text
    assert "ranks:" not in text_of(cached_run("llama-3.1-8b", 8 * K))


def test_the_time_of_ranks_is_that_of_the_slowest() -> None:
    record = cached_run("kitchen-sink", 1024, store="local", tp=2)
    (result,) = record.results
    ranks = [
        replace(rank, policies=tuple(replace(policy, seconds=(seconds,)) for policy in rank.policies))
        for rank, seconds in zip(result.ranks, (0.25, 0.5), strict=True)
    ]
    text = text_of(replace(record, results=(replace(result, ranks=tuple(ranks)),)))
    assert 3 == text.count("500.0 ms")
    assert "250.0 ms" not in text
    assert "headroom" not in text
    alone = text_of(cached_run("kitchen-sink", 1024, store="local"))
    assert 1 == alone.count("headroom = bytes of that policy / bytes read")


def test_one_is_not_many() -> None:
    assert ["0 pools", "1 pool", "1,024 pools"] == [plural(number, "pool") for number in (0, 1, 1024)]
    text = text_of(cached_run("llama-3.1-8b", 64))
    assert ", 1 pool\n" in text
    assert "64 tokens, 1 page: " in text


def test_a_length_that_is_moved_in_part_tells_which_rows_were() -> None:
    text = text_of(run_now("kitchen-sink", 16 * K, store="local", memory_bytes=180 * MIB))
    assert "256 pages: counted; hit_policy and selective moved and verified" in joined(text)
    assert "MiB may be taken; moved with" in joined(text)
    assert "policies compared (dense [counted], hit_policy and selective [measured])" in text
    assert "dense, pool by pool [counted]" in text
    assert "hit_policy, selective (they agree), pool by pool [measured]" in text
    rows = {line.split()[0]: line.split()[-1] for line in text.splitlines() if "%" in line and "x/" in line}
    assert ["dense"] == [policy for policy, rate in rows.items() if rate == "-"]
    assert ("time is the median of 1 restore" in text, widest(text) <= 80) == (True, True)
    assert all(f"[{tag}]: bytes" in text for tag in ("measured", "counted"))


def test_policies_that_agree_have_tables_apart_where_one_was_moved_and_one_was_counted() -> None:
    record = cached_run("llama-3.1-8b", 64)
    (result,) = record.results
    (rank,) = result.ranks
    dense, hit, selective = rank.policies
    policies = (dense, replace(hit, evidence="measured"), replace(selective, evidence="measured"))
    text = text_of(with_policies(record, policies))
    assert "dense, pool by pool [counted]" in text
    assert "hit_policy, selective (they agree), pool by pool [measured]" in text


def test_the_name_of_a_pool_is_broken_at_its_underscores_only() -> None:
    text = text_of(run_now("deepseek", 8 * K, local_prefix_tokens=4 * K))
    assert "local prefix, out" in text  # a long last column takes nothing from the first
    names = [line.split()[0] for line in text.splitlines() if line.startswith(("deepseek_v4_c4_", "_"))]
    assert {"deepseek_v4_c4_indexer", "deepseek_v4_c4_state", "_state"} == set(names)


def test_pages_have_separators_and_a_counted_run_says_what_headroom_is() -> None:
    text = text_of(cached_run("llama-3.1-8b", M))
    row = next(line.split() for line in text.splitlines() if line.startswith("kv"))
    pages = f"{only_length(cached_run('llama-3.1-8b', M)).pages:,}"
    assert [pages] * 3 == row[1:4]
    assert "," in pages
    assert "headroom = bytes of that policy / bytes read" in text


def test_what_a_lookup_of_the_endpoint_asks_stands_beside_what_a_lookup_of_all_asks() -> None:
    text = text_of(cached_run("gpt-oss-120b", 8 * K))
    assert "lookup asks 512 keys\n[counted] a lookup that only looks for the endpoint asks 260 keys" in text
    scout = text_of(cached_run("llama-4-scout", 8 * K))
    assert "[counted] a lookup that only looks for the endpoint of dense and hit_policy asks" in scout
    assert "[counted] a lookup that only looks for the endpoint of selective asks" in scout
