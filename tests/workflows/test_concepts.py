from __future__ import annotations

import pytest

from hicache_bench.pools.names import AttentionType
from hicache_bench.workflows.concepts import CONCEPTS

SHOWN = {
    "full": {AttentionType.FULL},
    "mla": {AttentionType.MLA},
    "swa": {AttentionType.SWA},
    "chunked": {AttentionType.CHUNKED},
    "recurrent": {AttentionType.RECURRENT},
    "sparse-index": {AttentionType.SPARSE_INDEX},
    "compressed": {AttentionType.COMPRESSED, AttentionType.COMPRESSOR_STATE},
    "logical-anchor": {AttentionType.LOGICAL},
}


def test_every_attention_type_has_its_page() -> None:
    assert SHOWN.keys() == CONCEPTS.keys()
    assert set(AttentionType) == {attention for attentions in SHOWN.values() for attention in attentions}


@pytest.mark.parametrize("name", CONCEPTS)
def test_a_page_shows_its_types(name: str) -> None:
    concept = CONCEPTS[name]()
    shown = {pool.pool.attention for found in concept.maps for pool in found.pools}
    assert SHOWN[name] <= shown


def test_a_chunk_is_sixteen_pages_and_ends_where_nothing_is_needed() -> None:
    middle, end = CONCEPTS["chunked"]().maps
    assert [8, 0] == [sum(found.pools[1].needed) for found in (middle, end)]


def test_an_index_leaves_pages_to_few_queries() -> None:
    (found,) = CONCEPTS["sparse-index"]().maps
    counts = [row.count("read") for row in found.pools[0].rows]
    assert counts[3] < counts[4] < counts[5] <= counts[2] == 32
