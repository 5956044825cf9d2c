from __future__ import annotations

import json
from typing import Any

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.planning.policy import trailing_units
from hicache_bench.pools.keys import KeyUnit
from hicache_bench.report.keys import describe_keys, keys_as_dict, keys_text, render_inventory
from hicache_bench.workflows.key_inventory import Inventory, PoolInventory
from hicache_bench.workflows.model_keys import shards_of
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options
from tests.report.test_presets import text_of
from tests.workflows.runs import PRESETS


def variant(name: str, **options: Any) -> Variant:
    return apply_options(load_model(name), VariantOptions(**options))


def test_a_key_stands_on_a_line_of_its_own() -> None:
    chosen = variant("kimi-linear-48b-a3b", tp=2, key_scheme="sglang")
    assert [
        "page 3: abc",
        "kv (mla, all pages, 1 shard)",
        "  abc__k",
        "mamba (recurrent, trailing 1, 2 shards)",
        "  abc_0_temporal",
        "  abc_0_conv_0",
        "  abc_1_temporal",
        "  abc_1_conv_0",
    ] == list(keys_text(chosen, shards_of(chosen), [(3, "abc")]))
    assert "kv (mla, all pages, 1 shard)" == next(keys_text(chosen, shards_of(chosen), [(-1, "abc")]))


# SGLang may have no key for the pools of what it does not serve.
DESCRIBED = [(name, "namespaced") for name in PRESETS] + [
    (name, "sglang") for name in PRESETS if load_model(name).served_by
]


@pytest.mark.parametrize(("name", "scheme"), DESCRIBED)
def test_a_router_can_build_the_keys_from_the_description(name: str, scheme: str) -> None:  # cases E47
    chosen = variant(name, tp=2, key_scheme=scheme, adapter="lora")
    shards = shards_of(chosen)
    described = json.loads(json.dumps(describe_keys(chosen, shards, KeyUnit.TOKEN), allow_nan=False))
    built = [
        (pool["name"], entry["component"], entry["bytes"], f"{entry['prefix']}h0{entry['suffix']}")
        for pool in described["pools"]
        for shard in pool["shards"]
        for entry in shard["objects"]
    ]
    (page,) = keys_as_dict(chosen, shards, [(0, "h0")], KeyUnit.TOKEN)["pages"]
    assert [(key["pool"], key["component"], key["bytes"], key["key"]) for key in page["keys"]] == built
    assert chosen.chain_seed == described["chain_seed"]
    pools = {pool.name: pool for pool in next(iter(chosen.pools.values()))}
    for entry in described["pools"]:
        pool = pools[entry["name"]]
        trailing = trailing_units(pool) if entry["hit_policy"] == "trailing_pages" else None
        assert trailing == entry["trailing_pages"]
        assert (0 if pool.is_logical else len(entry["shards"])) == entry["writers"]
    assert set(pools) == {entry["name"] for entry in described["pools"]}


def test_writers_and_readers_of_a_shared_pool() -> None:
    chosen = variant("deepseek-v3", tp=8, pp=2)
    (kv,) = describe_keys(chosen, shards_of(chosen), KeyUnit.BIGRAM)["pools"]
    assert (2, 8, ["pp0of2", "pp1of2"]) == (
        kv["writers"],
        kv["readers"],
        [shard["shard"] for shard in kv["shards"]],
    )


def test_an_inventory_is_a_table() -> None:
    pools = [
        PoolInventory(
            pool=name,
            shards=1,
            expected_pages=24,
            found_pages=found,
            other_pages=2,
            expected_keys=24,
            found_keys=found,
        )
        for name, found in (("kv", 24), ("indexer", 0))
    ]
    found = Inventory(num_pages=24, restorable_pages=0, pools=tuple(pools), keys_found=24, keys_asked=48)
    text = text_of(render_inventory(found))
    rows = [line.split() for line in text.splitlines()]
    assert ["kv", "1", "24", "24", "2", "24/24"] in rows
    assert ["indexer", "1", "24", "0", "2", "0/24"] in rows
    assert ["restorable:", "0", "of", "24", "pages"] in rows
    assert "other pages: found too, and not needed to resume at the end of the prompt\n" in text
