"""A real Prometheus server (Debian's package) on a free loopback port, which stops with this process."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from hicache_bench.store import master_guard

LOOPBACK = "127.0.0.1"
LIMIT_SECONDS = 30.0
INSTALL = "apt-get install -y --no-install-recommends prometheus"
_START_ATTEMPTS = 3


def find_program(name: str) -> str:
    """A program of the package; where it is missing the test is skipped with the reason, or fails in CI."""
    found = shutil.which(name)
    if found is not None:
        return found
    text = f"there is no {name} on this machine; to mend it: {INSTALL}"
    if os.environ.get("CI") == "true":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


class PrometheusServer:
    """Scrapes each of ``targets`` (job → ``HOST:PORT``) every 200 ms until the block ends."""

    def __init__(self, directory: Path, targets: Mapping[str, str]) -> None:
        self._program = find_program("prometheus")
        self._directory = directory
        jobs = [
            {"job_name": job, "static_configs": [{"targets": [address]}]} for job, address in targets.items()
        ]
        scraping = {"scrape_interval": "200ms", "scrape_timeout": "200ms"}
        # JSON is YAML.
        config = {"global": scraping, "scrape_configs": jobs}
        (directory / "prometheus.yml").write_text(json.dumps(config))

    def __enter__(self) -> PrometheusServer:
        for _ in range(_START_ATTEMPTS):
            with socket.socket() as free:
                free.bind((LOOPBACK, 0))
                self.port = int(free.getsockname()[1])
            self._log = (self._directory / "prometheus.log").open("w")
            # The guard stops the server however this process ends.
            self._guard = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    master_guard.__file__,
                    self._program,
                    f"--config.file={self._directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    f"--web.listen-address={LOOPBACK}:{self.port}",
                    "--log.level=error",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                cwd=self._directory,
            )
            assert self._guard.stdout is not None
            self.pid = int(self._guard.stdout.readline())
            if self._is_ready():
                return self
            self._stop()
        pytest.fail(f"prometheus did not start: {(self._directory / 'prometheus.log').read_text()[-500:]}")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def ask(self, path: str, **parameters: str) -> Any:
        """``data`` of the HTTP API's answer.

        Raises:
            AssertionError: the server refuses the question; the message is its own.
        """
        query = urllib.parse.urlencode([(name.rstrip("_"), text) for name, text in parameters.items()])
        url = f"http://{LOOPBACK}:{self.port}/api/v1/{path}?{query}"
        try:
            with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {json.load(error)['error']}") from error

    def query(self, expression: str) -> list[float]:
        """Values of an expression now, one for each series."""
        return [float(found["value"][1]) for found in self.ask("query", query=expression)["result"]]

    def metric_names(self) -> set[str]:
        """Every metric that was scraped."""
        return set(self.ask("label/__name__/values"))

    def label_values(self, selector: str, label: str) -> list[str]:
        """Values of a label among the series of ``selector``."""
        return list(self.ask(f"label/{label}/values", **{"match[]": selector}))

    def _is_ready(self) -> bool:
        deadline = time.monotonic() + LIMIT_SECONDS
        while self._guard.poll() is None and time.monotonic() < deadline:
            with suppress(OSError):
                urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/-/ready", timeout=1).close()
                return True
            time.sleep(0.05)
        return False

    def _stop(self) -> None:
        for stream in (self._guard.stdin, self._guard.stdout):
            if stream is not None:
                stream.close()
        try:
            self._guard.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        self._log.close()
