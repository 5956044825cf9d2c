from __future__ import annotations

import pytest

from tests.promql import selectors


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("up", ["up"]),
        ('rate(a_total{x=~"b|c", y="}"}[5m])', ['a_total{x=~"b|c", y="}"}']),
        ("sum by (le, pool) (a) / on (pool) group_left (x) sum(b) by (pool)", ["a", "b"]),
        (
            'histogram_quantile(.9, sum by (le) (rate(a_bucket{i="1"}[$__rate_interval])))',
            ['a_bucket{i="1"}'],
        ),
        ("(sum(a) or vector(0)) / (sum(b) + 1e3)", ["a", "b"]),
        ('label_replace(a, "x", "b{c}", "y", "(.*)")', ["a"]),
        ("a offset 5m > bool b and c", ["a", "b", "c"]),
    ],
)
def test_selectors(expression: str, expected: list[str]) -> None:
    found = selectors(expression)
    assert expected == [selector for _, selector in found]
    assert [selector.partition("{")[0] for selector in expected] == [name for name, _ in found]
