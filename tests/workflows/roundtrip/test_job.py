from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hicache_bench.errors import ConfigError, HicacheBenchError, InputError, MemoryBudgetError, StoreError
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.records.proof import RoundtripRecord
from hicache_bench.store.wrappers import StoreWrapper
from hicache_bench.units import MIB
from hicache_bench.workflows.length import LengthJob
from hicache_bench.workflows.roundtrip import job as workflow
from hicache_bench.workflows.roundtrip.byte_controls import CONTROLS
from hicache_bench.workflows.roundtrip.job import RoundtripOptions, roundtrip
from hicache_bench.workflows.roundtrip.rule_controls import CONTROLS as RULE_CONTROLS
from hicache_bench.workflows.roundtrip.rule_proofs import SUBJECT
from hicache_bench.workflows.stores import open_store
from tests.workflows.roundtrip.rig import variant_of
from tests.workflows.runs import quiet

HYBRID = variant_of("kitchen-sink")


_RULE_PROOFS = workflow._rule_proofs


@pytest.fixture(autouse=True)
def without_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same for every preset, and have tests of their own."""
    monkeypatch.setattr(workflow, "_rule_proofs", lambda *_: ())


def prove(*presets: str, **options: Any) -> RoundtripRecord:
    chosen = {"lengths": (1, 5), "batch_pages": 4, **options}
    return roundtrip(RoundtripOptions(presets=tuple(map(variant_of, presets)), **chosen), quiet)


def test_the_sections_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "_rule_proofs", _RULE_PROOFS)
    record = prove("kitchen-sink", "llama-3.1-8b")
    assert "ok" == record.status
    sections = list(dict.fromkeys((proof.section, proof.subject) for proof in record.proofs))
    expected = [("control", "kitchen-sink"), ("control", SUBJECT), ("rules", SUBJECT)]
    expected += [(s, p) for p in ("kitchen-sink", "llama-3.1-8b") for s in ("bytes", "isolation")]
    assert expected == sections
    controls = len(CONTROLS) + len(RULE_CONTROLS)
    assert controls == sum(proof.section == "control" for proof in record.proofs)
    assert ["kitchen-sink", "llama-3.1-8b"] == list(record.presets)
    assert HYBRID.spec.digest == record.presets["kitchen-sink"]
    assert (0, "local") == (record.seed, record.store)
    assert record.store_settings


def test_only_the_policies_that_were_asked_for() -> None:
    record = prove("kitchen-sink", policies=(TransferPolicy.SELECTIVE,))
    names = [check.name for p in record.proofs if p.section in ("bytes", "isolation") for check in p.checks]
    assert any("selective" in name for name in names)
    assert not any("dense at" in name or "hit_policy at" in name for name in names)


def test_a_failed_proof_is_a_failed_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "isolation_proofs", lambda *_: [])
    monkeypatch.setattr(LengthJob, "remove", lambda _self: 3)
    record = prove("kitchen-sink")
    assert "failed" == record.status
    assert {"objects of it that stay in the store"} == {check.name for check in record.failed_checks}


def test_a_store_that_loses_what_it_took_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(StoreWrapper):
        def batch_exists(self, keys: Any) -> Any:
            self.inner.remove_all(force=True)
            return super().batch_exists(keys)

    real = open_store

    class Opening:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._inner = real(*arguments, **options)

        def __enter__(self) -> Any:
            opened = self._inner.__enter__()
            return replace(opened, backend=Empty(opened.backend))

        def __exit__(self, *error: Any) -> Any:
            return self._inner.__exit__(*error)

    monkeypatch.setattr(workflow, "open_store", Opening)
    with pytest.raises(StoreError, match="pages"):
        prove("kitchen-sink")


@pytest.mark.parametrize(
    ("options", "error", "parts"),
    [
        ({"presets": ()}, InputError, ["nothing to prove", "--preset all"]),
        ({"presets": (), "numerics": True, "soak_seconds": 1.0}, InputError, ["--preset"]),
        (
            {"presets": (variant_of("llama-3.1-8b", tp=2),), "numerics": True},
            ConfigError,
            ["llama-3.1-8b", "on one rank", "leave --tp"],
        ),
        ({"faults": ("master-killed",)}, InputError, ["'master-killed'", "--store mooncake"]),
        ({"faults": ("all", "cosmic-ray")}, InputError, ["'cosmic-ray'", "allowed: all"]),
        ({"store": "count"}, InputError, ["moves no bytes", "local or mooncake"]),
        ({"store": "redis"}, InputError, ["'redis'"]),
        ({"master": "127.0.0.1:1"}, InputError, ["--master is for --store mooncake"]),
        ({"lengths": (0,)}, InputError, ["--lengths 0", "give 1 to 16,777,216"]),
        ({"lengths": (10**20,)}, InputError, ["--lengths 1000", "give 1 to 16,777,216"]),
        (
            {"presets": (), "soak_seconds": 1.0, "lengths": (3,), "policies": (TransferPolicy.DENSE,)},
            InputError,
            ["--lengths, --policy without --preset", "models of their own"],
        ),
        ({"batch_pages": 0}, InputError, ["--batch-pages 0"]),
        ({"memory_bytes": 1 << 50}, MemoryBudgetError, ["--memory", "more than"]),
        (
            {"memory_bytes": 70 * MIB, "lengths": (999,)},
            MemoryBudgetError,
            ["kitchen-sink", "shorter --lengths"],
        ),
        ({"memory_bytes": MIB, "lengths": None}, MemoryBudgetError, ["kitchen-sink", "give more --memory"]),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(
    options: dict[str, Any], error: type[HicacheBenchError], parts: list[str]
) -> None:
    with pytest.raises(error) as refused:
        roundtrip(replace(RoundtripOptions(presets=(HYBRID,)), **options), quiet)
    for part in parts:
        assert part in str(refused.value)


def test_faults_need_no_preset() -> None:
    options = RoundtripOptions(faults=("all",), injections=20, soak_seconds=0.2)
    record = roundtrip(options, quiet)
    assert "ok" == record.status
    assert {"fault", "soak"} == {proof.section for proof in record.proofs}
    assert {} == record.presets


def test_numerics_follow_the_bytes() -> None:
    sections = [proof.section for proof in prove("kitchen-sink", numerics=True, lengths=(1,)).proofs]
    assert sections.index("numerics") > sections.index("isolation") > sections.index("bytes")


def test_digests_are_checked_and_their_cost_is_told() -> None:
    record = prove("kitchen-sink", checksum=True)
    assert "ok" == record.status
    figures = [proof.figures for proof in record.proofs if proof.section == "bytes"]
    assert all(found["digest_bytes"] > 0 and found["digest_seconds"] > 0 for found in figures)  # type: ignore[operator]
    assert 8 == record.store_settings["digest_bytes"]


def test_several_presets_get_less_memory_each_but_all_get_their_turn() -> None:
    names = ("kitchen-sink", "minimax-text-01")
    options = RoundtripOptions(presets=tuple(map(variant_of, names)))
    small, large = (workflow._plan(options, variant) for variant in options.presets)
    assert small.needed_bytes <= workflow.SEVERAL_PRESETS_BYTES < large.needed_bytes
    assert large.needed_bytes <= workflow.LARGE_STATE_BYTES
    alone = workflow._plan(replace(options, presets=options.presets[:1]), options.presets[0])
    assert 128 == alone.batch_pages
