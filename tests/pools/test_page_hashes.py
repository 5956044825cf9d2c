"""What two prompts share, and bigrams as units of a hash chain (cases E44); ``test_keys`` has its tokens."""

from __future__ import annotations

import hashlib
import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.errors import ConfigError
from hicache_bench.pools.geometry import compressed_components
from hicache_bench.pools.keys import KeyUnit, page_hashes

token_lists = st.lists(st.integers(0, 2**32 - 1), max_size=40)


def chain(tokens: list[int], page_units: int) -> list[str]:
    """SGLang's rule word for word: pairs of neighbours, each as two uint32, a digest before each page."""
    pairs = list(pairwise(tokens))
    digest, hashes = b"", []
    for start in range(0, len(pairs) - page_units + 1, page_units):
        page = b"".join(struct.pack("<II", *pair) for pair in pairs[start : start + page_units])
        digest = hashlib.sha256(digest + page).digest()
        hashes.append(digest.hex())
    return hashes


@given(token_lists, st.integers(1, 8))
def test_bigrams_are_pairs_of_neighbours(tokens: list[int], page: int) -> None:
    found = page_hashes(np.array(tokens, dtype=np.uint32), page, key_unit=KeyUnit.BIGRAM)
    assert chain(tokens, page) == found
    assert max(0, len(tokens) - 1) // page == len(found)


def test_four_tokens_have_three_bigrams() -> None:
    tokens = np.array([1, 2, 3, 4], dtype=np.uint32)
    words = b"".join(struct.pack("<I", word) for word in (1, 2, 2, 3, 3, 4))
    assert [hashlib.sha256(words).hexdigest()] == page_hashes(tokens, 3, key_unit=KeyUnit.BIGRAM)
    assert [] == page_hashes(tokens, 4, key_unit=KeyUnit.BIGRAM)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=9, max_size=40), st.integers(1, 8))
def test_a_chain_of_bigrams_shares_no_hash_with_one_of_tokens(tokens: list[int], page: int) -> None:
    prompt = np.array(tokens, dtype=np.uint32)
    assert not set(page_hashes(prompt, page)) & set(page_hashes(prompt, page, key_unit=KeyUnit.BIGRAM))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=9, max_size=40), st.integers(1, 4))
def test_a_chain_of_bigrams_continues_from_its_parent(tokens: list[int], page: int) -> None:
    prompt = np.array(tokens, dtype=np.uint32)
    whole = page_hashes(prompt, page, key_unit=KeyUnit.BIGRAM)
    rest = page_hashes(prompt[page:], page, parent=whole[0], key_unit=KeyUnit.BIGRAM)
    assert whole[1:] == rest


@pytest.mark.parametrize(("page_tokens", "shared"), [(4, 1020), (64, 960), (256, 768)])
def test_prompts_share_no_page_that_holds_a_part_of_a_group(page_tokens: int, shared: int) -> None:
    """E31: a branch at token 1022 must not reach into the group of 4 that both suffixes would overwrite."""
    one = np.arange(2048, dtype=np.uint32)
    other = one.copy()
    other[1022:] += 1
    chains = [page_hashes(tokens, page_tokens) for tokens in (one, other)]
    common = sum(first == second for first, second in zip(*chains, strict=True))
    assert shared == common * page_tokens
    assert 0 == shared % 4
    compressed_components(num_layers=1, ratio=4, page_tokens=page_tokens)
    with pytest.raises(ConfigError, match="whole groups of 4"):
        compressed_components(num_layers=1, ratio=4, page_tokens=page_tokens - 2)
