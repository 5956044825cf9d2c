"""The figures of the docs, each with the name of its file in docs/images."""

from __future__ import annotations

from collections.abc import Mapping

from hicache_bench.report.plots.break_even import draw_break_even
from hicache_bench.report.plots.capacity import draw_capacity
from hicache_bench.report.plots.catalogue import Drawing
from hicache_bench.report.plots.first_token import draw_first_token
from hicache_bench.report.plots.index_union import draw_index_union
from hicache_bench.report.plots.page_maps import draw_page_maps
from hicache_bench.report.plots.pool_bytes import draw_pool_bytes
from hicache_bench.report.plots.style import THEMES
from hicache_bench.workflows.concepts import CONCEPTS
from hicache_bench.workflows.documents import counted_bytes, counted_unions, modelled_times, replayed_trace
from hicache_bench.workflows.meter import Progress


def document_drawings(progress: Progress) -> list[Drawing]:
    """Make what they show, and say how each is drawn; nothing of it depends on the machine or the day."""
    times = modelled_times(progress)
    return [
        Drawing(name="bytes", records=counted_bytes(progress), draw=draw_pool_bytes),
        Drawing(name="union", records=counted_unions(progress), draw=draw_index_union),
        Drawing(name="ttft", records=times, draw=draw_first_token),
        Drawing(name="break-even", records=times, draw=draw_break_even),
        Drawing(name="capacity", records=replayed_trace(progress), draw=draw_capacity),
        *(
            Drawing(name=f"concept-{name}", records=(make(),), draw=draw_page_maps)
            for name, make in CONCEPTS.items()
        ),
    ]


def document_files(progress: Progress) -> Mapping[str, bytes]:
    """Every figure as SVG in every theme, by file name."""
    files: dict[str, bytes] = {}
    for drawing in document_drawings(progress):
        progress(f"drawing {drawing.name}")
        for theme in THEMES.values():
            files |= drawing.files(theme, ("svg",))
    return files
