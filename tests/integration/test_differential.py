"""The embedded store answers as the real one does; ``make differential`` asks longer."""

from __future__ import annotations

import pytest

from tests.store.differential import against_mooncake

pytestmark = pytest.mark.mooncake


@pytest.mark.slow
def test_both_stores_answer_alike() -> None:
    with_room, under_pressure = against_mooncake(2500, seed=1)
    assert ([], []) == (with_room.differences, under_pressure.differences)
    assert (2000, 500) == (with_room.operations, under_pressure.operations)
    assert with_room.answers["put: exists"] > with_room.answers["put: ok"] > 200
    assert under_pressure.answers["put: no_space"] > 0
