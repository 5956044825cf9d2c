from __future__ import annotations

import pytest

from hicache_bench.cli.lists import number, one_of, optional, values_of, whole
from hicache_bench.errors import InputError


def test_values_are_taken_once_and_in_order() -> None:
    assert (8, 1, 2) == values_of("--tp", "8, 1,2,8", whole("--tp"))
    assert ((None,), (3,)) == (optional("--tp", None, int), optional("--tp", "3", int))


@pytest.mark.parametrize("text", ["", ",", "1,", "1,,2"])
def test_an_empty_value_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--tp .* has an empty value"):
        values_of("--tp", text, int)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "²", "1e3", "9" * 13])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a whole number of at least 1"):
        whole("--tp")(text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "x", "1e999"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a finite number above 0"):
        number("--active-parameters")(text)
    assert 37e9 == number("--active-parameters")("37e9")


def test_an_unknown_name_is_told_the_nearest() -> None:
    parse = one_of("--policy", {"dense": 1, "selective": 2})
    assert 2 == parse("selective")
    with pytest.raises(
        InputError, match=r"--policy 'selectiv' is unknown; did you mean 'selective'\? allowed"
    ):
        parse("selectiv")
    with pytest.raises(InputError, match="'zzz' is unknown; allowed: dense, selective"):
        parse("zzz")
