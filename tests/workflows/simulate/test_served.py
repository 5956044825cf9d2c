from __future__ import annotations

from dataclasses import replace

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.cost.volumes import RankRead
from hicache_bench.errors import InputError
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.records.schema import RunRecord
from hicache_bench.workflows.simulate.served import PrefixRequest, Served
from hicache_bench.workflows.variant import VariantOptions, apply_options
from tests.workflows.runs import PRESETS, cached_run, only_length

SAVE = "state=every:4096,window=all"


def served(preset: str, **options: object) -> Served:
    return Served.of(apply_options(load_model(preset), VariantOptions(**options)))  # type: ignore[arg-type]


def request(tokens: int, save: str = SAVE, local: int = 0) -> PrefixRequest:
    return PrefixRequest(
        prefix_tokens=tokens, suffix_tokens=1, save_policy=SavePolicy.parse(save), local_tokens=local
    )


def by_rank(model: Served, asked: PrefixRequest, policy: TransferPolicy) -> dict[str, RankRead]:
    reads = model.reads(asked, policy)
    return {str(rank): read for read, (_, ranks) in zip(reads, model.stages, strict=True) for rank in ranks}


def assert_as_run(record: RunRecord, model: Served, asked: PrefixRequest) -> None:
    result = only_length(record)
    for index, policy in enumerate(TransferPolicy):
        reads = by_rank(model, asked, policy)
        assert set(reads) == {rank.rank for rank in result.ranks}
        for rank in result.ranks:
            ran, read = rank.policies[index], reads[rank.rank]
            assert ran.policy == policy.value
            assert (ran.read.num_bytes, ran.read.objects, ran.store_calls) == (
                read.num_bytes, read.num_objects, len(read.calls),
            )  # fmt: skip
            assert ran.hit_tokens == read.plan.hit_pages * read.plan.pools[0].pool.page_tokens
            pages = {account.pool: account.read.pages for account in ran.pools}
            assert pages == {item.pool.name: len(item.units) for item in read.plan.pools}
            if read.calls:
                assert pages == {
                    name: len(units) for name, units in read.landed_units(len(read.calls)).items()
                }


@pytest.mark.parametrize("preset", PRESETS)
def test_volumes_are_those_of_a_run(preset: str) -> None:
    """Bytes, objects and calls, on the store of sizes: three batches, the last one not full."""
    tokens = load_model(preset).page_tokens * 300
    assert_as_run(cached_run(preset, tokens), served(preset), request(tokens))


@pytest.mark.parametrize(
    ("preset", "options"),
    [
        ("deepseek-v4-flash", {"tp": 4}),
        ("gpt-oss-120b", {"tp": 8, "pp": 2}),
        ("llama-3.1-8b", {"tp_lcm": 8, "layout": "page_head"}),  # enough components to cut a batch into calls
        ("kitchen-sink", {"tp": 2, "cp": "2:sharded"}),
        ("deepseek-v3", {"tp": 4, "dcp": 2}),
        ("llama-3.1-8b", {"layout": "page_first_direct", "page_tokens": 16}),
    ],
)
def test_volumes_of_every_rank_are_those_of_a_run(preset: str, options: dict[str, object]) -> None:
    assert_as_run(cached_run(preset, 32768, **options), served(preset, **options), request(32768))


@pytest.mark.parametrize("save", ["state=last,window=trailing:+2", "state=all"])
@pytest.mark.parametrize("local", [0, 4096])
def test_what_was_saved_and_what_is_local_count(save: str, local: int) -> None:
    record = cached_run("kitchen-sink", 32768, save_policy=save, local_prefix_tokens=local)
    assert_as_run(record, served("kitchen-sink"), request(32768, save, local))


def test_ranks_that_are_alike_are_planned_once() -> None:
    for preset, copies in (("gpt-oss-120b", [16]), ("deepseek-v3", [8, 8])):  # 61 layers: 30 and 31
        model = served(preset, tp=8, pp=2)
        reads = model.reads(request(8192), TransferPolicy.SELECTIVE)
        assert copies == [read.copies for read in reads]
        assert len(model.spec.layers) // 2 == model.layers_of_a_rank
    assert 1 == served("llama-3.1-8b", pp=32).layers_of_a_rank


def test_a_suffix_leaves_the_whole_prefix_to_match() -> None:
    for suffix, pages in ((1, 128), (512, 128)):
        asked = replace(request(8192), suffix_tokens=suffix)
        (read,) = served("llama-3.1-8b").reads(asked, TransferPolicy.DENSE)
        assert pages == read.plan.hit_pages


def test_a_prefix_shorter_than_a_page_is_refused() -> None:
    with pytest.raises(InputError, match="a prefix of 63 tokens is shorter than a page of 64"):
        served("llama-3.1-8b").reads(request(63), TransferPolicy.DENSE)


def test_every_key_of_the_prefix_is_asked_for() -> None:
    (read,) = served("gpt-oss-120b").reads(request(8192), TransferPolicy.SELECTIVE)
    record = cached_run("gpt-oss-120b", 8192)
    assert only_length(record).ranks[0].lookup_keys == read.lookup_keys == 128 * 4
    assert only_length(record).ranks[0].lookup_calls == read.lookup_calls
