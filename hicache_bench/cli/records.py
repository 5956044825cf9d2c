"""``hicache-bench records``: look at results on disk, join them, take them elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hicache_bench.cli.quiet import takes_quiet

app = typer.Typer(help="Show, list, merge and export records.", no_args_is_help=True)


@app.command("show")
def show_command(
    file: Annotated[Path, typer.Argument(help="A record.")],
    json: bool = typer.Option(False, "--json", help="Print JSON on stdout."),
) -> None:
    """Show a record as the command that made it did.

    Example: hicache-bench records show results/baselines/kitchen-sink.json
    """
    from hicache_bench.cli.terminal import print_json, print_result
    from hicache_bench.records.io import load_record

    record = load_record(file)
    if json:
        print_json(record.to_dict())
    else:
        from hicache_bench.report.records import render_record

        print_result(render_record(record))


@app.command("list")
def list_command(
    directory: Annotated[Path, typer.Argument(help="A directory of records.")] = Path("results/runs"),
    json: bool = typer.Option(False, "--json", help="Print JSON on stdout."),
) -> None:
    """List the records of a directory.

    Those that cannot be read are listed with what is wrong with them.

    Example: hicache-bench records list results/baselines
    """
    from dataclasses import asdict

    from hicache_bench.cli.terminal import print_json, print_result
    from hicache_bench.report.records import listed_in

    listed = listed_in(directory)
    if json:
        print_json([asdict(one) for one in listed])
    else:
        from hicache_bench.report.records import render_listed

        print_result(render_listed(listed))


@app.command("merge")
@takes_quiet
def merge_command(
    files: Annotated[list[Path], typer.Argument(help="Run records of one setting and machine.")],
    out: Annotated[
        Path | None, typer.Option(help="Write the merged record to this .json file, not to stdout.")
    ] = None,
    force: bool = typer.Option(False, "--force", help="Replace the file that --out names."),
) -> None:
    """Join run records of one setting into one.

    Their lengths lie side by side, and the timing samples of one length together.

    Example: hicache-bench records merge monday.json tuesday.json --out both.json
    """
    from hicache_bench.cli.terminal import print_json, print_note
    from hicache_bench.records.io import read_record, write_data
    from hicache_bench.records.merge import merged

    whole = merged([read_record(file) for file in files])
    if out is None:
        print_json(whole)
    else:
        print_note(f"record: {write_data(whole, _target(out), force=force)}")


def _target(out: Path) -> Path:
    from hicache_bench.errors import OutputError

    if out.suffix != ".json" or out.is_dir():
        raise OutputError(f"--out {str(out)!r} is no .json file; name one")
    return out


@app.command("export")
@takes_quiet
def export_command(
    paths: Annotated[list[Path], typer.Argument(help="Records, or directories of them.")],
    json: bool = typer.Option(False, "--json", help="Print the rows as JSON instead of CSV."),
) -> None:
    """Print records as one tidy CSV.

    Run records give a row for each preset, length, rank, policy, pool and reason. Records of simulate or
    of replays alone become the table that is written beside a sweep.

    Example: hicache-bench records export results/baselines > baselines.csv
    """
    from hicache_bench.cli.terminal import print_json, print_note, print_text
    from hicache_bench.records.gate import read_side
    from hicache_bench.records.io import load_record
    from hicache_bench.records.tidy import COLUMNS, csv_text, tidy_rows
    from hicache_bench.report.records import sweep_rows

    filed = [one for path in paths for one in read_side(path)]
    runs = [one.data for one in filed if one.data["kind"] == "run"]
    if runs:
        if len(runs) < len(filed):
            print_note(f"left out: {len(filed) - len(runs)} records that are no runs")
        rows = list(tidy_rows(runs))
        columns: tuple[str, ...] = COLUMNS
    else:
        rows = sweep_rows([load_record(one.path) for one in filed if one.path is not None])
        columns = tuple(rows[0])
    if json:
        print_json(rows)
    else:
        print_text(csv_text(rows, columns))


@app.command("schema")
def schema_command(
    kind: Annotated[str, typer.Argument(help="Kind of record, or a command: presets-list, keys.")] = "run",
) -> None:
    """Print the JSON Schema of records, or of another output.

    That is a kind of record, a gate's report, or what --json prints elsewhere.

    Example: hicache-bench records schema roundtrip
    """
    import difflib

    from hicache_bench.cli.output_schemas import output_kinds, output_schema_text
    from hicache_bench.cli.terminal import print_text
    from hicache_bench.errors import InputError
    from hicache_bench.records.json_schema import WRITERS, schema_text

    if kind in output_kinds():
        print_text(output_schema_text(kind))
        return
    if kind not in WRITERS:
        allowed = (*WRITERS, *output_kinds())
        near = difflib.get_close_matches(kind, allowed, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(f"there is no schema of kind {kind!r}; allowed: {', '.join(allowed)}{hint}")
    print_text(schema_text(kind))
