"""``hicache-bench simulate``: parse, model every point, render, write records and a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hicache_bench.cli.quiet import takes_quiet
from hicache_bench.cli.simulate_modes import Given, Mode, mode_of
from hicache_bench.cli.variant import takes_variant

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hicache_bench.cost.prefetch import PrefetchOptions
    from hicache_bench.workflows.replay_options import ReplayArguments
    from hicache_bench.workflows.variant import VariantOptions

_SAVE_POLICY = "state=every:4096,window=all"
_LIST = "A list is swept."


@takes_variant
@takes_quiet
def simulate_command(
    variant: VariantOptions,
    context: typer.Context,
    preset: str | None = typer.Option(
        None, "--preset", help="Name or alias of a preset, or a path to a .yaml file."
    ),
    source: Annotated[
        Path | None, typer.Option("--from", help="Record of a run to take model and volumes from.")
    ] = None,
    trace: str | None = typer.Option(
        None, "--trace", help="Trace of requests to replay: a shipped name, or a .jsonl or .jsonl.gz file."
    ),
    capacity: str = typer.Option(
        "64GiB,256GiB,1TiB,inf", help="With --trace: sizes of the tier, all in one record; inf: no bound."
    ),
    eviction: str = typer.Option("lru", help="With --trace: lru, fifo, optimal, or several."),
    trace_block_tokens: int | None = typer.Option(
        None, help="With --trace: tokens of a block, where the file does not say and they are not 512."
    ),
    on_error: str = typer.Option(
        "refuse", help="With --trace: what a malformed line does: refuse the trace, or skip."
    ),
    measure: str = typer.Option("all", help="With --trace: requests that are measured: all, or last:50%."),
    hit_definition: str = typer.Option(
        "engine", help="With --trace: engine (whole pages, legal in every pool), or trace (blocks)."
    ),
    include_output: str = typer.Option(
        "none", help="With --trace: outputs that are saved: none, attention (no states), or all."
    ),
    threshold: str | None = typer.Option(
        None,
        help="With --trace: fewest tokens worth a read; 0, or those of the prefetch profile. " + _LIST,
    ),
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
        _SAVE_POLICY,
        help="What is saved: state=last|every:K|all, window=all|trailing:+X; one or both. With --trace, "
        "alternatives joined by | are swept within a record, and without it two saves are compared.",
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
        None,
        help="Tensor-parallel ranks; those of the fit, or all GPUs, if not given, and 1 where no time is "
        "modeled. " + _LIST,
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
    """Model the time to first token, break-even, or a trace.

    The time is that of a prompt whose prefix comes from L3; break-even is the bandwidth from which on
    that beats computing it again. Bytes, objects and calls are those of the engine's plan; times are
    modeled with cited constants. Every numeric option takes a list: each combination is a point, a record
    and rows of a CSV table.

    With --trace, requests are replayed against tiers of each capacity; seconds are modeled if a link or a
    system is given.

    Example: hicache-bench simulate --preset deepseek --prefix 8k,32k --link s3
    """
    from hicache_bench.cli.lists import number, one_of, optional, values_of, whole
    from hicache_bench.errors import InputError
    from hicache_bench.records.io import check_writable
    from hicache_bench.units import parse_seconds, parse_tokens

    given = Given.of(context)
    mode = mode_of(given)
    if out.suffix == ".json":
        raise InputError(f"--out {str(out)!r} is one file, and simulate writes several; give a directory")
    axes: dict[str, Any] = {
        "link": values_of("--link", link, str),
        "system": values_of("--system", system, str),
        "tp": optional("--tp", tp, whole("--tp")),
        "pp": values_of("--pp", pp, whole("--pp")),
        "dcp": values_of("--dcp", dcp, whole("--dcp")),
        "tp_lcm": optional("--tp-lcm", tp_lcm, whole("--tp-lcm")),
        "page_tokens": optional("--page-tokens", page_tokens, whole("--page-tokens")),
        "hidden_size": optional("--hidden-size", hidden_size, whole("--hidden-size")),
        "active_parameters": optional(
            "--active-parameters", active_parameters, number("--active-parameters")
        ),
        "local_tokens": values_of("--local-prefix", local_prefix, parse_tokens),
        "host_capacity_tokens": optional("--host-capacity", host_capacity, parse_tokens),
        "concurrency": values_of("--concurrency", concurrency, whole("--concurrency")),
        "queue_seconds": values_of("--queue", queue, parse_seconds),
    }
    if mode is Mode.TRACE:
        from hicache_bench.workflows.replay_options import ReplayArguments

        arguments = ReplayArguments(
            trace=str(trace),
            trace_block_tokens=trace_block_tokens,
            on_error=on_error,
            capacity=capacity,
            eviction=eviction,
            policy=policy,
            save_policy=save_policy if "save_policy" in given else None,
            measure=measure,
            hit_definition=hit_definition,
            include_output=include_output,
        )
        axes["threshold_tokens"] = optional("--threshold", threshold, parse_tokens)
        timed = _prefetch_options(prefetch, prefetch_profile) if given.models_time else None
        check_writable(out)
        _replay(str(preset), arguments, axes, variant, timed, out, as_json=json)
        return

    from hicache_bench.config.load import load_model
    from hicache_bench.planning.policy import SavePolicy, TransferPolicy
    from hicache_bench.report.simulate import render_simulation
    from hicache_bench.report.simulate_csv import rows_of
    from hicache_bench.workflows.simulate.points import Axes, SimulateOptions
    from hicache_bench.workflows.simulate.recorded import read_run
    from hicache_bench.workflows.simulate.simulate import simulate

    recorded = read_run(Path(str(source))) if mode is Mode.RECORD else None
    lengths = "1k,8k,32k,128k" if prefix is None else prefix
    if recorded is not None:
        axes["local_tokens"] = (recorded.local_tokens,)
    options = SimulateOptions(
        source=recorded or load_model(str(preset)),
        axes=Axes(
            **axes,
            save_policy=(recorded.save_policy if recorded else SavePolicy.parse(save_policy),),
            suffix_tokens=values_of("--suffix", suffix, parse_tokens),
            prefix_tokens=(
                tuple(recorded.results)
                if recorded and prefix is None
                else values_of("--prefix", lengths, parse_tokens)
            ),
        ),
        variant=variant,
        policies=values_of("--policy", policy, one_of("--policy", {p.value: p for p in TransferPolicy})),
        prefetch=_prefetch_options(prefetch, prefetch_profile),
        with_break_even=break_even,
        command=_command(),
    )
    check_writable(out)
    _deliver(lambda report: simulate(options, report), out, rows_of, render_simulation, as_json=json)


def _replay(
    preset: str,
    arguments: ReplayArguments,
    axes: dict[str, Any],
    variant: VariantOptions,
    prefetch: PrefetchOptions | None,
    out: Path,
    *,
    as_json: bool,
) -> None:
    from hicache_bench.config.load import load_model
    from hicache_bench.report.replay import render_replays, tidy_rows
    from hicache_bench.workflows.replay_sweep import ReplayAxes, SweepOptions, replay_sweep

    if prefetch is None:
        axes |= {"link": (None,), "system": (None,)}
    options = SweepOptions(
        source=load_model(preset),
        arguments=arguments,
        axes=ReplayAxes(**axes),
        variant=variant,
        prefetch=prefetch,
        command=_command(),
    )
    _deliver(lambda report: replay_sweep(options, report), out, tidy_rows, render_replays, as_json=as_json)


def _deliver(
    model: Callable[[Callable[[str], None]], Iterator[Any]],
    out: Path,
    rows_of: Callable[[Sequence[Any]], Iterable[Mapping[str, object]]],
    render: Callable[[Sequence[Any]], RenderableType],
    *,
    as_json: bool,
) -> None:
    """Model every point; write a record of each and one table of all; print them."""
    from hicache_bench.cli.terminal import print_json, print_note, print_result, progress
    from hicache_bench.records.io import write_record
    from hicache_bench.report.sweep_csv import write_rows

    with progress() as report:
        records = list(model(report))
    try:
        paths = [write_record(record, out) for record in records]
        table = write_rows(list(rows_of(records)), records[0], out)
    finally:
        # A full disk must not cost the result of a long sweep.
        if as_json:
            print_json([record.to_dict() for record in records])
        else:
            print_result(render(records))
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    print_note(f"record: {paths[0]}{more}")
    print_note(f"table: {table}")


def _prefetch_options(policy: str, profile: str) -> PrefetchOptions:
    from hicache_bench.cli.lists import one_of
    from hicache_bench.cost.prefetch import PREFETCH_PROFILES, PrefetchOptions, PrefetchPolicy

    return PrefetchOptions(
        policy=one_of("--prefetch", {p.value: p for p in PrefetchPolicy})(policy),
        profile=one_of("--prefetch-profile", PREFETCH_PROFILES)(profile),
    )


def _command() -> tuple[str, ...]:
    from hicache_bench.workflows.environment import reduced_command

    return reduced_command(["hicache-bench", *sys.argv[1:]])
