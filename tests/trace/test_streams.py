from __future__ import annotations

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.errors import ConfigError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import cluster_pools
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.pools.names import AttentionType
from hicache_bench.trace.paths import OutputSave
from hicache_bench.trace.streams import Stream, streams_of, tier_pools
from tests.pool_builders import pool

FULL = pool("kv", AttentionType.FULL)
KEEP_ALL, KEEP_LAST = SavePolicy(), SavePolicy(window_extra_pages=0)


def names(streams: tuple[Stream, ...]) -> list[list[str]]:
    return [[member.pool.name for member in stream.members] for stream in streams]


def streams_of_preset(
    preset: str, policy: TransferPolicy, save: SavePolicy = KEEP_ALL, *, tp: int = 1, **options: object
) -> tuple[Stream, ...]:
    loaded = load_model(preset)
    pools = cluster_pools(loaded.spec, profile=loaded.profile, deployment=Deployment(tp_size=tp))
    return streams_of(tier_pools(pools.values()), policy, save, 300, **options)  # type: ignore[arg-type]


V4_ALL = ["deepseek_v4_c4", "deepseek_v4_c4_indexer", "deepseek_v4_c128"]
V4_LAST = ["swa", "deepseek_v4_c4_state", "deepseek_v4_c4_indexer_state"]


def test_six_pools_of_deepseek_v4_are_two_streams_or_one() -> None:
    for policy in (TransferPolicy.HIT_POLICY, TransferPolicy.SELECTIVE):
        assert [V4_ALL, V4_LAST] == names(streams_of_preset("deepseek-v4-flash", policy))
    (dense,) = names(streams_of_preset("deepseek-v4-flash", TransferPolicy.DENSE))
    assert sorted(V4_ALL + V4_LAST) == sorted(dense)
    assert [V4_ALL, V4_LAST] == names(streams_of_preset("deepseek-v4-flash", TransferPolicy.DENSE, KEEP_LAST))


def test_windows_with_no_whole_pages_beside_them_keep_their_own_rule() -> None:
    window = pool("swa", AttentionType.SWA, window_tokens=16)
    for beside, expected in ((), [(False, ["swa"])]), ((FULL,), [(True, ["kv", "swa"])]):
        streams = streams_of(tier_pools([[*beside, window]]), TransferPolicy.DENSE, KEEP_ALL, 8)
        assert expected == [
            (stream.touches_all, members) for stream, members in zip(streams, names(streams), strict=True)
        ]


def test_states_that_decoding_does_not_save_are_apart_from_windows_that_it_does() -> None:
    streams = streams_of_preset("deepseek-v4-flash", TransferPolicy.SELECTIVE, outputs=OutputSave.ATTENTION)
    assert [V4_ALL, V4_LAST[:1], V4_LAST[1:]] == names(streams)
    assert [False, False, True] == [stream.is_state for stream in streams]


def test_hit_policy_and_selective_behave_alike_where_their_tables_agree() -> None:
    alike = [
        [stream.behaviour for stream in streams_of_preset(preset, TransferPolicy.HIT_POLICY)]
        == [stream.behaviour for stream in streams_of_preset(preset, TransferPolicy.SELECTIVE)]
        for preset in ("deepseek-v4-flash", "deepseek-v3", "kitchen-sink", "llama-4-scout")
    ]
    assert [True, True, True, False] == alike


def test_a_replicated_pool_is_stored_once_and_read_by_every_rank() -> None:
    (one,) = streams_of_preset("deepseek-v3", TransferPolicy.SELECTIVE)[0].members
    (four,) = streams_of_preset("deepseek-v3", TransferPolicy.SELECTIVE, tp=4)[0].members
    assert one.stored_bytes == four.stored_bytes == one.read_bytes
    assert 4 * one.read_bytes == four.read_bytes


def test_a_sharded_pool_is_stored_and_read_in_parts() -> None:
    (one,) = streams_of_preset("llama-3.1-8b", TransferPolicy.SELECTIVE)[0].members
    (four,) = streams_of_preset("llama-3.1-8b", TransferPolicy.SELECTIVE, tp=4)[0].members
    assert (one.stored_bytes, one.read_bytes) == (four.stored_bytes, four.read_bytes)
    assert 4 * one.objects == four.objects
    (sixteen,) = streams_of_preset("llama-3.1-8b", TransferPolicy.SELECTIVE, tp=16)[0].members
    assert 2 * one.stored_bytes == sixteen.stored_bytes  # 8 heads, so each is there twice


def test_units_that_are_used_in_part_are_refused() -> None:
    partial = pool("c128", AttentionType.COMPRESSED, unit_pages=2, partial_units=True)
    with pytest.raises(ConfigError, match="'c128' has units that are used in part"):
        tier_pools([[partial]])


def test_a_logical_pool_is_in_no_stream() -> None:
    assert () == tier_pools([[pool("kv", AttentionType.LOGICAL)]])
