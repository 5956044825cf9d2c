"""A real Prometheus server scrapes a real run and a real master, and is asked all that the dashboard asks."""

from __future__ import annotations

import copy
import math
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.engine.metrics import FAMILIES, MetricsSink
from hicache_bench.report.dashboard import hybrid_dashboard
from hicache_bench.store.client import open_mooncake
from hicache_bench.store.faults import EvictBeforeGet
from hicache_bench.store.master import ManagedMaster
from hicache_bench.units import MIB
from hicache_bench.workflows.metrics_export import MetricsServer
from hicache_bench.workflows.run import RunOptions, run
from hicache_bench.workflows.variant import VariantOptions, apply_options
from tests.cli.command import is_alive
from tests.engine.rig import INDEX, LATENT, Rig
from tests.integration.prometheus import PrometheusServer, find_program
from tests.promql import selectors

pytestmark = [pytest.mark.mooncake, pytest.mark.slow]

LIMIT_SECONDS = 120.0
OF_RIG = (replace(LATENT, name="latent"), INDEX)
"""Pools whose names no pool of the run has."""
MOVING = (
    'rate(mooncake_hicache_transfer_seconds_count{operation="restore"}[1m]) > 0',
    "rate(mooncake_hicache_skipped_bytes_total[1m]) > 0",
    "rate(mooncake_hicache_unused_tokens_total[1m]) > 0",
    'rate(mooncake_store_call_seconds_count{operation="get"}[1m]) > 0',
    'rate(mooncake_store_call_seconds_count{operation="put"}[1m]) > 0',
    'rate(mooncake_store_call_seconds_count{operation="exists"}[1m]) > 0',
    "rate(master_batch_get_replica_list_items_total[1m]) > 0",
)


