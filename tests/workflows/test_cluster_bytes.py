"""Bytes that ranks really move through one store, and what they must not share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hicache_bench.config.load import load_model
from hicache_bench.engine.lookup import look_up_prefix
from hicache_bench.engine.prefix import Prefix, PrefixKeys
from hicache_bench.errors import InputError
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.planning.resolve import Resolution, resolve_ranks
from hicache_bench.records.schema import RunRecord
from hicache_bench.store.base import MISS, OK, Buffers, KeyResult, KVStoreBackend, error
from hicache_bench.store.local import LocalKVStore
from hicache_bench.store.wrappers import StoreWrapper
from hicache_bench.units import MIB
from hicache_bench.workflows import run as workflow
from hicache_bench.workflows.cluster import lay_out_ranks, members_of
from hicache_bench.workflows.length import LengthJob
from hicache_bench.workflows.prefix import prompt_prefix
from hicache_bench.workflows.rank import Setting
from hicache_bench.workflows.stores import open_store
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options
from tests.workflows.runs import cached_run, only_length, quiet, read_bytes, run_now

TOKENS = 1024
TP4_PP2: dict[str, Any] = {"tp": 4, "pp": 2}
DIFFER = "restored pages that differ from the saved ones"


@pytest.mark.parametrize(
    "options",
    [
        TP4_PP2,
        {"tp": 2, "cp": "2:replicated"},
        {"cp": "4:sharded", "profile": "by_kind"},
        {"tp": 2, "layout": "page_head", "salt": "tenant"},
        {"tp": 2, "local_prefix_tokens": 512},
    ],
    ids=str,
)
def test_every_rank_gets_its_own_bytes_back(options: dict[str, Any]) -> None:
    moved, counted = (
        cached_run("kitchen-sink", TOKENS, store=store, **options) for store in ("local", "count")
    )
    assert ((), ()) == (moved.failed_checks, counted.failed_checks)
    assert ("measured", "counted") == (only_length(moved).evidence, only_length(counted).evidence)
    assert only_length(moved).stored == only_length(counted).stored
    assert only_length(moved).policies == only_length(counted).policies
    for one, other in zip(only_length(moved).ranks, only_length(counted).ranks, strict=True):
        assert (one.rank, one.saved) == (other.rank, other.saved)
        assert {1} == {len(policy.seconds) for policy in one.policies}
    # Of each rank: one look-up check, and seven for each policy; one writer of each object; three searches.
    assert 1 + 3 + (1 + 7 * 3) * len(only_length(moved).ranks) == len(only_length(moved).checks)


class SwapsRanks(StoreWrapper):
    """Reads of one rank's shard get those of its neighbour, which has the same sizes."""

    def batch_get_into(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        swap = {"/tp0of4/": "/tp1of4/", "/tp1of4/": "/tp0of4/"}
        wrong = [
            next((key.replace(own, other) for own, other in swap.items() if own in key), key) for key in keys
        ]
        return super().batch_get_into(wrong, addresses, sizes)


class OverwritesNothing(StoreWrapper):
    """Claims that each rank wrote what it found there already."""

    def batch_put_from(self, keys: Sequence[str], addresses: Buffers, sizes: Buffers) -> list[KeyResult]:
        return [OK for _ in super().batch_put_from(keys, addresses, sizes)]


@pytest.fixture
def run_on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[KVStoreBackend], Any]], RunRecord]:
    """Run the synthetic model on TP 4 and PP 2, on a local store inside of something else."""

    def run_wrapped(wrap: Callable[[KVStoreBackend], Any]) -> RunRecord:
        @contextmanager
        def cheating(*arguments: Any, **options: Any) -> Iterator[Any]:
            with open_store(*arguments, **options) as opened:
                yield replace(opened, backend=wrap(opened.backend))

        monkeypatch.setattr(workflow, "open_store", cheating)
        return run_now("kitchen-sink", TOKENS, store="local", **TP4_PP2)

    return run_wrapped


