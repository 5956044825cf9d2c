"""The options of metrics on a command of their own."""

from __future__ import annotations

import inspect
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from hicache_bench.cli.metrics import takes_metrics
from hicache_bench.cli.variant import takes_variant
from hicache_bench.engine.metrics import MetricsSink
from hicache_bench.errors import InputError
from hicache_bench.planning.ledger import Volume

if TYPE_CHECKING:
    from hicache_bench.workflows.variant import VariantOptions

GIVEN: list[Any] = []


@pytest.fixture
def app() -> typer.Typer:
    GIVEN.clear()
    made = typer.Typer()

    @made.command()
    @takes_variant
    @takes_metrics
    def both(variant: VariantOptions, metrics: MetricsSink | None, own: int = 7) -> None:
        GIVEN.extend((variant, metrics, own))
        if metrics is not None:
            metrics.record("read", Volume(1, 1, 5), pool="kv")

    @made.command()
    @takes_metrics
    def alone(metrics: MetricsSink | None) -> None:
        GIVEN.append(metrics)

    return made


def test_no_option_is_no_sink(app: typer.Typer) -> None:
    assert 0 == CliRunner().invoke(app, ["alone"]).exit_code
    assert [None] == GIVEN


def test_options_of_two_decorators_reach_one_command(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "run.prom"
    answer = CliRunner().invoke(
        app, ["both", "--own", "3", "--tp", "4", "--metrics-file", str(path), "--metrics-port", "0"]
    )
    assert 0 == answer.exit_code, answer.output
    variant, metrics, own = GIVEN
    assert (4, 3) == (variant.tp, own)
    assert isinstance(metrics, MetricsSink)
    assert metrics.to_prometheus() == path.read_text()
    assert re.fullmatch(r"metrics: http://127\.0\.0\.1:\d+/metrics\n", answer.stderr)
    assert "" == answer.stdout


def test_the_help_shows_them_between_own_options_and_those_of_a_variant() -> None:
    @takes_variant
    @takes_metrics
    def command(variant: VariantOptions, metrics: MetricsSink | None, own: int = 7) -> None: ...

    names = list(inspect.signature(command).parameters)
    assert ["own", "metrics_file", "metrics_port", "kv_dtype"] == names[:4]


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_that_is_none_is_refused(app: typer.Typer, port: str) -> None:
    answer = CliRunner().invoke(app, ["alone", "--metrics-port", port])
    assert 2 == answer.exit_code
    assert "--metrics-port" in answer.output
    assert [] == GIVEN


def test_a_port_that_is_taken_ends_it_before_any_work(app: typer.Typer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        answer = CliRunner().invoke(app, ["alone", "--metrics-port", str(other.getsockname()[1])])
    assert isinstance(answer.exception, InputError)
    assert [] == GIVEN
