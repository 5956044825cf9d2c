from __future__ import annotations

from typing import Any

import pytest

from hicache_bench.report.grafana import Panel, Query, Row, dashboard, datasource_variable, label_variable


def panel(kind: str = "stat", width: int = 8, height: int = 4, **fields: Any) -> Panel:
    return Panel(
        title=f"{kind} {width}",
        text="What it shows.",
        kind=kind,
        unit="bytes",
        queries=(Query("a", "one"), Query("b", "two")),
        width=width,
        height=height,
        **fields,
    )


def made(*rows: Row) -> list[dict[str, Any]]:
    return list(dashboard("uid", "title", "text", (datasource_variable(),), rows)["panels"])


def test_panels_flow_into_the_grid() -> None:
    panels = made(
        Row("first", (panel(width=12, height=4), panel(width=12, height=6), panel(width=20, height=3))),
        Row("second", (panel(width=24),)),
    )
    places = [tuple(found["gridPos"][side] for side in "xywh") for found in panels]
    expected = [(0, 0, 24, 1), (0, 1, 12, 4), (12, 1, 12, 6), (0, 7, 20, 3), (0, 10, 24, 1), (0, 11, 24, 4)]
    assert expected == places
    assert [1, 2, 3, 4, 5, 6] == [found["id"] for found in panels]


@pytest.mark.parametrize(("kind", "instant"), [("stat", True), ("bargauge", True), ("timeseries", False)])
def test_graphs_ask_for_a_range_and_the_others_for_an_instant(kind: str, instant: bool) -> None:
    _, found = made(Row("row", (panel(kind),)))
    assert [("A", "a", "one"), ("B", "b", "two")] == [
        (target["refId"], target["expr"], target["legendFormat"]) for target in found["targets"]
    ]
    assert {(instant, not instant)} == {(target["instant"], target["range"]) for target in found["targets"]}


def test_limits_and_stacking() -> None:
    _, warned, stacked = made(
        Row("row", (panel(maximum=1, warn_above=0.5), panel("timeseries", stacked=True)))
    )
    defaults = warned["fieldConfig"]["defaults"]
    assert (1, [("green", None), ("red", 0.5)]) == (
        defaults["max"],
        [(step["color"], step["value"]) for step in defaults["thresholds"]["steps"]],
    )
    defaults = stacked["fieldConfig"]["defaults"]
    assert "max" not in defaults
    assert "normal" == defaults["custom"]["stacking"]["mode"]


def test_every_query_follows_the_data_source_of_the_dashboard() -> None:
    _, found = made(Row("row", (panel(),)))
    variable = label_variable("run", "Run", "up", "instance")
    places = [found, *found["targets"], variable]
    assert {"${datasource}"} == {place["datasource"]["uid"] for place in places}
    assert "label_values(up, instance)" == variable["query"]["query"]
