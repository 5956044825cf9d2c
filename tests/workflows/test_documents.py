from __future__ import annotations

from dataclasses import replace

from hicache_bench.records.schema import Evidence
from hicache_bench.workflows.documents import LENGTHS, counted_bytes, modelled_times, replayed_trace
from tests.workflows.runs import quiet


def test_the_byte_chart_is_counted_and_its_lengths_are_those_of_the_docs() -> None:
    (record,) = counted_bytes(quiet)
    assert list(LENGTHS) == [result.tokens for result in record.results]
    assert {Evidence.COUNTED.value} == {result.evidence for result in record.results}


def test_times_show_a_cut_that_selective_escapes() -> None:
    cuts = [[time.is_cut for time in record.policies] for record in modelled_times(quiet)]
    assert any(dense for dense, _, _ in cuts)
    assert not any(selective for _, _, selective in cuts)


def test_what_is_drawn_does_not_depend_on_the_moment() -> None:
    def timeless() -> list[object]:
        records = (*counted_bytes(quiet), *modelled_times(quiet), *replayed_trace(quiet))
        return [replace(record, created_utc="") for record in records]  # type: ignore[type-var]

    assert timeless() == timeless()
