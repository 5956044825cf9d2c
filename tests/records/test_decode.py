from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pytest

from hicache_bench.errors import InputError
from hicache_bench.records.decode import decode
from hicache_bench.records.judge import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    number: int
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    share: float
    flag: bool
    inner: tuple[Inner, ...]
    pair: tuple[int, str]
    named: Mapping[str, int | str]
    anything: Any
    word: Literal["a", "b"]
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Impossible:
    when: complex


GOOD: dict[str, Any] = {
    "share": 1,
    "flag": True,
    "inner": [{"number": 1, "text": None}, {"number": 2, "text": "x"}],
    "pair": [1, "y"],
    "named": {"a": 1, "b": "c"},
    "anything": [{}, None],
    "word": "a",
    "outcome": "not comparable",
}


def test_plain_data_becomes_what_wrote_it() -> None:
    outer = decode(Outer, GOOD)
    assert (Inner(number=1, text=None), Inner(number=2, text="x")) == outer.inner
    assert outer.outcome is Outcome.NOT_COMPARABLE
    again = asdict(outer)
    assert {**GOOD, "inner": tuple(GOOD["inner"]), "pair": (1, "y")} == again
    assert outer == decode(Outer, again)


BROKEN: dict[str, tuple[Any, str]] = {
    "a text for a number": ({"share": "1"}, "share: expected a number, found '1'"),
    "true for a number": ({"share": True}, "share: expected a number, found True"),
    "a number for true": ({"flag": 1}, "flag: expected true or false, found 1"),
    "a fraction": ({"inner": [{"number": 1.5, "text": None}]}, r"inner\[0\].number: .* whole number"),
    "true for a whole number": ({"pair": [True, "y"]}, r"pair\[0\]: expected a whole number, found True"),
    "an object for a list": ({"inner": {}}, "inner: expected a list, found an object"),
    "a list for an object": ({"named": []}, "named: expected an object, found a list"),
    "a text for an object": ({"inner": ["x"]}, r"inner\[0\]: expected an object, found 'x'"),
    "a missing field": ({"inner": [GOOD["inner"][0], {"number": 1}]}, r"inner\[1\]: fields missing: text"),
    "an unknown field": ({"inner": [{**GOOD["inner"][0], "x": 1}]}, r"inner\[0\]: unknown fields: x"),
    "a pair of three": ({"pair": [1, "y", 2]}, "pair: expected 2 entries, found 3"),
    "none of two": ({"named": {"a": None}}, "named.a: expected a text, found None|named.a: .*whole number"),
    "another word": ({"word": "c"}, "word: expected one of a, b, found 'c'"),
    "another outcome": ({"outcome": "good"}, "outcome: expected one of pass, improved"),
    "a list for an outcome": ({"outcome": []}, "outcome: expected one of pass, .* found a list"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode(Outer, {**GOOD, **change})


@pytest.mark.parametrize("data", [None, [], "text", 1])
def test_what_is_no_object_is_refused(data: object) -> None:
    with pytest.raises(InputError, match="the record: expected an object"):
        decode(Outer, data)


def test_long_values_are_cut() -> None:
    with pytest.raises(InputError) as caught:
        decode(Outer, {**GOOD, "share": "x" * 1000})
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_left_to_the_reader(number: float) -> None:
    outer = decode(Outer, {**GOOD, "inner": [{"number": number, "text": None}], "share": number})
    assert not math.isfinite(outer.share)
    assert not math.isfinite(outer.inner[0].number)


@pytest.mark.parametrize("number", [2**63, -(2**63), 10**400])
def test_a_count_beyond_all_bounds_is_refused(number: int) -> None:
    """No arithmetic with it is safe: a float cannot even hold it."""
    with pytest.raises(InputError, match=r"inner\[0\]\.number: expected a whole number below 2\*\*63, found"):
        decode(Outer, {**GOOD, "inner": [{"number": number, "text": None}]})


@pytest.mark.parametrize("number", [1e150, -1e308, 10**400])
def test_a_figure_beyond_all_bounds_is_refused(number: float) -> None:
    with pytest.raises(InputError, match=r"share: expected a number below 1e\+150, found"):
        decode(Outer, {**GOOD, "share": number})


def test_a_type_that_json_has_no_word_for_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match=r"cannot have a field of type .*complex"):
        decode(Impossible, {"when": 1})
