"""``hicache-bench presets``: what ships, and what one preset comes to."""

from __future__ import annotations

import typer

app = typer.Typer(help="List and show model presets.", no_args_is_help=True)


@app.command("list")
def list_command(json: bool = typer.Option(False, "--json", help="Print JSON on stdout.")) -> None:
    """List the shipped model presets."""
    from dataclasses import asdict

    from hicache_bench.cli.terminal import print_json, print_result
    from hicache_bench.config.load import list_presets
    from hicache_bench.report.presets import render_list

    presets = list_presets()
    if json:
        print_json([asdict(preset) for preset in presets])
    else:
        print_result(render_list(presets))


@app.command("show")
def show_command(
    name: str = typer.Argument(help="Name or alias of a preset, or a path to a .yaml file."),
    json: bool = typer.Option(False, "--json", help="Print JSON on stdout."),
) -> None:
    """Show a preset: layers, pools, bytes of a page, and the source of each dimension."""
    from hicache_bench.cli.terminal import print_json, print_result
    from hicache_bench.config.load import load_model
    from hicache_bench.report.presets import preset_as_dict, render_preset

    preset = load_model(name)
    if json:
        print_json(preset_as_dict(preset))
    else:
        print_result(render_preset(preset))
