"""The file and the port: whole, current, on loopback only, gone when they must be."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hicache_bench.engine.metrics import MetricsSink
from hicache_bench.errors import InputError, OutputError, VerificationError
from hicache_bench.planning.ledger import Volume
from hicache_bench.workflows.metrics_export import MetricsFile, MetricsServer, exported

LIMIT_SECONDS = 30.0


@pytest.fixture
def metrics() -> MetricsSink:
    sink = MetricsSink()
    sink.record("read", Volume(1, 1, 5), pool="kv")
    return sink


def get(port: int, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Status, content type and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_SECONDS)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_port_serves_what_is_recorded_meanwhile(metrics: MetricsSink) -> None:
    with MetricsServer(metrics) as server:
        status, content_type, body = get(server.port, "/metrics")
        assert (200, "text/plain; version=0.0.4; charset=utf-8") == (status, content_type)
        assert body == metrics.to_prometheus()
        metrics.record("read", Volume(1, 1, 6), pool="kv")
        _, _, body = get(server.port, "/metrics?x=1")
        assert 'mooncake_hicache_read_bytes_total{pool="kv"} 11' in body.splitlines()
        status, content_type, body = get(server.port, "/metrics.json")
        assert (200, "application/json") == (status, content_type)
        assert json.loads(metrics.to_json()) == json.loads(body)


def test_what_is_not_served_is_said(metrics: MetricsSink, capfd: pytest.CaptureFixture[str]) -> None:
    with MetricsServer(metrics) as server:
        status, _, body = get(server.port, "/nothing")
        assert 404 == status
        assert "served here: /metrics, /metrics.json" in body
        assert 501 == get(server.port, "/metrics", "POST")[0]
    assert ("", "") == capfd.readouterr()


def test_it_listens_on_loopback_alone_and_stops(metrics: MetricsSink) -> None:
    with MetricsServer(metrics) as server:
        port = server.port
        assert f"http://127.0.0.1:{port}/metrics" == server.url
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
        assert [f"0100007F:{port:04X}"] == listening
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "metrics-server"]
    with MetricsServer(metrics, port) as again:
        assert 200 == get(again.port, "/metrics")[0]


def test_a_silent_client_holds_nothing_up(metrics: MetricsSink) -> None:
    with MetricsServer(metrics) as server, socket.create_connection(("127.0.0.1", server.port)):
        assert 200 == get(server.port, "/metrics")[0]
    # Leaving the block did not wait for the client that is still connected and says nothing.


def test_a_taken_port_is_named(metrics: MetricsSink) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=rf"--metrics-port {port} .*in use.*0 for a free one"):
            MetricsServer(metrics, port)


@pytest.mark.parametrize("name", ["run.prom", "run.json"])
def test_the_file_is_whole_and_readable_by_others(metrics: MetricsSink, tmp_path: Path, name: str) -> None:
    with MetricsFile(metrics, tmp_path / name):
        metrics.record("read", Volume(1, 1, 6), pool="kv")
    text = (tmp_path / name).read_text()
    expected = metrics.to_json() if name.endswith("json") else metrics.to_prometheus()
    assert expected == text
    assert 0o644 == stat.S_IMODE((tmp_path / name).stat().st_mode)
    assert [name] == [path.name for path in tmp_path.iterdir()]


def test_the_file_is_kept_current(metrics: MetricsSink, tmp_path: Path) -> None:
    path = tmp_path / "run.prom"

    def read_bytes() -> float:
        if not path.exists():
            return 0
        (found,) = [
            sample.value
            for family in text_string_to_metric_families(path.read_text())
            for sample in family.samples
            if sample.name == "mooncake_hicache_read_bytes_total"
        ]
        return found

    with MetricsFile(metrics, path, seconds=0.01):
        wait_until(lambda: read_bytes() == 5)
        for total in range(6, 30):
            metrics.record("read", Volume(0, 0, 1), pool="kv")
            # Each reading parses: the file is never there by half.
            wait_until(lambda total=total: read_bytes() == total)  # type: ignore[misc]
    assert not [thread for thread in threading.enumerate() if thread.name == "metrics-file"]


def test_nothing_recorded_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.prom"
    path.write_text("of the last run")
    with MetricsFile(MetricsSink(), path, seconds=0.001):
        time.sleep(0.02)
    assert "of the last run" == path.read_text()


@pytest.mark.parametrize("name", ["run.txt", "run", ".prom", "notes.md"])
def test_a_file_of_another_kind_is_refused(metrics: MetricsSink, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"must end in \.prom .*or \.json"):
        MetricsFile(metrics, tmp_path / name)


def test_a_directory_that_is_not_there_is_refused(metrics: MetricsSink, tmp_path: Path) -> None:
    with pytest.raises(
        OutputError, match="No such file or directory; give a file in a directory that exists"
    ):
        MetricsFile(metrics, tmp_path / "absent" / "run.prom")
    (tmp_path / "a.prom").mkdir()
    with pytest.raises(OutputError, match="directory"):
        MetricsFile(metrics, tmp_path / "a.prom")


def test_a_directory_that_goes_is_told_at_the_end(metrics: MetricsSink, tmp_path: Path) -> None:
    directory = tmp_path / "gone"
    directory.mkdir()

    def leave() -> None:
        with MetricsFile(metrics, directory / "run.prom"):
            directory.rmdir()

    with pytest.raises(OutputError, match="No such file"):
        leave()


def test_what_ended_the_command_is_told_first(metrics: MetricsSink, tmp_path: Path) -> None:
    directory = tmp_path / "gone"
    directory.mkdir()

    def leave() -> None:
        with MetricsFile(metrics, directory / "run.prom"):
            directory.rmdir()
            raise VerificationError("bytes differ")

    with pytest.raises(VerificationError):
        leave()


def test_a_failed_command_leaves_its_metrics(metrics: MetricsSink, tmp_path: Path) -> None:
    path = tmp_path / "run.prom"

    def fail() -> None:
        with MetricsFile(metrics, path):
            raise VerificationError("bytes differ")

    with pytest.raises(VerificationError):
        fail()
    assert metrics.to_prometheus() == path.read_text()


def test_both_at_once_and_neither(metrics: MetricsSink, tmp_path: Path) -> None:
    said: list[str] = []
    with exported(metrics, file=tmp_path / "run.prom", port=0, announce=said.append):
        (line,) = said
        port = int(line.removeprefix("metrics: http://127.0.0.1:").removesuffix("/metrics"))
        assert 200 == get(port, "/metrics")[0]
    assert ["run.prom"] == [path.name for path in tmp_path.iterdir()]
    with exported(metrics, file=None, port=None, announce=said.append):
        pass
    assert 1 == len(said)


def test_a_file_that_is_not_written_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    with exported(MetricsSink(), file=tmp_path / "run.prom", port=None, announce=said.append):
        pass
    assert ["metrics: nothing was moved, so run.prom is not written"] == said
    assert [] == list(tmp_path.iterdir())


def test_a_taken_port_leaves_no_thread_of_the_file(metrics: MetricsSink, tmp_path: Path) -> None:
    def start(port: int) -> None:
        with exported(metrics, file=tmp_path / "run.prom", port=port, announce=print):
            pass

    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(InputError):
        start(other.getsockname()[1])
    assert not [thread for thread in threading.enumerate() if thread.name == "metrics-file"]
