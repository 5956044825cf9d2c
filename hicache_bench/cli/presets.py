"""``hicache-bench presets``: what ships, what one comes to, and files of one's own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hicache_bench.cli.quiet import takes_quiet
from hicache_bench.cli.variant import takes_variant

if TYPE_CHECKING:
    from hicache_bench.config.deployments import DeploymentSummary
    from hicache_bench.workflows.variant import VariantOptions

app = typer.Typer(help="List, show, check, compare and import model presets.", no_args_is_help=True)

_NAME = "Name or alias of a preset, or a path to a .yaml file."


@app.command("list")
def list_command(json: bool = typer.Option(False, "--json", help="Print JSON on stdout.")) -> None:
    """List the shipped model presets.

    Example: hicache-bench presets list
    """
    from dataclasses import asdict

    from hicache_bench.cli.terminal import print_json, print_result
    from hicache_bench.config.catalogue import list_presets

    presets = list_presets()
    if json:
        print_json([asdict(preset) for preset in presets])
    else:
        from hicache_bench.report.preset_list import render_list

        print_result(render_list(presets))


@app.command("links")
def links_command(json: bool = typer.Option(False, "--json", help="Print JSON on stdout.")) -> None:
    """List the shipped links: storage paths that simulate knows.

    Example: hicache-bench presets links
    """
    from hicache_bench.config.deployments import list_links

    _list_deployments(list_links(), "link", json=json)


@app.command("systems")
def systems_command(json: bool = typer.Option(False, "--json", help="Print JSON on stdout.")) -> None:
    """List the shipped systems: nodes of GPUs that simulate knows.

    Example: hicache-bench presets systems
    """
    from hicache_bench.config.deployments import list_systems

    _list_deployments(list_systems(), "system", json=json)


def _list_deployments(found: tuple[DeploymentSummary, ...], what: str, *, json: bool) -> None:
    from dataclasses import asdict

    from hicache_bench.cli.terminal import print_json, print_result

    if json:
        print_json([asdict(entry) for entry in found])
    else:
        from hicache_bench.report.deployment_list import render_deployments

        print_result(render_deployments(found, what))


@app.command("show")
@takes_variant
def show_command(
    variant: VariantOptions,
    name: str = typer.Argument(help=_NAME),
    json: bool = typer.Option(False, "--json", help="Print JSON on stdout."),
) -> None:
    """Show layers, pools, bytes, keys and sources of a preset.

    Example: hicache-bench presets show deepseek --tp 8
    """
    from hicache_bench.cli.terminal import print_json, print_result
    from hicache_bench.config.load import load_model
    from hicache_bench.workflows.footprint import count_bytes
    from hicache_bench.workflows.variant import apply_options

    counted = count_bytes(apply_options(load_model(name), variant))
    if json:
        from hicache_bench.report.preset_data import preset_as_dict

        print_json(preset_as_dict(counted))
    else:
        from hicache_bench.report.presets import render_preset

        print_result(render_preset(counted))


@app.command("check")
def check_command(
    files: Annotated[list[str], typer.Argument(help="Preset files; - reads one from standard input.")],
    json: bool = typer.Option(False, "--json", help="Print JSON on stdout."),
) -> None:
    """Check preset files.

    Fields, layers, pools under every profile, and that every object has a key of its own. Every file is
    checked, whatever is wrong with the others. Exits 2 if one of them is bad.

    Example: hicache-bench presets check presets/models/glm-5.yaml
    """
    from hicache_bench.cli.terminal import print_json, print_result
    from hicache_bench.errors import ConfigError
    from hicache_bench.report.preset_checks import checks_as_list, problem_text, render_checks
    from hicache_bench.workflows.preset_check import check_files

    checks = check_files(files)
    good = [check for check in checks if not check.problems]
    if json:
        print_json(checks_as_list(checks))
    elif good:
        print_result(render_checks(good))
    if len(good) < len(checks):
        raise ConfigError(problem_text(checks))


@app.command("diff")
def diff_command(
    first: str = typer.Argument(help=_NAME),
    second: str = typer.Argument(help=_NAME),
    json: bool = typer.Option(False, "--json", help="Print JSON on stdout."),
) -> None:
    """Show what differs between two presets.

    Fields, layers, dimensions, pools and bytes are compared.

    Example: hicache-bench presets diff deepseek-v3 deepseek-v3.2
    """
    from dataclasses import asdict

    from hicache_bench.cli.terminal import print_json, print_result
    from hicache_bench.config.load import load_model
    from hicache_bench.report.preset_diff import render_diff
    from hicache_bench.workflows.preset_diff import diff_presets

    presets = load_model(first), load_model(second)
    differences = diff_presets(*presets)
    names = [preset.name for preset in presets]
    if json:
        print_json({"presets": names, "differences": [asdict(difference) for difference in differences]})
    else:
        if names[0] == names[1]:
            names = [f"{name} ({given})" for name, given in zip(names, (first, second), strict=True)]
        print_result(render_diff(names[0], names[1], differences))


@app.command("import")
@takes_quiet
def import_command(
    source: str = typer.Argument(help="A config.json, a directory that has one, or - for standard input."),
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; - is stdout, as if not given.")
    ] = None,
    name: str | None = typer.Option(None, help="Name of the preset; what the config says if not given."),
    force: bool = typer.Option(False, "--force", help="Replace the file if it exists."),
) -> None:
    """Make a preset of a model's config.json.

    It is the file that Hugging Face publishes. What was concluded rather than read is told on stderr, and
    noted in the file.

    Example: hicache-bench presets import config.json --out mine.yaml
    """
    from hicache_bench.cli.terminal import print_note, print_text
    from hicache_bench.workflows.preset_import import import_preset, write_file

    if out is not None and str(out) == "-":
        out = None
    if out is not None:
        _check_target(source, out)
    imported = import_preset(source, name=name)
    for note in imported.notes:
        print_note(note if note.startswith("warning:") else f"note: {note}")
    if out is None:
        print_text(imported.text)
        return
    write_file(imported.text, out, force=force)
    spec = imported.preset.spec
    print_text(
        f"{out}: {spec.name}, {len(spec.layers)} layers of {spec.architecture}, digest {spec.digest[:16]}\n"
    )


def _check_target(source: str, out: Path) -> None:
    """Not even ``--force`` may destroy what was imported."""
    from hicache_bench.errors import OutputError

    is_source = False
    for read in (Path(source), Path(source) / "config.json"):
        # One that is not there is no other file's name. ValueError: a NUL byte in the path.
        with suppress(OSError, ValueError):
            is_source |= out.samefile(read)
    if is_source:
        raise OutputError(f"--out {str(out)!r} is the config that is imported; give another path")


@app.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of preset files.

    Editors check and complete them with it.

    Example: hicache-bench presets schema > model.schema.json
    """
    from hicache_bench.config.json_schema import schema_text

    typer.echo(schema_text(), nl=False)
