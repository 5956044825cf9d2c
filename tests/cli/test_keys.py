from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hicache_bench.pools.keys import KeyUnit, page_hashes
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.local import LocalKVStore
from hicache_bench.workflows import stores
from tests.cli.command import Command
from tests.golden_file import golden

SGLANG = ("--key-scheme", "sglang")


def lines(command: Command, *arguments: object) -> list[str]:
    answer = command("keys", "--preset", *arguments)
    assert (0, "") == (answer.code, answer.err)
    return list(map(str.strip, answer.out.splitlines()))


def test_keys_of_a_page(command: Command) -> None:
    page_hash = "ab" * 32
    found = lines(command, "qwen3-next", "--tp", 2, *SGLANG, "--hash", page_hash)
    rows = [
        row for row in golden()["keys"] if row["tp_size"] == 2 and row["pp_size"] == 1 and not row["is_mla"]
    ]
    expected = {
        key.replace("h0", page_hash)
        for row in rows
        if not row["config_prefix"]
        for pool in ("kv", "mamba")
        for key in row[pool]
    }
    assert expected == {line for line in found if page_hash in line}


def test_without_a_page_a_placeholder_stands_for_its_hash(command: Command) -> None:
    assert "<page hash>__k" in lines(command, "deepseek-v3", *SGLANG)
    assert all("<page hash>" in line for line in lines(command, "deepseek-v3") if line.startswith("hcb1/"))


def test_keys_of_an_example_prompt(command: Command) -> None:
    last = golden()["page_hash"]["get_hash_str([1..8], page 4)"][1]
    found = lines(command, "llama-3.1-8b", "--page-tokens", 4, "--tokens", 9, *SGLANG)
    assert [f"page 1: {last}", "kv (full, all pages, 1 shard)", f"{last}_0_k", f"{last}_0_v"] == found


def test_keys_of_a_prompt(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "prompt.json"
    path.write_text(json.dumps(list(range(1, 10))))
    options = ("--page-tokens", 4, "--prompt", path, "--json")
    data = json.loads(command("keys", "--preset", "llama-3.1-8b", *options).out)
    hashes = golden()["page_hash"]["get_hash_str([1..8], page 4)"]
    assert hashes == [page["hash"] for page in data["pages"]]
    assert [0, 1] == [page["page"] for page in data["pages"]]
    bigrams = page_hashes(np.arange(1, 10, dtype=np.uint32), 4, key_unit=KeyUnit.BIGRAM)
    data = json.loads(command("keys", "--preset", "llama-3.1-8b", *options, "--key-unit", "bigram").out)
    assert ("bigram", bigrams) == (data["key_unit"], [page["hash"] for page in data["pages"]])


def test_a_prompt_on_standard_input(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"1 2 3 4\n5 6 7 8\n")))
    found = lines(command, "llama-3.1-8b", "--page-tokens", 4, "--prompt", "-", *SGLANG)
    assert [f"{page}_0_k" for page in golden()["page_hash"]["get_hash_str([1..8], page 4)"]] == [
        line for line in found if line.endswith("_k")
    ]


def test_a_description_for_routers(command: Command) -> None:  # cases E47
    data = json.loads(command("keys", "--preset", "kimi-linear", "--tp", 2, *SGLANG, "--describe").out)
    kv, mamba = data["pools"]
    assert ("sglang", "token", 64, None) == (
        data["key_scheme"],
        data["key_unit"],
        data["page_tokens"],
        data["chain_seed"],
    )
    assert (None, 1, ["__k"]) == (
        kv["trailing_pages"],
        kv["writers"],
        [entry["suffix"] for entry in kv["shards"][0]["objects"]],
    )
    assert (1, 2, ["_1_temporal", "_1_conv_0"]) == (
        mamba["trailing_pages"],
        mamba["writers"],
        [entry["suffix"] for entry in mamba["shards"][1]["objects"]],
    )