def move(metrics: MetricsSink, master: str) -> None:
    """A run that joins the cluster, and a restore that loses an object: both leave their counts."""
    options = RunOptions(
        variant=apply_options(load_model("gpt-oss-20b"), VariantOptions()),
        token_lengths=(256,),
        store="mooncake",
        master=master,
        metrics=metrics,
    )
    record = run(options, lambda step: None)
    assert "ok" == record.status
    writer = Rig(OF_RIG, 8)
    writer.save()
    lost = EvictBeforeGet(frozenset({writer.key("indexer", 5)}))
    reader = Rig(OF_RIG, 8, [lost], writer.inner, metrics=metrics)
    assert reader.restore().ledger.unused_tokens


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A server that has seen every counter of a run, and of its master, grow."""
    metrics = MetricsSink()
    with (
        ManagedMaster() as master,
        open_mooncake(master.address, segment_bytes=64 * MIB),
        MetricsServer(metrics) as server,
        PrometheusServer(
            tmp_path_factory.mktemp("prometheus"),
            {"hicache-bench": f"127.0.0.1:{server.port}", "mooncake-master": master.http_address},
        ) as prometheus,
    ):
        deadline = time.monotonic() + LIMIT_SECONDS
        while not all(prometheus.query(expression) for expression in MOVING):
            assert time.monotonic() < deadline, [e for e in MOVING if not prometheus.query(e)]
            move(metrics, master.address)
        # A client that closes holds the interpreter for up to 2 s, and a scrape that times out is a gap.
        while [1.0, 1.0] != prometheus.query("up"):
            assert time.monotonic() < deadline
        yield prometheus
    assert not is_alive(prometheus.pid)


def chosen(prometheus: PrometheusServer, dashboard: dict[str, Any], *, everything: bool) -> dict[str, str]:
    """The variables as Grafana fills them in: all values, or each value spelled out."""
    values = {"__rate_interval": "1m"}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        asked = re.fullmatch(r"label_values\((.*), (\w+)\)", filled(variable["query"]["query"], values))
        assert asked is not None
        found = prometheus.label_values(*asked.groups())
        assert found, f"variable {variable['name']} has no values"
        values[variable["name"]] = variable["allValue"] if everything else "|".join(map(quoted, found))
    return values


def quoted(text: str) -> str:
    """``text`` as a literal in a regular expression in a PromQL string."""
    return re.escape(text).replace("\\", "\\\\")


def filled(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"${name}", value)
    assert "$" not in text
    return text


def problems(
    prometheus: PrometheusServer, dashboard: dict[str, Any], *, everything: bool = True
) -> list[str]:
    """Expressions that name a metric or label that does not exist, or that answer nothing, or no number."""
    values = chosen(prometheus, dashboard, everything=everything)
    names = prometheus.metric_names()
    found = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = filled(target["expr"], values)
            where = f"{panel['title']}: {expression}"
            for name, selector in selectors(expression):
                if name not in names:
                    found.append(f"{where}: there is no metric {name}")
                elif not prometheus.query(selector):
                    found.append(f"{where}: nothing matches {selector}")
            answers = prometheus.query(expression)
            if not any(map(math.isfinite, answers)):
                found.append(f"{where}: answers {answers}")
    return found


@pytest.mark.parametrize("everything", [True, False], ids=["all", "each value"])
def test_every_expression_of_the_dashboard_answers(prometheus: PrometheusServer, everything: bool) -> None:
    assert [] == problems(prometheus, hybrid_dashboard(), everything=everything)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("mooncake_hicache_reads_total", "there is no metric mooncake_hicache_reads_total"),
        ("sum(master_key_counts) or vector(0)", "there is no metric master_key_counts"),
        ('master_key_count{instance="nowhere"}', "nothing matches master_key_count"),
        ("sum by (pool) (rate(mooncake_store_get_misses_total[1m])) / 0", "answers [nan]"),
    ],
)
def test_a_wrong_panel_is_found(prometheus: PrometheusServer, wrong: str, told: str) -> None:
    dashboard = copy.deepcopy(hybrid_dashboard())
    panel = next(panel for panel in dashboard["panels"] if panel["title"] == "Skip ratio")
    panel["targets"][0]["expr"] = wrong
    found = problems(prometheus, dashboard)
    assert found
    assert all(problem.startswith("Skip ratio: ") for problem in found)
    assert any(told in problem for problem in found)


def test_a_missing_server_is_a_skip_here_and_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no prometheus .*apt-get install"):
        find_program("prometheus")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"no prometheus .*apt-get install"):
        find_program("prometheus")


def test_an_expression_that_is_none_is_refused(prometheus: PrometheusServer) -> None:
    with pytest.raises(AssertionError, match="parse error"):
        prometheus.query("sum(up")


def test_every_family_was_scraped(prometheus: PrometheusServer) -> None:
    names = {re.sub("_(bucket|sum|count)$", "", name) for name in prometheus.metric_names()}
    # Nothing here gives a label too many values.
    assert {"mooncake_hicache_folded_label_values_total"} == set(FAMILIES) - names


def test_what_was_scraped_is_one_account(prometheus: PrometheusServer) -> None:  # cases E85
    def total(name: str, where: str = "") -> float:
        (found,) = prometheus.query(f"sum({name}{{{where}}})")
        return found

    of_run = 'pool=~"kv|swa"'
    assert total("mooncake_store_get_bytes_total") == total("mooncake_hicache_read_bytes_total", of_run) > 0
    assert total("mooncake_store_put_bytes_total") == total("mooncake_hicache_written_bytes_total", of_run)
    hit = total("mooncake_hicache_endpoint_hit_tokens_total")
    used = total("mooncake_hicache_endpoint_used_tokens_total")
    assert hit == used + total("mooncake_hicache_unused_tokens_total")


def test_promtool_finds_no_fault(prometheus: PrometheusServer) -> None:
    metrics = MetricsSink()
    writer = Rig(OF_RIG, 8, metrics=metrics)
    writer.save()
    writer.restore()
    checked = subprocess.run(
        [find_program("promtool"), "check", "metrics"],
        input=metrics.to_prometheus(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "", "") == (checked.returncode, checked.stdout, checked.stderr)