def test_the_bytes_of_two_ranks_cannot_be_exchanged(
    run_on: Callable[[Callable[[KVStoreBackend], Any]], RunRecord],
) -> None:
    record = run_on(SwapsRanks)
    labels = [check.name.partition(": ") for check in record.failed_checks]
    assert {DIFFER} == {what for _, _, what in labels}
    policies = ("dense", "hit_policy", "selective")
    ranks = [f"tp{tp} pp{pp}" for pp in (0, 1) for tp in (0, 1)]
    expected = [f"{policy} at 1k tokens on {rank}" for rank in ranks for policy in policies]
    assert expected == [where for where, _, _ in labels]
    # Windows and states are sharded; the latent and the index are the same on every rank.
    assert all("swa:" in check.actual or "mamba:" in check.actual for check in record.failed_checks)
    assert not any("mla:" in check.actual or "indexer:" in check.actual for check in record.failed_checks)


def test_two_writers_of_one_object_are_found(
    run_on: Callable[[Callable[[KVStoreBackend], Any]], RunRecord],
) -> None:
    record = run_on(OverwritesNothing)
    assert ["1k tokens: objects written by all ranks, each once"] == [
        check.name for check in record.failed_checks
    ]


def test_a_rank_that_lacks_pages_shortens_the_prefix_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read ends where every rank can go on, though one rank alone could go further."""

    def without_the_last(resolutions: Sequence[Resolution]) -> Resolution:
        first, *others = resolutions
        legal = first.legal.copy()
        legal[9:] = False
        return resolve_ranks([replace(first, legal=legal), *others])

    monkeypatch.setattr("hicache_bench.workflows.length.resolve_ranks", without_the_last)
    record = run_now("deepseek-v3", TOKENS, tp=2)
    for rank in only_length(record).ranks:
        assert {8 * 64} == {policy.used_tokens for policy in rank.policies}
        assert {8} == {policy.read.pages for policy in rank.policies}
    assert {"tokens used", "hit of a lookup of what decides"} == {
        check.name.partition(": ")[2] for check in record.failed_checks
    }


def job_on(store: KVStoreBackend, variant: Variant) -> LengthJob:
    setting = Setting(
        keys=variant.keys,
        chain_seed=variant.chain_seed,
        store=store,
        save_policy=SavePolicy(),
        local_prefix_tokens=0,
        num_queries=0,
        repeat=1,
        token_seed=0,
        progress=quiet,
    )
    cluster = lay_out_ranks(members_of(variant), 512, SavePolicy())
    return LengthJob(
        cluster=cluster, setting=setting, memory_bytes=0, evidence_reason=None, store_settings={}
    )


def variant_of(preset: str = "kitchen-sink", **options: Any) -> Variant:
    return apply_options(load_model(preset), VariantOptions(**options))


def prefixes(variant: Variant) -> Iterator[tuple[Any, Prefix]]:
    cluster = lay_out_ranks(members_of(variant), 512, SavePolicy())
    for member, layout in zip(cluster.members, cluster.layouts, strict=True):
        yield member, prompt_prefix(layout, token_seed=0, chain_seed=variant.chain_seed)


def found(store: KVStoreBackend, variant: Variant) -> set[bool]:
    """Whether a lookup on any rank finds any unit, or misses one that the save keeps."""
    flags: set[bool] = set()
    for member, prefix in prefixes(variant):
        pools = member.registry.registered
        lookup = look_up_prefix(pools, PrefixKeys(variant.keys), store, prefix)
        assert 0 == lookup.errors
        for pool in pools:
            flags |= set(lookup.presence[pool.name][prefix.slots[pool.name] >= 0].tolist())
    return flags


def test_all_ranks_of_a_run_are_removed_from_a_store_that_goes_on() -> None:
    variant = variant_of(**TP4_PP2)
    with LocalKVStore(64 * MIB) as store:
        job = job_on(store, variant)
        result = job.run()
        assert {True} == found(store, variant)
        assert 0 == job.remove()
        assert {False} == found(store, variant)
        assert result.stored.objects > 0
        keys = [
            key
            for member, prefix in prefixes(variant)
            for pool in member.registry.registered
            for key in PrefixKeys(variant.keys).asked(pool, prefix)
        ]
        assert {MISS} == set(store.batch_exists(keys))


class Unreachable(StoreWrapper):
    """A store whose master is gone when objects are to be removed; ``asked`` counts how often it waited."""

    asked = 0

    def remove(self, key: str, *, force: bool = False) -> KeyResult:
        self.asked += 1
        return error(-900)


def test_a_lost_master_is_waited_for_once_not_once_a_rank() -> None:
    with LocalKVStore(64 * MIB) as inner:
        store = Unreachable(inner)
        job = job_on(store, variant_of(**TP4_PP2))
        result = job.run()
        assert result.stored.objects == job.remove()
        assert 1 == store.asked


TENANTS: list[dict[str, str]] = [
    {}, {"salt": ""}, {"salt": "a"}, {"adapter": "a"}, {"adapter": ""},
    {"adapter": "a", "salt": "bc"}, {"adapter": "ab", "salt": "c"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("preset", "key_scheme"), [("kitchen-sink", "namespaced"), ("gpt-oss-20b", "sglang")]
)
def test_tenants_and_adapters_find_nothing_of_each_other(preset: str, key_scheme: str) -> None:
    variants = [variant_of(preset, key_scheme=key_scheme, tp=2, **tenant) for tenant in TENANTS]
    for saved in variants:
        with LocalKVStore(64 * MIB) as store:
            job_on(store, saved).run()
            assert [{saved is other} for other in variants] == [found(store, other) for other in variants]


def test_no_adapter_and_no_salt_leave_the_hashes_as_they_were() -> None:
    layout = lay_out_ranks(members_of(variant_of()), 512, SavePolicy()).layouts[0]
    plain = prompt_prefix(layout, token_seed=0)
    assert plain.hashes == prompt_prefix(layout, token_seed=0, chain_seed=variant_of().chain_seed).hashes
    salted = prompt_prefix(layout, token_seed=0, chain_seed=variant_of(salt="s").chain_seed)
    assert not set(plain.hashes) & set(salted.hashes)


def test_what_a_record_says_of_a_tenant_is_not_its_name() -> None:
    plain, salted = (run_now("kitchen-sink", TOKENS, **tenant) for tenant in ({}, {"salt": "hunter2"}))
    assert (None, None) == (plain.salt, plain.adapter)
    # sha256 of the salt, by hand.
    assert "f52fbd32b2b3b86f" == salted.salt
    assert "hunter2" not in str(salted.to_dict())
    assert plain.namespace != salted.namespace
    assert read_bytes(plain) == read_bytes(salted)


def test_names_of_sglangs_keys_are_recorded() -> None:
    names = {"model_name": "org/model", "extra_backend_tag": "blue"}
    record = run_now("deepseek-v3", TOKENS, key_scheme="sglang", adapter="law", **names)
    assert names == {name: getattr(record, name) for name in names}
    assert record.adapter is not None
    assert "law" not in record.adapter


@pytest.mark.parametrize("options", [{"cp": "2:sharded"}, {"tp": 2, "dcp": 2}], ids=str)
def test_an_index_that_ranks_share_out_cannot_be_scored(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="--queries scores an index that is whole on every rank"):
        run_now("deepseek-v3.2", TOKENS, num_queries=1, profile="by_kind", **options)


def test_each_rank_scores_the_index_that_it_restored() -> None:
    alone, ranks = (cached_run("deepseek-v3.2", 6144, num_queries=1, tp=tp) for tp in (1, 2))
    (expected,) = [rank.policies[2] for rank in only_length(alone).ranks]
    assert [expected.read, expected.read] == [rank.policies[2].read for rank in only_length(ranks).ranks]
    assert expected.notes
    assert np.all([rank.policies[2].notes == expected.notes for rank in only_length(ranks).ranks])
