from __future__ import annotations

import numpy as np
import pytest

from hicache_bench.engine.host import HostPool as EngineHostPool
from hicache_bench.planning.ledger import volume
from hicache_bench.planning.plan import SkipReason
from hicache_bench.planning.policy import BoolVector, TransferPolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.store.faults import EvictBeforeGet
from hicache_bench.store.wrappers import Operation
from tests.engine.rig import (
    INDEX,
    SELECTED,
    Rig,
)

DENSE, HIT_POLICY = TransferPolicy.DENSE, TransferPolicy.HIT_POLICY


class Scorer:
    """Selects fixed units, and looks at the index when it is asked."""

    def __init__(self, rig: Rig, *selected: int) -> None:
        self.seen: list[tuple[str, list[int], int]] = []
        self._rig, self._selected = rig, selected

    def __call__(self, pool: KVPoolDescriptor, index_pool: EngineHostPool) -> BoolVector:
        assert index_pool is self._rig.host_pools["indexer"]
        units = range(self._rig.num_pages)
        still_poison = len(self._rig.wrong(pool.name, units))
        self.seen.append((pool.name, self._rig.wrong("indexer", units), still_poison))
        selected: BoolVector = np.isin(np.arange(len(units)), self._selected)
        return selected


def test_the_index_is_there_before_the_blocks_that_it_selects() -> None:
    rig = Rig([SELECTED, INDEX], 8)
    rig.save()
    rig.log.clear()
    scorer = Scorer(rig, 0, 3, 7)
    report = rig.restore(selector=scorer)
    assert [("kv", [], 8)] == scorer.seen  # all of the index, none of the blocks
    assert [8, 3] == [call.num_keys for call in rig.log.of(Operation.GET)]
    assert [0, 3, 7] == report.arrived["kv"].tolist()
    assert {} == rig.wrong_arrivals(report.arrived)
    kv, index = report.ledger.pools
    assert {SkipReason.NOT_SELECTED: volume(SELECTED, 5)} == kv.skipped
    assert (volume(SELECTED, 8), volume(INDEX, 8)) == (kv.total, index.total)
    assert 32 == report.ledger.used_tokens


def test_a_selected_block_that_is_lost_ends_the_prefix() -> None:
    """At a shorter endpoint the index would have chosen other blocks."""
    writer = Rig([SELECTED, INDEX], 8)
    writer.save()
    lost = EvictBeforeGet(frozenset({writer.key("kv", 3)}), call=2)
    reader = Rig([SELECTED, INDEX], 8, [lost], writer.inner)
    report = reader.restore(selector=Scorer(reader, 0, 3, 7))
    assert (32, 0) == (report.ledger.hit_tokens, report.ledger.used_tokens)
    assert volume(SELECTED, 2) == report.ledger.pools[0].wasted


def test_an_index_that_did_not_arrive_is_not_asked() -> None:
    """Its host pages hold poison; every block is read instead, and the endpoint is resolved from all."""
    writer = Rig([SELECTED, INDEX], 8)
    writer.save()
    lost = EvictBeforeGet(frozenset({writer.key("indexer", 5)}), call=1)
    reader = Rig([SELECTED, INDEX], 8, [lost], writer.inner)
    scorer = Scorer(reader, 7)
    report = reader.restore(selector=scorer)
    assert ([], 20) == (scorer.seen, report.ledger.used_tokens)
    assert volume(SELECTED, 8) == report.ledger.pools[0].read


@pytest.mark.parametrize("policy", [DENSE, HIT_POLICY])
def test_only_selective_asks_the_index(policy: TransferPolicy) -> None:
    rig = Rig([SELECTED, INDEX], 8)
    rig.save()
    scorer = Scorer(rig, 0)
    report = rig.restore(policy, selector=scorer)
    assert ([], 8) == (scorer.seen, len(report.arrived["kv"]))
