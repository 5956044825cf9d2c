"""What all tests share."""

from __future__ import annotations

import os

# As the command line has it; read when numpy is first imported, which no import above may do.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# Nothing here asserts on the clock; a busy machine must not fail a property.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# Tests below these paths run one after the other, on one worker: those of the real store measure time and
# look for what others left, and the figures of the docs are drawn once.
ALONE = ("tests/integration/", "tests/report/plots/test_documents.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Give every test to the worker that is free, and those of a path above to one.

    ``--dist loadgroup`` would do it by markers, but xdist 3.8 writes the group to a field of the node id that
    pytest 9.2 reads no more, and ignores it without a word.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return next((path for path in ALONE if nodeid.startswith(path)), nodeid)

    return Scheduling(config, log)
