"""The queue of ``make test``: which tests share a worker, and which are started first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.conftest import ROWS, row_of

ROOT = Path(__file__).parents[1]
FAULTS, DOCS, REAL_STORE = ROWS[:3]


@dataclass(frozen=True, slots=True)
class Item:
    """A collected test, as far as the queue looks at it."""

    nodeid: str
    is_slow: bool = False

    def get_closest_marker(self, name: str) -> bool | None:
        return True if name == "slow" and self.is_slow else None


def queue(*items: Item, **config: Any) -> list[str]:
    collected: Any = list(items)
    named: Any = SimpleNamespace(**config)
    conftest.pytest_collection_modifyitems(named, collected)
    return [item.nodeid for item in collected]


@pytest.mark.parametrize("path", ROWS)
def test_a_row_is_still_where_it_was(path: str) -> None:
    """The tests of a file that was renamed would be anywhere."""
    assert (ROOT / path).exists()
    assert row_of(f"{path}test_it") == path


def test_each_file_of_the_real_store_is_in_a_row() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / REAL_STORE).rglob("test_*.py")]
    assert {row_of(name) for name in files} == {FAULTS, DOCS, REAL_STORE}


def test_rows_come_first_then_the_slow_each_in_its_own_order() -> None:
    asked = (
        Item("tests/a.py::quick"),
        Item("tests/a.py::slow", is_slow=True),
        Item(f"{REAL_STORE}test_b.py::two"),
        Item(f"{REAL_STORE}test_b.py::one", is_slow=True),
        Item(f"{DOCS}::page"),
        Item(f"{FAULTS}::fault"),
        Item("tests/z.py::slow", is_slow=True),
    )
    assert queue(*asked, workerinput={}) == [
        f"{FAULTS}::fault",
        f"{DOCS}::page",
        f"{REAL_STORE}test_b.py::two",
        f"{REAL_STORE}test_b.py::one",
        "tests/a.py::slow",
        "tests/z.py::slow",
        "tests/a.py::quick",
    ]
    assert queue(*asked) == [item.nodeid for item in asked]


def test_the_scheduler_keeps_rows_together_and_the_queue_in_order() -> None:
    option = SimpleNamespace(loadscopereorder=True)
    config: Any = SimpleNamespace(option=option, getvalue=lambda _name: ["popen"])
    log: Any = SimpleNamespace(loadscopesched=None)
    scheduler = conftest.pytest_xdist_make_scheduler(config, log)
    assert scheduler._split_scope(f"{REAL_STORE}test_b.py::one") == REAL_STORE
    assert scheduler._split_scope("tests/a.py::one") == "tests/a.py::one"
    assert not option.loadscopereorder


@pytest.mark.parametrize(("asked", "workers"), [(None, 3), ("2", 2)])
def test_there_is_one_worker_more_than_cores(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, workers: int
) -> None:
    """Unless the environment says how many."""
    name = "PYTEST_XDIST_AUTO_NUM_WORKERS"
    if asked is None:
        monkeypatch.delenv(name, raising=False)
    else:
        monkeypatch.setenv(name, asked)
    counting = conftest.pytest_xdist_auto_num_workers(config=None)  # type: ignore[arg-type]
    next(counting)
    with pytest.raises(StopIteration) as end:
        counting.send(2)
    assert end.value.value == workers
