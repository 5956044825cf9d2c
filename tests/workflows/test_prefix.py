from __future__ import annotations

import numpy as np
import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError, InputError, MemoryBudgetError
from hicache_bench.fixtures.host_pool import POISON
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.planning.policy import SavePolicy, StateSave
from hicache_bench.pools.registry import PoolDescriptorRegistry
from hicache_bench.units import GIB
from hicache_bench.workflows.prefix import FixtureBytes, PrefixLayout, build_registry, lay_out, prompt_prefix
from tests.engine.rig import ANCHOR, KITCHEN_SINK, LATENT, RATIO, STATE, WINDOW

TRIMMED = SavePolicy(states=StateSave.EVERY, state_interval_tokens=12, window_extra_pages=0)


@pytest.fixture
def registry() -> PoolDescriptorRegistry:
    return build_registry(KITCHEN_SINK)


@pytest.fixture
def layout(registry: PoolDescriptorRegistry) -> PrefixLayout:
    return lay_out(registry, 38, TRIMMED)  # 9 pages of 4 tokens, and 2 tokens that fill none


def test_each_kept_unit_has_one_slot_and_no_slot_is_spare(layout: PrefixLayout) -> None:
    expected = {
        "kv": 9, "indexer": 9, "swa": 3, "chunked": 2, "mamba": 3, "c128": 5, "c4_state": 1, "draft": 9
    }  # fmt: skip
    assert expected == layout.num_slots
    for pool in layout.pools:
        used = layout.slots[pool.name][layout.kept_units(pool)]
        assert list(range(expected[pool.name])) == sorted(used.tolist())
    # States of tokens 12, 24 and 36, the last one.
    assert [2, 5, 8] == layout.kept_units(STATE).tolist()
    assert [6, 7, 8] == layout.kept_units(WINDOW).tolist()


def test_the_anchor_has_no_slots(layout: PrefixLayout) -> None:
    assert ANCHOR.name not in layout.slots
    assert ANCHOR not in layout.pools


def test_bytes_are_those_of_the_kept_units(layout: PrefixLayout) -> None:
    counts = layout.num_slots
    assert sum(counts[pool.name] * pool.unit_bytes for pool in layout.pools) == layout.stored_bytes
    taken = sum(
        framed.base.nbytes
        for host_pool in layout.host_pools(backed=True).values()
        for framed in host_pool._allocations
        if isinstance(framed.base, np.ndarray)
    )
    assert taken == layout.host_bytes


def test_a_prefix_without_a_page_is_refused(registry: PoolDescriptorRegistry) -> None:
    assert 1 == lay_out(registry, 4, SavePolicy()).num_slots["kv"]
    with pytest.raises(InputError, match="3 tokens is shorter than a page of 4; give --tokens 4 or more"):
        lay_out(registry, 3, SavePolicy())


def test_a_prefix_whose_keys_alone_do_not_fit_is_refused(
    registry: PoolDescriptorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hicache_bench.workflows.prefix.usable_memory_bytes", lambda: GIB)
    tokens = 1 << 19
    assert tokens // 4 == lay_out(registry, tokens, SavePolicy()).num_slots["kv"]
    with pytest.raises(MemoryBudgetError, match=r"objects take about .* 1\.00 GiB .*use fewer --tokens"):
        lay_out(registry, 4 * tokens, SavePolicy())
    with pytest.raises(MemoryBudgetError):
        lay_out(registry, 1 << 62, SavePolicy())


def test_a_prompt_is_the_same_each_time_and_one_token_longer(layout: PrefixLayout) -> None:
    one, other = (prompt_prefix(layout, token_seed=7) for _ in range(2))
    assert one.hashes == other.hashes
    assert (39, 9, 9) == (one.prompt_tokens, one.num_pages, len(set(one.hashes)))


def test_prefixes_of_other_lengths_or_seeds_share_no_page(
    registry: PoolDescriptorRegistry, layout: PrefixLayout
) -> None:
    longer = lay_out(registry, 40, TRIMMED)
    hashes = [
        set(prompt_prefix(prefix, token_seed=seed).hashes) for prefix in (layout, longer) for seed in (0, 1)
    ]
    assert sum(map(len, hashes)) == len(set().union(*hashes))


def test_fixture_fills_what_is_kept_and_finds_what_is_wrong(layout: PrefixLayout) -> None:
    host_pools = layout.host_pools(backed=True)
    for host_pool in host_pools.values():
        host_pool.poison()
    fixture = FixtureBytes(layout, seed=3)
    nothing = {pool.name: np.empty(0, dtype=np.int64) for pool in layout.pools}
    everything = {pool.name: layout.kept_units(pool) for pool in layout.pools}
    assert [] == fixture.disturbed(host_pools, nothing)
    fixture.fill(host_pools)
    assert [] == fixture.mismatched(host_pools, everything)
    assert sum(layout.num_slots.values()) == len(fixture.disturbed(host_pools, nothing))
    assert [] == fixture.disturbed(host_pools, everything)
    slot = int(layout.slots["mamba"][5])
    host_pools["mamba"].view(1)[slot] ^= 1
    assert ["mamba:5"] == fixture.mismatched(host_pools, everything)
    host_pools["mamba"].poison()
    host_pools["mamba"].view(0)[slot, 0, 0, 0, 0] = POISON ^ 1
    restored = {**everything, "mamba": nothing["mamba"]}
    assert [f"mamba:{slot}"] == fixture.disturbed(host_pools, restored)


def test_another_seed_writes_other_bytes(layout: PrefixLayout) -> None:
    host_pools = layout.host_pools(backed=True)
    FixtureBytes(layout, seed=3).fill(host_pools)
    everything = {pool.name: layout.kept_units(pool) for pool in layout.pools}
    wrong = FixtureBytes(layout, seed=4).mismatched(host_pools, everything)
    assert sum(map(len, everything.values())) == len(wrong)


def test_pools_that_cannot_live_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="two pools are named"):
        build_registry([LATENT, LATENT])
    with pytest.raises(ConfigError, match="every pool is logical"):
        build_registry([ANCHOR])


def test_a_preset_with_a_unit_of_several_pages_counts_a_part_of_it() -> None:
    layout = lay_out(build_registry([LATENT, RATIO]), 5 * 4, SavePolicy())
    assert {"kv": 5, "c128": 3} == layout.num_slots
    spec = load_model("deepseek").spec
    registry = build_registry(pools_of(spec, profile="sglang-0.5.23"))
    assert 2 == lay_out(registry, 513, SavePolicy()).num_slots["swa"]
