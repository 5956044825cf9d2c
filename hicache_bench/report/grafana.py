"""Grafana's classic dashboard model, as far as one dashboard needs it: variables, rows, panels in a grid.

Field names and values are those of schema version 41 (Grafana 11.6; later ones migrate it):
https://grafana.com/docs/grafana/latest/visualizations/dashboards/build-dashboards/view-dashboard-json-model/
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = 41
GRID_COLUMNS = 24
_ROW_HEIGHT = 1
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression; ``legend`` may name labels as ``{{label}}``."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. ``kind`` is ``stat`` and ``bargauge`` (latest values) or ``timeseries``.

    ``unit`` is Grafana's name for it: ``bytes`` and ``binBps`` (powers of 1,024), ``percentunit``, ``s``, ...
    ``warn_above`` colours what is higher; ``stacked`` adds the series of a graph up.
    """

    title: str
    text: str
    kind: str
    unit: str
    queries: tuple[Query, ...]
    width: int
    height: int = 8
    maximum: float | None = None
    warn_above: float | None = None
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A titled row of panels, which flow from left to right."""

    title: str
    panels: tuple[Panel, ...]


def datasource_variable() -> dict[str, Any]:
    """Which Prometheus is asked; every panel follows it, so that the file imports anywhere."""
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
    }


def label_variable(name: str, label: str, metric: str, source: str) -> dict[str, Any]:
    """A choice among the values of label ``source`` of ``metric``. All includes series without it."""
    query = f"label_values({metric}, {source})"
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": "Variable"},
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "hide": 0,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
    }


def dashboard(
    uid: str, title: str, text: str, variables: Sequence[dict[str, Any]], rows: Iterable[Row]
) -> dict[str, Any]:
    """The whole document, ready for Dashboards → New → Import."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"h": _ROW_HEIGHT, "w": GRID_COLUMNS, "x": 0, "y": top},
                "panels": [],
            }
        )
        top += _ROW_HEIGHT
        left = height = 0
        for panel in row.panels:
            if left + panel.width > GRID_COLUMNS:
                left, top, height = 0, top + height, 0
            position = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            panels.append({"id": len(panels) + 1, "gridPos": position, **_panel(panel)})
            left += panel.width
            height = max(height, panel.height)
        top += height
    return {
        "uid": uid,
        "title": title,
        "description": text,
        "tags": ["kv-cache", "mooncake"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "id": None,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-15m", "to": "now"},
        "timepicker": {},
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": list(variables)},
        "panels": panels,
    }


def _panel(panel: Panel) -> dict[str, Any]:
    graph = panel.kind == "timeseries"
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "noValue": "-",
        "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
        "mappings": [],
        "thresholds": {"mode": "absolute", "steps": _thresholds(panel.warn_above)},
    }
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    if graph:
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 0,
            "showPoints": "auto",
            "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
        }
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [
            {
                "refId": letter,
                "datasource": _DATASOURCE,
                "editorMode": "code",
                "expr": query.expression,
                "legendFormat": query.legend,
                "instant": not graph,
                "range": graph,
            }
            for letter, query in zip(string.ascii_uppercase, panel.queries, strict=False)
        ],
    }


_LATEST = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_OPTIONS: dict[str, dict[str, Any]] = {
    "stat": {
        "reduceOptions": _LATEST,
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
    },
    "bargauge": {
        "reduceOptions": _LATEST,
        "displayMode": "basic",
        "orientation": "horizontal",
        "showUnfilled": True,
        "valueMode": "color",
    },
    "timeseries": {
        "legend": {
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "calcs": ["lastNotNull"],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
}


def _thresholds(warn_above: float | None) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    return steps if warn_above is None else [*steps, {"color": "red", "value": warn_above}]
