from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hicache_bench.engine.controller import HybridKVController
from hicache_bench.engine.prefix import Prefix
from hicache_bench.planning import policy as rules
from hicache_bench.planning import resolve
from hicache_bench.planning.policy import IntVector
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import page_hashes
from hicache_bench.pools.names import AttentionType
from hicache_bench.store.local import LocalKVStore
from hicache_bench.workflows.roundtrip import rule_proofs as module
from hicache_bench.workflows.roundtrip.rule_proofs import SCENES, rule_proofs
from tests.workflows.runs import quiet

STORE_BYTES = 16 << 20


@pytest.fixture
def store() -> Iterator[LocalKVStore]:
    opened = LocalKVStore(STORE_BYTES)
    with opened:
        yield opened


@pytest.mark.parametrize("seed", [0, 7])
def test_every_rule_holds(store: LocalKVStore, seed: int) -> None:
    proofs = rule_proofs(store, seed, quiet)
    assert list(SCENES) == [proof.name for proof in proofs]
    assert [] == [(proof.name, check) for proof in proofs for check in proof.checks if not check.passed]
    assert {"rules"} == {proof.section for proof in proofs}
    assert 0 == len(store)


def test_what_passed_is_told_once_with_its_number(store: LocalKVStore) -> None:
    every = rule_proofs(store, 0, quiet)[0]
    assert 15 == every.figures["restores"]
    counts = {check.name: check.actual for check in every.checks}
    assert "15" == counts["hit and planned endpoint, in pages, so often right"]


def shifted(kind: AttentionType, *, tokens: int) -> Callable[[pytest.MonkeyPatch], None]:
    """A rule that takes the window for so much longer."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        right = rules._SELECTIVE[kind]

        def wrong(pool: KVPoolDescriptor, ends: IntVector) -> IntVector:
            assert pool.window_tokens is not None
            return right(replace(pool, window_tokens=pool.window_tokens + tokens), ends)

        monkeypatch.setitem(rules._SELECTIVE, kind, wrong)

    return patch


def trailing(change: Callable[[KVPoolDescriptor], int]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setattr(rules, "trailing_units", change)


def planned(**changes: int) -> Callable[[pytest.MonkeyPatch], None]:
    """A plan of a request that was changed on its way."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        right = HybridKVController.plan

        def wrong(self: HybridKVController, *arguments: Any, **options: Any) -> Any:
            asked = {
                name: options[name] + change
                for name, change in changes.items()
                if options.get(name) not in (None, 0)
            }
            return right(self, *arguments, **{**options, **asked})

        monkeypatch.setattr(HybridKVController, "plan", wrong)

    return patch


def last_state(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: Any = lambda _pool, ends: np.maximum(ends - 2, 0)  # noqa: E731
    for kind in (AttentionType.RECURRENT, AttentionType.COMPRESSOR_STATE):
        monkeypatch.setitem(rules._SELECTIVE, kind, wrong)


def gap_before_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rules.first_needed
    monkeypatch.setattr(resolve, "first_needed", lambda *arguments: right(*arguments) - 1)


def chain_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefix takes its first page for page 0."""
    monkeypatch.setattr(Prefix, "num_pages", property(lambda self: len(self.hashes)))


def parent_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    right = page_hashes
    monkeypatch.setattr(module, "page_hashes", lambda tokens, page, parent=None: right(tokens, page))


def underived(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not reported is nowhere."""
    right = resolve._present

    def wrong(pool: KVPoolDescriptor, presence: Any, local_tokens: int) -> Any:
        if pool.name not in presence:
            return np.zeros(5, dtype=np.bool_)
        return right(pool, presence, local_tokens)

    monkeypatch.setattr(resolve, "_present", wrong)


@pytest.mark.parametrize(
    ("broken", "scene"),
    [
        (shifted(AttentionType.SWA, tokens=1), "every endpoint"),
        (shifted(AttentionType.SWA, tokens=-1), "every endpoint"),
        (shifted(AttentionType.CHUNKED, tokens=1), "every endpoint"),
        (shifted(AttentionType.CHUNKED, tokens=-1), "every endpoint"),
        (last_state, "every endpoint"),
        (
            trailing(lambda pool: max(1, (pool.engine_window_tokens or 1) // pool.unit_tokens)),
            "every endpoint",
        ),
        (
            trailing(lambda pool: 1 + -(-(pool.engine_window_tokens or 1) // pool.unit_tokens)),
            "every endpoint",
        ),
        (gap_before_the_window, "each trailing page lost in turn"),
        (planned(local_tokens=7), "a local prefix"),
        (planned(local_tokens=-1), "a local prefix"),
        (planned(host_capacity_pages=1), "a host with little room"),
        (planned(threshold_tokens=1), "a threshold"),
        (planned(threshold_tokens=-1), "a threshold"),
        (chain_forgotten, "a hash chain that goes on"),
        (parent_forgotten, "a hash chain that goes on"),
        (underived, "a pool that derives from another"),
    ],
    ids=[
        "window longer",
        "window shorter",
        "chunk longer",
        "chunk shorter",
        "state of the endpoint before",
        "trailing rounded down",
        "trailing one more",
        "gap before the window",
        "local page too many",
        "local token too few",
        "room too much",
        "threshold higher",
        "threshold lower",
        "first page forgotten",
        "parent forgotten",
        "not derived",
    ],
)
def test_a_broken_rule_is_found(
    store: LocalKVStore, monkeypatch: pytest.MonkeyPatch, broken: Any, scene: str
) -> None:
    monkeypatch.setattr(module, "SCENES", {scene: SCENES[scene]})
    broken(monkeypatch)
    (proof,) = rule_proofs(store, 0, quiet)
    assert not proof.passed


@pytest.mark.parametrize("name", SCENES)
def test_the_page_in_docs_has_each_rule_and_its_cases(name: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "faults.md"
    (row,) = [line for line in page.read_text().splitlines() if line.startswith(f"| {name} |")]
    cases, _ = SCENES[name]
    assert row.endswith(f"| {', '.join(cases)} |" if cases else "| |")
