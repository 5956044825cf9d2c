from __future__ import annotations

from copy import deepcopy
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


NAMES: dict[str, set[str]] = {
    "stat": {
        "reduceOptions", "text", "orientation", "graphMode", "colorMode", "justifyMode", "textMode",
        "wideLayout", "showPercentChange", "percentChangeColorMode",
    },
    "bargauge": {
        "reduceOptions", "text", "orientation", "displayMode", "valueMode", "namePlacement", "showUnfilled",
        "sizing", "minVizWidth", "minVizHeight", "maxVizHeight", "legend",
    },
    "timeseries": {
        "legend", "tooltip", "orientation", "timezone", "annotations", "timeCompare",
        "disableKeyboardEvents",
    },
    "legend": {
        "displayMode", "placement", "showLegend", "asTable", "isVisible", "sortBy", "sortDesc", "width",
        "calcs", "limit", "overflow", "enableFacetedFilter", "facetedFilterPinned",
    },
    "tooltip": {"mode", "sort", "maxWidth", "maxHeight", "hideZeros"},
    "reduceOptions": {"values", "limit", "calcs", "fields"},
    "custom": {
        "drawStyle", "lineWidth", "fillOpacity", "showPoints", "stacking", "gradientMode",
        "lineInterpolation", "lineStyle", "barAlignment", "barWidthFactor", "spanNulls", "insertNulls",
        "pointSize", "axisPlacement", "axisLabel", "axisWidth", "axisSoftMin", "axisSoftMax",
        "axisGridShow", "axisColorMode", "axisBorderShow", "axisCenteredZero", "scaleDistribution",
        "hideFrom", "thresholdsStyle", "transform", "fillBelowTo", "lineColor", "fillColor",
    },
    "defaults": {
        "unit", "min", "max", "decimals", "noValue", "color", "mappings", "thresholds", "custom",
        "displayName", "description", "links", "filterable", "actions",
    },
    "targets": {
        "refId", "datasource", "editorMode", "expr", "legendFormat", "instant", "range", "exemplar",
        "format", "hide", "interval",
    },
}  # fmt: skip
"""What Grafana 13.2 knows of each panel: the types of ``@grafana/schema`` and ``@grafana/prometheus``, which
Grafana generates from its own schema (Apache 2.0)."""

VALUES: dict[str, set[str]] = {
    "unit": {"bytes", "binBps", "percentunit", "short", "s"},
    "colorMode": {"value", "background", "background_solid", "none"},
    "graphMode": {"none", "line", "area"},
    "justifyMode": {"auto", "center"},
    "orientation": {"auto", "vertical", "horizontal"},
    "textMode": {"auto", "value", "value_and_name", "name", "none"},
    "valueMode": {"color", "hidden", "text"},
    "bargauge.displayMode": {"basic", "lcd", "gradient"},
    "legend.displayMode": {"list", "table", "hidden"},
    "placement": {"bottom", "right"},
    "tooltip.mode": {"single", "multi", "none"},
    "tooltip.sort": {"asc", "desc", "none"},
    "stacking.mode": {"none", "normal", "percent"},
    "thresholds.mode": {"absolute", "percentage"},
    "color.mode": {"thresholds", "palette-classic"},
    "drawStyle": {"line", "bars", "points"},
    "showPoints": {"auto", "always", "never"},
    "calcs": {"lastNotNull", "last", "min", "max", "mean", "sum"},
}
"""Of the same types, and units, colours and calculations from the registries of ``@grafana/data`` 13.2.3."""


def strangers(found: Any, place: str, inside: str = "") -> list[str]:
    """Names and values that Grafana does not know, at any depth."""
    if isinstance(found, list):
        return [stranger for inner in found for stranger in strangers(inner, place, inside)]
    if not isinstance(found, dict):
        allowed = VALUES.get(f"{inside}.{place}", VALUES.get(place))
        return [f"{place}: {found}"] if allowed is not None and found not in allowed else []
    unknown = [f"{place}.{name}" for name in found if place in NAMES and name not in NAMES[place]]
    return unknown + [stranger for name, inner in found.items() for stranger in strangers(inner, name, place)]


def unknown_to_grafana(found: dict[str, Any]) -> list[str]:
    return (
        strangers(found["options"], found["type"])
        + strangers(found["fieldConfig"]["defaults"], "defaults")
        + strangers(found["targets"], "targets")
    )


@pytest.mark.parametrize("kind", ["stat", "bargauge", "timeseries"])
def test_grafana_knows_every_name_and_value_of_a_panel(kind: str) -> None:
    _, found = made(Row("row", (panel(kind, stacked=True, warn_above=1, maximum=2),)))
    assert [] == unknown_to_grafana(found)


def test_a_name_or_value_that_grafana_does_not_know_is_found() -> None:
    _, made_once = made(Row("row", (panel("timeseries"),)))
    found = deepcopy(made_once)
    found["options"]["legend"] |= {"calcs": ["latest"], "position": "bottom"}
    found["fieldConfig"]["defaults"] |= {"unit": "bytes/s", "custom": {"showPoint": "auto"}}
    found["targets"][0]["expression"] = "up"
    expected = ["legend.position", "calcs: latest", "unit: bytes/s", "custom.showPoint", "targets.expression"]
    assert sorted(expected) == sorted(unknown_to_grafana(found))
