from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_bench.links.bandwidth import BandwidthModel
from hicache_bench.planning.sparse import dense_is_cheaper, select_units


@given(
    seed=st.integers(0, 2**32 - 1),
    layers=st.integers(1, 3),
    queries=st.integers(1, 5),
    units=st.integers(1, 12),
    rows_per_unit=st.integers(1, 5),
    top_k=st.integers(1, 20),
)
def test_the_selection_is_the_union_over_layers_and_queries(
    seed: int, layers: int, queries: int, units: int, rows_per_unit: int, top_k: int
) -> None:
    """Oracle: sort every row of every query by hand."""
    generator = np.random.default_rng(seed)
    scores = [generator.permuted(np.arange(queries * units * rows_per_unit)) for _ in range(layers)]
    shaped = [layer.reshape(queries, -1).astype(np.float32) for layer in scores]
    expected = {
        row // rows_per_unit
        for layer in shaped
        for query in layer
        for _, row in sorted(((-score, row) for row, score in enumerate(query)))[:top_k]
    }
    selected = select_units(shaped, top_k=top_k, rows_per_unit=rows_per_unit, num_units=units)
    assert expected == set(np.flatnonzero(selected).tolist())


def test_the_union_grows_with_the_queries() -> None:
    scores = np.random.default_rng(7).standard_normal((64, 4096)).astype(np.float32)
    counts = [
        int(select_units([scores[:n]], top_k=8, rows_per_unit=16, num_units=256).sum())
        for n in (1, 4, 16, 64)
    ]
    assert counts == sorted(set(counts))
    assert counts[-1] <= 256


@pytest.mark.parametrize(("selected", "cheaper"), [(1, False), (50, False), (99, True), (100, True)])
def test_a_second_round_is_worth_it_only_below_the_break_even(selected: int, cheaper: bool) -> None:
    link = BandwidthModel(bytes_per_second=1e9, op_seconds=2e-3)  # one call costs 2 MB of transfer
    found = dense_is_cheaper(
        link,
        selected_bytes=selected * 10**6,
        selected_objects=selected,
        all_bytes=100 * 10**6,
        all_objects=100,
    )
    assert cheaper == found
