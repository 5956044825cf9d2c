from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from hicache_bench.records.compare import differing_settings
from hicache_bench.records.kinds import KINDS, VOLATILE, evidence_of, settings_of
from tests.records.changes import counted
from tests.records.golden import COMMANDS, golden_record


def test_each_kind_has_a_kept_record() -> None:
    assert set(KINDS) == set(COMMANDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_that_a_kind_names_exists(kind: str) -> None:
    found = KINDS[kind]
    names = {field.name for field in fields(found.record)}
    assert VOLATILE <= names
    assert {name.partition(".")[0] for name in found.settings} <= names
    assert found.additions <= names
    assert kind == golden_record(kind)["kind"]
    assert {field for field in found.ignored if not occurs(golden_record(kind), field)} <= OPTIONAL


OPTIONAL = {"evidence_reason", "source", "losses", "together", "link_points"} | {
    "digest_seconds",
    "max_difference",
}
"""Named in entries of lists that the kept record has none of."""


def occurs(data: Any, field: str) -> bool:
    if isinstance(data, dict):
        return field in data or any(occurs(inner, field) for inner in data.values())
    return isinstance(data, list) and any(occurs(inner, field) for inner in data)


def test_settings_are_named_by_the_way_to_them() -> None:
    settings = settings_of(golden_record("run"))
    assert ("run", "kitchen-sink", 1) == (
        settings["kind"],
        settings["preset.name"],
        settings["deployment.tp"],
    )
    assert "store" not in settings  # bytes do not depend on it
    assert settings == settings_of(golden_record("run"))


def test_evidence_is_that_of_the_kind_or_of_each_length() -> None:
    record = golden_record("run")
    assert "measured" == evidence_of(record)
    other = golden_record("run")
    counted(other)
    record["results"] += other["results"]
    assert "measured, counted" == evidence_of(record)
    assert ["measured", "measured", "modeled"] == [
        evidence_of(golden_record(kind)) for kind in ("bench", "roundtrip", "simulate")
    ]


def test_a_replay_without_times_is_comparable_with_none_that_has_them() -> None:
    timed, plain = golden_record("replay"), golden_record("replay")
    plain["timing"] = plain["timing_basis"] = None
    differing = differing_settings(timed, plain)
    assert {"timing.link", "timing.system", "timing.prefetch_profile"} < set(differing)
    assert set(differing) == set(differing_settings(plain, timed))
    assert "counted, modeled" == evidence_of(timed)
