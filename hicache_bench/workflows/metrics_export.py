"""Showing metrics to others while a command runs: a file for a text collector, a port to scrape."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from types import TracebackType

from hicache_bench.engine.metrics import MetricsSink
from hicache_bench.engine.metrics_text import CONTENT_TYPE
from hicache_bench.errors import InputError, OutputError
from hicache_bench.records.files import replace_file

LOOPBACK = "127.0.0.1"
FILE_SECONDS = 5.0
"""Between two writes of a metrics file; a third of the usual scrape interval of 15 s."""
_CLIENT_SECONDS = 5.0
"""A client that sends no request for so long is dropped."""

_FORMATS: dict[str, Callable[[MetricsSink], str]] = {
    ".prom": MetricsSink.to_prometheus,
    ".json": MetricsSink.to_json,
}


@contextmanager
def exported(
    metrics: MetricsSink, *, file: Path | None, port: int | None, announce: Callable[[str], None]
) -> Iterator[None]:
    """Show ``metrics`` in ``file`` and on ``port`` of this machine until the block ends.

    ``announce`` is told the address, and at the end if there was nothing to write.

    Raises:
        InputError: a file of another kind, a port that is taken.
        OutputError: a file that cannot be written.
    """
    with ExitStack() as stack:
        if file is not None:
            stack.enter_context(MetricsFile(metrics, file))
        if port is not None:
            server = stack.enter_context(MetricsServer(metrics, port))
            announce(f"metrics: {server.url}")
        yield
    if file is not None and metrics.is_empty:
        announce(f"metrics: nothing was moved, so {file.name} is not written")


class MetricsFile:
    """Keeps a file current: ``.prom`` for the node exporter's text collector, ``.json`` for scripts.

    The file is replaced as a whole, every :data:`FILE_SECONDS` and at the end, so that a reader never finds a
    half of it. It is not touched before something was recorded.

    Raises:
        InputError: a name that ends in neither.
        OutputError: a directory that is not there or cannot be written.
    """

    def __init__(self, metrics: MetricsSink, path: Path, *, seconds: float = FILE_SECONDS) -> None:
        if path.suffix not in _FORMATS:
            raise InputError(
                f"--metrics-file {path.name!r} must end in .prom (Prometheus text, as the node exporter "
                "reads it) or .json"
            )
        self._render = _FORMATS[path.suffix]
        self._metrics = metrics
        self._path = path
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_current, name="metrics-file", daemon=True)
        try:
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise self._refusal(error) from error
        if path.is_dir():
            raise self._refusal(IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))

    def write(self) -> None:
        """Write the file now.

        Raises:
            OutputError: it cannot be written.
        """
        if self._metrics.is_empty:
            return
        try:
            self._path.parent.stat()  # a directory that has gone since then is told, and not made
            replace_file(self._path, self._render(self._metrics).encode())
        except OSError as error:
            raise self._refusal(error) from error

    def __enter__(self) -> MetricsFile:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        # What ended the command early is the better thing to tell.
        with suppress(*(() if kind is None else (OutputError,))):
            self.write()

    def _keep_current(self) -> None:
        while not self._ended.wait(self._seconds):
            # A disk that is full now may not be so later; the last write says it if it still is.
            with suppress(OutputError):
                self.write()

    def _refusal(self, error: OSError) -> OutputError:
        return OutputError(
            f"cannot write --metrics-file {str(self._path)!r}: {error.strerror or error}; give a file in a "
            "directory that exists and can be written"
        )


class MetricsServer:
    """Serves ``/metrics`` (Prometheus text) and ``/metrics.json`` on loopback, in threads of its own.

    Port 0 takes a free one; :attr:`url` names it.

    Raises:
        InputError: a port that another program has, or that this user may not take.
    """

    def __init__(self, metrics: MetricsSink, port: int = 0) -> None:
        try:
            self._server = _LoopbackServer((LOOPBACK, port), _handler_of(metrics))
        except OSError as error:
            raise InputError(
                f"--metrics-port {port} cannot be opened on {LOOPBACK}: {error.strerror or error}; give "
                "another port, or 0 for a free one"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="metrics-server",
            daemon=True,
        )

    @property
    def port(self) -> int:
        """The port in use."""
        return self._server.server_port

    @property
    def url(self) -> str:
        """Address to scrape."""
        return f"http://{LOOPBACK}:{self.port}/metrics"

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _LoopbackServer(ThreadingHTTPServer):
    # The end of a command must not wait for a client that keeps its connection open.
    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        # HTTPServer asks for the host's full name here, which takes seconds where no name server answers.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is no fault of this run, and stderr is the user's."""


def _handler_of(metrics: MetricsSink) -> type[BaseHTTPRequestHandler]:
    answers: dict[str, tuple[str, Callable[[], str]]] = {
        "/metrics": (CONTENT_TYPE, metrics.to_prometheus),
        "/metrics.json": ("application/json", metrics.to_json),
    }

    class Handler(BaseHTTPRequestHandler):
        timeout = _CLIENT_SECONDS

        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            if found is None:
                self.send_error(HTTPStatus.NOT_FOUND, explain=f"served here: {', '.join(answers)}")
                return
            content_type, render = found
            body = render().encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: object) -> None:  # noqa: A002 -- as in http.server
            """Scrapes are not for the terminal of the run."""

    return Handler
