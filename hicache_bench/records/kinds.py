"""The kinds of records, and what the gate has to know of each. A new kind joins by its line in ``KINDS``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hicache_bench.records.schema import Evidence

VOLATILE = frozenset({"schema_version", "kind", "created_utc", "command", "tool_version", "libraries"}) | {
    "environment"
}
"""Fields of every kind that say when, where and by what it was made: they never decide anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of record.

    ``writer`` is the dataclass that writes it, as ``module:name``: a gate of runs need not import what a
    replay is made of. ``settings`` are top-level fields (``preset.name``: a field of one) in which two
    records must agree to be comparable. ``ignored`` are fields, at any depth, that are no metric: those that
    follow from others, and seconds of which there is one sample; of a name of several words the last one
    decides (``swa max_difference``). Entries of the sections ``timed`` went on for a given time, so their
    ``figures`` say how fast the machine was. A new entry of the lists ``additions`` is no regression: another
    length, another proof. ``evidence`` are the tags of its figures; none where each of its results has its
    own.
    """

    writer: str
    settings: tuple[str, ...]
    ignored: frozenset[str] = frozenset()
    timed: frozenset[str] = frozenset()
    additions: frozenset[str] = frozenset()
    evidence: tuple[Evidence, ...] = ()

    @property
    def record(self) -> type[Any]:
        """The dataclass that writes it."""
        module, _, name = self.writer.partition(":")
        found: type[Any] = getattr(import_module(module), name)
        return found

    def ignores(self, field: str) -> bool:
        """Whether a field of this name is no metric."""
        return field in self.ignored or field.rpartition(" ")[2] in self.ignored

    def ignored_of(self, entry: Mapping[str, Any]) -> frozenset[str]:
        """The fields of an entry of a list that are no metric."""
        return self.ignored | {"figures"} if entry.get("section") in self.timed else self.ignored


KINDS: Mapping[str, Kind] = {
    "bench": Kind(
        writer="hicache_bench.records.bench:BenchRecord",
        settings=(
            "preset.name", "preset_digest", "profile", "deployment", "key_scheme", "save_policy", "tokens",
            "batch_pages", "store", "state", "clients",
        ),
        ignored=frozenset(
            {
                "preset", "load_average", "store_settings", "memory_bytes", "warmups", "starts", "summary",
                "verify_seconds", "busy_processors", "own_processors", "together", "link_points", "losses",
                "warnings",
            }
        ),
        evidence=(Evidence.MEASURED,),
    ),
    "replay": Kind(
        writer="hicache_bench.records.replay:ReplayRecord",
        settings=(
            "preset.name", "preset_digest", "profile", "deployment", "page_tokens", "trace", "hit_definition",
            "outputs", "measured_percent", "limits", "timing",
        ),
        ignored=frozenset({"preset", "hit_definition_text", "evidence", "source", "point", "points"}),
        additions=frozenset({"results"}),
        evidence=(Evidence.COUNTED, Evidence.MODELED),
    ),
    "roundtrip": Kind(
        writer="hicache_bench.records.proof:RoundtripRecord",
        settings=("presets", "seed", "store"),
        ignored=frozenset({"store_settings", "seconds", "digest_seconds", "gb_per_s", "max_difference"}),
        timed=frozenset({"soak"}),
        additions=frozenset({"proofs"}),
        evidence=(Evidence.MEASURED,),
    ),
    "run": Kind(
        writer="hicache_bench.records.schema:RunRecord",
        settings=(
            "preset.name", "preset_digest", "profile", "deployment", "key_scheme", "model_name",
            "extra_backend_tag", "adapter", "salt", "save_policy", "local_prefix_tokens", "queries",
        ),
        ignored=frozenset(
            {
                "preset", "store", "store_settings", "token_seed", "memory_bytes", "evidence",
                "evidence_reason", "save_seconds", "lookup_seconds", "selection_seconds",
            }
        ),
        additions=frozenset({"results"}),
    ),
    "simulate": Kind(
        writer="hicache_bench.records.simulation:SimulationRecord",
        settings=(
            "preset.name", "preset_digest", "profile", "deployment", "save_policy", "link", "system",
            "prefix_tokens", "suffix_tokens", "local_prefix_tokens", "concurrency", "queue_seconds",
            "host_capacity_tokens", "prefetch_policy", "prefetch_profile",
        ),
        ignored=frozenset({"preset", "volumes", "volumes_evidence", "source", "point", "points"}),
        additions=frozenset({"break_even"}),
        evidence=(Evidence.MODELED,),
    ),
}  # fmt: skip


def settings_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a record by name, its kind first, those within an object each by its own."""
    found: dict[str, Any] = {"kind": data["kind"]}
    for name in KINDS[data["kind"]].settings:
        value: Any = data
        for part in name.split("."):
            value = value[part]
        if isinstance(value, dict):
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            found[name] = value
    return found


def evidence_of(data: Mapping[str, Any]) -> str:
    """The tags of a record's figures: ``counted``, or ``measured, counted`` where its lengths differ."""
    evidence = KINDS[data["kind"]].evidence
    tags = [tag.value for tag in evidence] or [result["evidence"] for result in data["results"]]
    return ", ".join(dict.fromkeys(tags))
