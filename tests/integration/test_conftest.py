"""Where the real store cannot be used, its tests are skipped on a desk and fail in CI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from hicache_bench.store.client import Availability
from tests.integration import conftest

USABLE = Availability(True, "1", ("wheel",), (), None, None)
LACKS = Availability(False, "1", ("wheel",), ("lib",), "missing system libraries: lib", "get it")
TEXT = "^missing system libraries: lib; to mend it: get it$"


@dataclass(frozen=True, slots=True)
class Item:
    """A collected test, as far as the hook looks at it."""

    needs_store: bool

    def get_closest_marker(self, name: str) -> bool | None:
        return True if name == "mooncake" and self.needs_store else None


def set_up(
    monkeypatch: pytest.MonkeyPatch, found: Availability, ci: str | None, *, needs_store: bool
) -> None:
    monkeypatch.setattr(conftest, "mooncake_availability", lambda: found)
    if ci is None:
        monkeypatch.delenv("CI", raising=False)
    else:
        monkeypatch.setenv("CI", ci)
    item: Any = Item(needs_store)
    conftest.pytest_runtest_setup(item)


def test_in_ci_a_test_of_the_real_store_that_cannot_run_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    # A skip that nobody expects would skip this test, which is what must not happen.
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception), match=TEXT) as told:
        set_up(monkeypatch, LACKS, "true", needs_store=True)
    assert told.type is pytest.fail.Exception


@pytest.mark.parametrize("ci", [None, "", "false"])
def test_elsewhere_it_is_skipped(monkeypatch: pytest.MonkeyPatch, ci: str | None) -> None:
    with pytest.raises(pytest.skip.Exception, match=TEXT):
        set_up(monkeypatch, LACKS, ci, needs_store=True)


@pytest.mark.parametrize("ci", [None, "true"])
def test_what_can_run_does(monkeypatch: pytest.MonkeyPatch, ci: str | None) -> None:
    set_up(monkeypatch, USABLE, ci, needs_store=True)
    set_up(monkeypatch, LACKS, ci, needs_store=False)


def test_every_file_here_says_that_it_needs_the_store(request: pytest.FixtureRequest) -> None:
    """Without the mark a test would not be asked whether it can run."""
    files = [path for path in request.path.parent.glob("test_*.py") if path != request.path]
    assert [] == [path.name for path in files if "mark.mooncake" not in path.read_text()]
    assert files
