"""``hicache-bench plot``: records in, figures out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hicache_bench.cli.quiet import takes_quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@takes_quiet
def plot_command(
    records: Annotated[
        list[Path] | None, typer.Argument(help="Records, or directories of them.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Directory for the figures: results/plots, or docs/images with --docs.",
            show_default=False,
        ),
    ] = None,
    file_format: str = typer.Option("png", "--format", help="png, svg or both: png,svg."),
    theme: str = typer.Option("light", help="light or dark."),
    docs: bool = typer.Option(
        False, "--docs", help="Draw every figure of the docs anew: SVG, both themes, no record needed."
    ),
    json: bool = typer.Option(False, "--json", help="Print the files as JSON on stdout."),
) -> None:
    """Draw every figure that the records are enough for.

    Of run: bytes by policy and pool, and the union that an index selects over several --queries. Of simulate,
    over several prefixes: time to first token, and the break-even map. Of simulate --trace: hits and resident
    bytes by capacity. Of bench: throughput by object size. A figure is drawn again over itself; any other
    file of its name stays, and is an error.

    Example: hicache-bench plot results/baselines/kitchen-sink.json -o figures --format png,svg
    """
    from hicache_bench.cli.terminal import print_json, print_text, progress
    from hicache_bench.errors import InputError
    from hicache_bench.report.plots.files import DOCUMENT_IMAGES, check_directory, write_figures

    if docs and records:
        raise InputError("--docs makes its own records; leave out either it or the files")
    if not docs and not records:
        raise InputError(
            "no record to draw; give files or directories that hicache-bench run wrote, or --docs"
        )
    directory = out or (DOCUMENT_IMAGES if docs else Path("results/plots"))
    check_directory(directory)
    with progress() as report:
        files = _document_files(report) if docs else _files(records or [], file_format, theme, report)
    paths = [str(path) for path in write_figures(files, directory)]
    if json:
        print_json(paths)
    else:
        print_text("".join(f"{path}\n" for path in paths))


def _document_files(report: Callable[[str], None]) -> Mapping[str, bytes]:
    from hicache_bench.report.plots.documents import document_files

    return document_files(report)


def _files(
    paths: list[Path], file_format: str, theme: str, report: Callable[[str], None]
) -> Mapping[str, bytes]:
    from hicache_bench.cli.terminal import print_note
    from hicache_bench.report.plots.catalogue import drawings_of, load_records
    from hicache_bench.report.plots.files import parse_formats
    from hicache_bench.report.plots.style import parse_theme
    from hicache_bench.workflows.meter import Meter

    formats, chosen = parse_formats(file_format), parse_theme(theme)
    drawings, lacking = drawings_of(load_records(paths))
    for line in lacking:
        print_note(f"not drawn: {line}")
    files: dict[str, bytes] = {}
    meter = Meter(report, [1.0] * len(drawings))
    for drawing in drawings:
        meter(f"drawing {drawing.name}")
        files |= drawing.files(chosen, formats)
        meter.finish()
    return files
