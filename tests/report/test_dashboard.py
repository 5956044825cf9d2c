"""The committed dashboard: current, whole, and of metrics that exist. A real Prometheus server answers it in
``tests/integration/test_prometheus.py``."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hicache_bench.engine.metrics import FAMILIES
from hicache_bench.report.dashboard import dashboard_text, hybrid_dashboard
from hicache_bench.report.grafana import GRID_COLUMNS
from tests.promql import selectors
from tests.report.test_grafana import unknown_to_grafana

ROOT = Path(__file__).parents[2]
PANELS = [panel for panel in hybrid_dashboard()["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_the_committed_file_is_current() -> None:
    committed = (ROOT / "dashboards" / "hicache-hybrid.json").read_text()
    assert dashboard_text() == committed, (
        "run: .venv/bin/python -m hicache_bench.report.dashboard > dashboards/hicache-hybrid.json"
    )
    assert json.loads(committed) == hybrid_dashboard()


def test_our_metrics_are_those_that_a_sink_writes() -> None:
    named = {name for expression in EXPRESSIONS for name, _ in selectors(expression)}
    ours = {re.sub("_bucket$", "", name) for name in named if name.startswith("mooncake_")}
    assert len(ours) > 20
    assert set() == ours - set(FAMILIES)
    assert {name for name in named if name.startswith("master_")}


def test_every_selector_follows_the_choices_on_top() -> None:
    for expression in EXPRESSIONS:
        for _, selector in selectors(expression):
            assert re.search(r'instance=~"\$(run|master)"', selector), expression


def test_panels_have_their_own_place_and_say_what_they_show() -> None:
    taken: set[tuple[int, int]] = set()
    everything = hybrid_dashboard()["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    for panel in everything:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= GRID_COLUMNS
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        taken |= cells
    assert all(panel["description"].endswith(".") for panel in PANELS)
    assert len({panel["title"] for panel in PANELS if panel["type"] == "timeseries"}) > 10
    assert all(len({t["legendFormat"] for t in p["targets"]}) == len(p["targets"]) for p in PANELS)


def test_grafana_knows_every_name_and_value() -> None:
    assert [] == [stranger for panel in PANELS for stranger in unknown_to_grafana(panel)]


def test_what_the_issue_asks_for_is_on_it() -> None:
    kinds = {panel["title"]: panel["type"] for panel in PANELS}
    assert "stat" == kinds["Skip ratio"]
    for title in ("By pool and reason, since the start", "Hit, fulfilled, used", "Restores", "Wasted"):
        assert title in kinds
