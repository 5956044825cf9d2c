"""What all tests share."""

from __future__ import annotations

import os

# As the command line has it; read when numpy is first imported, which no import above may do.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# Nothing here asserts on the clock; a busy machine must not fail a property.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# Tests below one of these paths are a row: they run one after the other, on one worker. A test is of the
# first path that it is below. Those of the real store watch processes, ports and time limits of their own,
# and mostly wait: rows of them side by side leave a core for the rest. The others share what is slow to make:
# the figures of the docs, the classes of transformers.
ROWS = (
    "tests/integration/test_roundtrip_real_faults.py",
    "tests/integration/test_docs.py",
    "tests/integration/",
    "tests/report/plots/test_documents.py",
    "tests/models/hf/test_class_defaults.py",
)


def row_of(nodeid: str) -> str | None:
    """The path above whose tests run one after the other with this one."""
    return next((path for path in ROWS if nodeid.startswith(path)), None)


def place_of(nodeid: str, *, is_slow: bool) -> int:
    """Where in the queue a test stands: rows, then the slow, so that no worker ends long after the rest."""
    row = row_of(nodeid)
    return len(ROWS) + (not is_slow) if row is None else ROWS.index(row)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the queue of the workers in order; a run without workers goes file by file."""
    if hasattr(config, "workerinput"):
        items.sort(
            key=lambda item: place_of(item.nodeid, is_slow=item.get_closest_marker("slow") is not None)
        )


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Generator[None, int, int]:
    """``-n auto`` is one worker more than cores, since one waits for the real store."""
    count = yield
    return count if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else count + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Give every test to the worker that is free, in the order of the queue, and those of a row to one.

    ``--dist loadgroup`` would do it by markers, but xdist 3.8 writes the group to a field of the node id that
    pytest 9.2 reads no more, and ignores it without a word.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return row_of(nodeid) or nodeid

    # Else the scopes with the most tests come first.
    config.option.loadscopereorder = False
    return Scheduling(config, log)
