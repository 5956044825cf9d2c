from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.config.load import load_model
from hicache_bench.errors import InputError
from hicache_bench.pools.keys import KeyUnit, namespace_seed, page_hashes
from hicache_bench.workflows.model_keys import (
    MAX_PROMPT_BYTES,
    example_tokens,
    page_keys,
    prompt_hashes,
    read_prompt,
    shards_of,
)
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options
from tests.golden_file import golden
from tests.workflows.runs import PRESETS


def variant(name: str, **options: Any) -> Variant:
    return apply_options(load_model(name), VariantOptions(**options))


def keys_of(chosen: Variant, page_hash: str = "h0") -> dict[str, list[str]]:
    return {
        name: [key for _, _, key in page_keys(chosen, shards, page_hash)]
        for name, shards in shards_of(chosen).items()
    }


def test_keys_of_every_rank_are_sglangs() -> None:
    rows = [
        row for row in golden()["keys"] if not row["is_mla"] and (row["tp_size"], row["pp_size"]) == (2, 1)
    ]
    assert [0, 1] == [row["tp_rank"] for row in rows if row["config_prefix"] is None]
    found = keys_of(variant("qwen3-next-80b-a3b", tp=2, key_scheme="sglang"))
    for pool, keys in found.items():
        assert [key for row in rows if row["config_prefix"] is None for key in row[pool]] == keys


def test_a_model_name_stands_before_the_hash() -> None:
    chosen = variant("llama-3.1-8b", key_scheme="sglang", model_name="meta-llama/Llama-3.1-8B")
    assert golden()["key_misc"]["prefix model (MHA)"] == keys_of(chosen)["kv"]


def test_heads_in_more_objects_than_ranks() -> None:
    chosen = variant("llama-3.1-8b", key_scheme="sglang", tp=2, tp_lcm=4, layout="page_head")
    expected = golden()["key_misc"]["split_heads tp1of2 lcm4"]
    assert expected == keys_of(chosen)["kv"][4:]


def test_ranks_with_equal_keys_share_a_shard() -> None:  # cases E35, E36
    found = shards_of(variant("kimi-linear-48b-a3b", tp=2))
    assert [("whole", 2)] == [
        (shard.label_of(shard.pool.components[0]), shard.ranks) for shard in found["kv"]
    ]
    assert [("tp0of2", 1), ("tp1of2", 1)] == [
        (shard.label_of(shard.pool.components[0]), shard.ranks) for shard in found["mamba"]
    ]
    latent = shards_of(variant("deepseek-v3", tp=8, pp=2))["kv"]
    assert [("pp0of2", 8), ("pp1of2", 8)] == [
        (shard.label_of(shard.pool.components[0]), shard.ranks) for shard in latent
    ]


@pytest.mark.parametrize("name", PRESETS)
def test_a_logical_pool_has_no_key_and_every_key_is_its_own(name: str) -> None:
    chosen = variant(name, tp=2)
    found = keys_of(chosen)
    pools = {pool.name: pool for pool in next(iter(chosen.pools.values()))}
    assert {pool for pool, entry in pools.items() if not entry.is_logical} == set(found)
    keys = [key for group in found.values() for key in group]
    assert len(keys) == len(set(keys))


def test_example_hashes_are_those_of_the_golden_file() -> None:
    chosen = variant("llama-3.1-8b", page_tokens=4)
    expected = golden()["page_hash"]["get_hash_str([1..8], page 4)"]
    assert expected == prompt_hashes(chosen, example_tokens(8), KeyUnit.TOKEN)


def test_adapter_and_salt_seed_the_chain() -> None:
    tokens = example_tokens(64)
    for options in ({"adapter": "a"}, {"salt": "a"}, {"adapter": "a", "salt": "b"}):
        seed = namespace_seed(options.get("adapter"), options.get("salt"))
        found = prompt_hashes(variant("llama-3.1-8b", **options), tokens, KeyUnit.TOKEN)
        assert page_hashes(tokens, 64, parent=seed) == found


def test_a_prompt_needs_a_page_and_one_token_more_for_bigrams() -> None:
    chosen = variant("llama-3.1-8b")
    assert 1 == len(prompt_hashes(chosen, example_tokens(64), KeyUnit.TOKEN))
    assert 1 == len(prompt_hashes(chosen, example_tokens(65), KeyUnit.BIGRAM))
    with pytest.raises(InputError, match="give at least 64"):
        prompt_hashes(chosen, example_tokens(63), KeyUnit.TOKEN)
    with pytest.raises(InputError, match="give at least 65"):
        prompt_hashes(chosen, example_tokens(64), KeyUnit.BIGRAM)


# --- prompts ------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=30), st.sampled_from([" ", "\n", "\t \r\n"]))
def test_a_prompt_is_read_in_either_form(
    tmp_path_factory: pytest.TempPathFactory, ids: list[int], gap: str
) -> None:
    path = tmp_path_factory.mktemp("prompt") / "ids"
    for text in (str(ids), gap.join(map(str, ids)) + "\n", f"\ufeff {ids}"):
        path.write_text(text, encoding="utf-8")
        found = read_prompt(str(path))
        assert np.uint32 == found.dtype
        assert ids == found.tolist()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"1 two 3", "'two' is no token id"),
        (b"1 -2", "'-2' is no token id"),
        (b"1.5", "'1.5' is no token id"),
        ("١".encode(), "is no token id"),
        (b"[1, 2", "not JSON"),
        (b"[1, true]", "token 1 is true"),
        (b"[1, 2.0]", "token 1 is 2.0"),
        (b'["1"]', "token 0 is '1'"),
        (b"[4294967296]", "token 0 is too large"),
        (b"99999999999999999999 1", "token 0 is too large"),
        (b"9" * 5000, "give a JSON list"),
        (b"[" + b"9" * 5000 + b"]", "give a JSON list"),
        (b"[-1]", "token 0 is -1"),
        (b'{"ids": [1]}', "holds a map"),
        (b'"1 2"', "holds '1 2'"),
        (b"[" * 100_000, "give a JSON list"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_what_is_no_prompt_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "ids"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_prompt(str(path))
    assert reason in str(error.value)
    assert len(str(error.value)) < 400


def test_an_endless_prompt_is_refused() -> None:
    with pytest.raises(InputError, match=f"{MAX_PROMPT_BYTES:,}"):
        read_prompt("/dev/zero")
