"""``hicache-bench simulate``: parse, model every point, render, write records and a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hicache_bench.cli.variant import takes_variant

if TYPE_CHECKING:
    from hicache_bench.config.schema import ModelPreset
    from hicache_bench.workflows.simulate.recorded import RecordedRun
    from hicache_bench.workflows.variant import VariantOptions

_SAVE_POLICY = "state=every:4096,window=all"
_LIST = "A list is swept."


@takes_variant
def simulate_command(
    variant: VariantOptions,
    preset: str | None = typer.Option(
        None, "--preset", help="Name or alias of a preset, or a path to a .yaml file."
    ),
    source: Annotated[
        Path | None, typer.Option("--from", help="Record of a run to take model and volumes from.")
    ] = None,
    link: str = typer.Option(
        "rdma-4x200g", help="Link, see presets links; a .yaml file, or measured:FILE of bench. " + _LIST
    ),
    system: str = typer.Option("h200", help="GPUs, see presets systems; or a .yaml file. " + _LIST),
    prefix: str | None = typer.Option(
        None, help="Lengths of the saved prefix; 1k,8k,32k,128k, or those of --from."
    ),
    suffix: str = typer.Option("512", help="Tokens of the prompt behind the prefix. " + _LIST),
    policy: str = typer.Option("dense,hit_policy,selective", help="Transfer policies to compare."),
    prefetch: str = typer.Option("timeout", help="timeout, best_effort or wait_complete."),
    prefetch_profile: str = typer.Option("sglang-0.5.23", help="sglang-0.5.23 or sglang-main."),
    save_policy: str = typer.Option(
        _SAVE_POLICY, help="What was saved: state=last|every:K|all, window=all|trailing:+X; one or both."
    ),
    local_prefix: str = typer.Option("0", help="Tokens already in host or device memory. " + _LIST),
    host_capacity: str | None = typer.Option(None, help="Tokens that host memory has room for. " + _LIST),
    concurrency: str = typer.Option("1", help="Equal requests that share the link. " + _LIST),
    queue: str = typer.Option("0", help="Seconds that a request waits for its turn anyway. " + _LIST),
    break_even: bool = typer.Option(
        False, "--break-even", help="Bandwidth above which reuse beats recomputing, and a map of it."
    ),
    hidden_size: str | None = typer.Option(None, help="Width of a model that no system has a fit of."),
    active_parameters: str | None = typer.Option(
        None, help="Its parameters that work on one token, such as 37e9."
    ),
    tp: str | None = typer.Option(
        None, help="Tensor-parallel ranks; those of the fit, or all GPUs, if not given. " + _LIST
    ),
    pp: str = typer.Option("1", help="Pipeline stages. " + _LIST),
    dcp: str = typer.Option("1", help="Decode-context-parallel ranks. " + _LIST),
    tp_lcm: str | None = typer.Option(None, help="Cut the heads into this many objects. " + _LIST),
    page_tokens: str | None = typer.Option(None, help="Tokens of a page. " + _LIST),
    json: bool = typer.Option(False, "--json", help="Print the records as a JSON list on stdout."),
    out: Annotated[Path, typer.Option(help="Directory for the records and the table.")] = Path(
        "results/runs"
    ),
) -> None:
    """Model the time to first token of a prefix that comes from L3, or the break-even bandwidth.

    Bytes, objects and calls are those of the engine's plan; times are modeled with cited constants. Every
    numeric option takes a list: each combination is a point, a record and a row of a CSV table.
    """
    from hicache_bench.cli.lists import number, one_of, optional, values_of, whole
    from hicache_bench.cli.terminal import print_json, print_note, print_result, progress
    from hicache_bench.cost.prefetch import PREFETCH_PROFILES, PrefetchPolicy
    from hicache_bench.errors import InputError
    from hicache_bench.planning.policy import SavePolicy, TransferPolicy
    from hicache_bench.records.io import check_writable, write_record
    from hicache_bench.report.simulate import render_simulation
    from hicache_bench.report.simulate_csv import write_csv
    from hicache_bench.units import parse_seconds, parse_tokens
    from hicache_bench.workflows.environment import reduced_command
    from hicache_bench.workflows.simulate.points import Axes, SimulateOptions
    from hicache_bench.workflows.simulate.recorded import RecordedRun
    from hicache_bench.workflows.simulate.simulate import simulate

    given = _source(preset, source)
    if isinstance(given, RecordedRun):
        _check_recorded(
            variant,
            {
                "--tp": tp, "--page-tokens": page_tokens, "--tp-lcm": tp_lcm,
                "--pp": None if pp == "1" else pp, "--dcp": None if dcp == "1" else dcp,
                "--local-prefix": None if local_prefix == "0" else local_prefix,
                "--save-policy": None if save_policy == _SAVE_POLICY else save_policy,
            },
        )  # fmt: skip
    recorded = given if isinstance(given, RecordedRun) else None
    lengths = "1k,8k,32k,128k" if prefix is None else prefix
    axes = Axes(
        link=values_of("--link", link, str),
        system=values_of("--system", system, str),
        tp=optional("--tp", tp, whole("--tp")),
        pp=values_of("--pp", pp, whole("--pp")),
        dcp=values_of("--dcp", dcp, whole("--dcp")),
        tp_lcm=optional("--tp-lcm", tp_lcm, whole("--tp-lcm")),
        page_tokens=optional("--page-tokens", page_tokens, whole("--page-tokens")),
        hidden_size=optional("--hidden-size", hidden_size, whole("--hidden-size")),
        active_parameters=optional("--active-parameters", active_parameters, number("--active-parameters")),
        save_policy=(recorded.save_policy if recorded else SavePolicy.parse(save_policy),),
        local_tokens=(
            (recorded.local_tokens,) if recorded else values_of("--local-prefix", local_prefix, parse_tokens)
        ),
        host_capacity_tokens=optional("--host-capacity", host_capacity, parse_tokens),
        concurrency=values_of("--concurrency", concurrency, whole("--concurrency")),
        queue_seconds=values_of("--queue", queue, parse_seconds),
        suffix_tokens=values_of("--suffix", suffix, parse_tokens),
        prefix_tokens=(
            tuple(recorded.results)
            if recorded and prefix is None
            else values_of("--prefix", lengths, parse_tokens)
        ),
    )
    options = SimulateOptions(
        source=given,
        axes=axes,
        variant=variant,
        policies=values_of("--policy", policy, one_of("--policy", {p.value: p for p in TransferPolicy})),
        prefetch_policy=one_of("--prefetch", {p.value: p for p in PrefetchPolicy})(prefetch),
        prefetch_profile=one_of("--prefetch-profile", PREFETCH_PROFILES)(prefetch_profile),
        with_break_even=break_even,
        command=reduced_command(["hicache-bench", *sys.argv[1:]]),
    )
    if out.suffix == ".json":
        raise InputError(f"--out {str(out)!r} is one file, and simulate writes several; give a directory")
    check_writable(out)
    with progress() as report:
        records = list(simulate(options, report))
    try:
        paths = [write_record(record, out) for record in records]
        table = write_csv(records, out)
    finally:
        # A full disk must not cost the result of a long sweep.
        if json:
            print_json([record.to_dict() for record in records])
        else:
            print_result(render_simulation(records))
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    print_note(f"record: {paths[0]}{more}")
    print_note(f"table: {table}")


def _source(preset: str | None, record: Path | None) -> ModelPreset | RecordedRun:
    from hicache_bench.config.load import load_model
    from hicache_bench.errors import InputError
    from hicache_bench.workflows.simulate.recorded import read_run

    if (preset is None) == (record is None):
        raise InputError("give a model with --preset, or a record of a run with --from, and not both")
    return load_model(preset) if preset is not None else read_run(Path(str(record)))


def _check_recorded(variant: VariantOptions, own: dict[str, str | None]) -> None:
    from dataclasses import fields

    from hicache_bench.errors import InputError
    from hicache_bench.workflows.variant import VariantOptions

    plain = VariantOptions()
    given = [option for option, value in own.items() if value is not None]
    given += [
        "--" + field.name.replace("_", "-")
        for field in fields(variant)
        if getattr(variant, field.name) != getattr(plain, field.name)
    ]
    if given:
        raise InputError(
            f"{', '.join(given)}: the record of --from says how the model was deployed and saved; leave it "
            "out, or use --preset"
        )