def test_a_logical_anchor_is_described_and_has_no_key(command: Command) -> None:
    data = json.loads(command("keys", "--preset", "deepseek", "--describe").out)
    anchor = data["pools"][0]
    assert ("kv", True, []) == (anchor["name"], anchor["logical"], anchor["shards"])
    assert not any(line.startswith("kv ") for line in lines(command, "deepseek"))


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--hash", "a", "--tokens", "64"), ("--hash and --tokens", "give one")),
        (("--tokens", "8k", "--describe"), ("--describe", "--tokens")),
        (("--find",), ("--find", "--prompt FILE")),
        (("--find", "--prompt", "x"), ("--master HOST:PORT",)),
        (("--find", "--store", "local"), ("'local'", "allowed: mooncake")),
        (("--master", "a:1"), ("--find",)),
        (("--store", "mooncake"), ("--store", "give --find too")),
        (("--hash", "a b"), ("no page hash", "hexadecimal")),
        (("--hash", ""), ("no page hash",)),
        (("--hash", "abc"), ("no page hash", "even number", "64")),
        (("--hash", "0x12"), ("no page hash",)),
        (("--hash", "ab\n"), ("no page hash",)),
        (("--hash", "\u0661\u0662"), ("no page hash",)),
        (("--key-unit", "word"), ("allowed: token, bigram",)),
        (("--tokens", "63"), ("no whole page", "64")),
        (("--tokens", "1e9"), ("16,777,216",)),
        (("--tokens", "many"), ("number of tokens",)),
        (("--prompt", "gone.json"), ("no such file",)),
        (("--key-scheme", "other"), ("namespaced, sglang",)),
    ],
)
def test_what_cannot_be_is_refused(
    command: Command, options: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    command("keys", "--preset", "llama-3.1-8b", *options).assert_refused(2, *parts)


def test_a_pool_that_sglang_has_no_key_for_is_refused(command: Command) -> None:
    scaled = ("--kv-dtype", "fp8-scaled", "--profile", "by_kind")
    command("keys", "--preset", "llama-3.1-8b", *scaled, *SGLANG).assert_refused(2, "SGLang has no key")


@pytest.mark.parametrize("option", ["--salt", "--adapter"])
def test_a_given_hash_is_not_seeded_again_and_that_is_told(command: Command, option: str) -> None:
    plain = ("keys", "--preset", "llama-3.1-8b", *SGLANG)
    unseeded = command(*plain, "--hash", "ab")
    seeded = command(*plain, "--hash", "ab", option, "x")
    assert (0, 0, unseeded.out, "") == (seeded.code, unseeded.code, seeded.out, unseeded.err)
    assert seeded.err.startswith("note: --adapter and --salt enter the hash of a page")
    assert "" == command(*plain, "--tokens", "64", option, "x").err


def test_pages_of_decode_context_ranks_have_one_size_everywhere(command: Command, tmp_path: Path) -> None:
    deployed = ("deepseek-v3", "--tp", 8, "--dcp", 8)
    described = json.loads(command("keys", "--preset", *deployed, "--describe").out)
    shown = json.loads(command("presets", "show", *deployed, "--json").out)
    out = ("--store", "count", "--tokens", "1k", "--out", tmp_path)
    said = command("run", "--preset", *deployed, *out).out
    assert {512} == {described["page_tokens"], shown["page_tokens"], shown["pools"][0]["page_tokens"]}
    assert "pages of 512 tokens, 1 pool\n" in said
    text = command("presets", "show", *deployed).out
    assert "pages of 512 tokens: 64 on each of 8 decode-context ranks" in text


# --- a running store --------------------------------------------------------------------------------------


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[KVStoreBackend]:
    """A store behind ``--master``, which outlives the commands."""
    with LocalKVStore(1 << 20) as store:

        @contextmanager
        def opened(name: str, **options: Any) -> Iterator[stores.OpenStore]:
            assert ("mooncake", "there:1", 0) == (name, options["master"], options["stored_bytes"])
            yield stores.OpenStore(store, {})

        monkeypatch.setattr(stores, "open_store", opened)
        yield store


def write(store: KVStoreBackend, keys: list[str]) -> None:
    byte = np.zeros(1, dtype=np.uint8)
    store.register_buffer(byte.ctypes.data, 1)
    store.batch_put_from(keys, [byte.ctypes.data] * len(keys), [1] * len(keys))


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    path = tmp_path / "prompt"
    path.write_text(" ".join(map(str, range(1, 1026))))
    return path


def find(prompt: Path, *options: object) -> tuple[object, ...]:
    return (
        "keys",
        "--preset",
        "deepseek-v3.2",
        "--find",
        "--prompt",
        prompt,
        "--master",
        "there:1",
        *options,
    )


def written_keys(command: Command, prompt: Path, pool: str, *options: object) -> list[str]:
    data = json.loads(
        command("keys", "--preset", "deepseek-v3.2", "--prompt", prompt, "--json", *options).out
    )
    return [key["key"] for page in data["pages"] for key in page["keys"] if key["pool"] == pool]


def test_an_inventory_of_a_store(
    command: Command, running: KVStoreBackend, prompt: Path
) -> None:  # cases E46
    write(running, written_keys(command, prompt, "kv", *SGLANG))
    answer = command(*find(prompt, *SGLANG))
    assert (0, "") == (answer.code, answer.err)
    rows = [line.split() for line in answer.out.splitlines()]
    assert ["kv", "1", "16", "16", "0", "16/16"] in rows
    assert ["indexer", "1", "16", "0", "0", "0/16"] in rows
    assert ["restorable:", "0", "of", "16", "pages"] in rows
    data = json.loads(command(*find(prompt, *SGLANG, "--json")).out)
    assert (16, 0, None) == (data["keys_found"], data["restorable_pages"], data["hint"])


def test_keys_of_another_unit_are_named(
    command: Command, running: KVStoreBackend, prompt: Path
) -> None:  # E44
    write(running, written_keys(command, prompt, "kv", *SGLANG, "--key-unit", "bigram"))
    answer = command(*find(prompt, *SGLANG))
    assert 1 == answer.code
    assert "0/16" in answer.out
    assert "error: none of the 32 keys of this prompt is in the store" in " ".join(answer.err.split())
    assert "--key-unit bigram" in answer.err


def test_nothing_at_all_is_a_failure(command: Command, running: KVStoreBackend, prompt: Path) -> None:
    answer = command(*find(prompt, "--json"))
    assert 1 == answer.code
    assert "nor with --key-unit bigram, --key-scheme sglang" in json.loads(answer.out)["hint"]


def test_a_master_that_is_not_there(command: Command, prompt: Path) -> None:
    options = ("--find", "--prompt", prompt, "--master", "127.0.0.1:1")
    answer = command("keys", "--preset", "deepseek-v3.2", *options)
    answer.assert_refused(3)
