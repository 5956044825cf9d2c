"""The catalogue, its names, and the page in docs that repeats it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hicache_bench.errors import InputError
from hicache_bench.workflows.roundtrip.fault_catalogue import FAULT_CASES, chosen_cases
from hicache_bench.workflows.roundtrip.real_faults import REAL_FAULTS

PAGE = Path(__file__).parents[3] / "docs" / "faults.md"
CASES_OF_THE_ISSUE = {f"E{number}" for number in ("05", 14, 20, 26, 27, 28, 33, 49, 50, 53, 54, 56, 58, 60)}


def test_page_repeats_the_catalogues() -> None:
    expected = [
        f"| `{case.name}` | {case.breaks} | {case.holds} | {', '.join(case.cases)} | {case.seen_by} |"
        for case in FAULT_CASES
    ]
    expected += [
        f"| `{name}` | {real.breaks} | {real.holds} | {', '.join(real.cases)} | {real.limit_seconds:g} s |"
        for name, real in REAL_FAULTS.items()
    ]
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert expected == rows


def test_names_are_unique_and_every_case_is_stood_for() -> None:
    assert len(FAULT_CASES) == len({case.name for case in FAULT_CASES})
    named = {name for case in FAULT_CASES for name in case.cases}
    assert CASES_OF_THE_ISSUE == named


def test_all_and_some() -> None:
    assert FAULT_CASES == chosen_cases(["all"])
    assert FAULT_CASES == chosen_cases(["store-full", "all"])
    names = [case.name for case in chosen_cases(["store-full", "evicted-before-read", "store-full"])]
    assert ["evicted-before-read", "store-full"] == names


def test_unknown_name_is_told_with_what_is_near_and_allowed() -> None:
    with pytest.raises(
        InputError, match=r"'fliped-bit' \(did you mean 'flipped-bit'\?\); allowed: all, evicted"
    ):
        chosen_cases(["all", "fliped-bit"])
    with pytest.raises(InputError, match=r"unknown fault 'zzz'; allowed"):
        chosen_cases(["zzz"])
    with pytest.raises(InputError, match="no fault was named; use all"):
        chosen_cases([])
