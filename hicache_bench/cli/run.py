"""``hicache-bench run``: parse, call the workflow, render, write the record."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hicache_bench.cli.cluster import Master, MasterHttpPort, Segment
from hicache_bench.cli.metrics import takes_metrics
from hicache_bench.cli.quiet import takes_quiet
from hicache_bench.cli.variant import takes_variant

if TYPE_CHECKING:
    from hicache_bench.engine.metrics import MetricsSink
    from hicache_bench.records.gate import Filed
    from hicache_bench.records.schema import RunRecord
    from hicache_bench.workflows.gate import GateOptions
    from hicache_bench.workflows.meter import Progress
    from hicache_bench.workflows.run import RunOptions
    from hicache_bench.workflows.variant import Variant, VariantOptions


@takes_variant
@takes_metrics
@takes_quiet
def run_command(
    variant: VariantOptions,
    metrics: MetricsSink | None,
    preset: str = typer.Option(
        ..., "--preset", help="Names or aliases of presets, comma-separated, a .yaml file, or all."
    ),
    tokens: str = typer.Option("8k", help="Prefix lengths, comma-separated: 8k,32k,1M (k = 1,024)."),
    save_policy: str = typer.Option(
        "state=every:4096,window=all",
        help="What a save keeps: state=last|every:K|all, window=all|trailing:+X; one or both.",
    ),
    local_prefix: str = typer.Option("0", help="Tokens already in host or device memory; not read again."),
    store: str = typer.Option("local", help="local (embedded), count (sizes only) or mooncake."),
    master: Master = None,
    master_http_port: MasterHttpPort = None,
    segment: Segment = None,
    queries: int = typer.Option(
        0,
        min=0,
        max=1_000_000,
        help="Read only blocks that the index selects for this many queries; 0 reads all.",
    ),
    repeat: int = typer.Option(3, min=1, help="Restores timed under each policy."),
    memory: str | None = typer.Option(None, help="Memory that a run may take, such as 4GiB."),
    json: bool = typer.Option(False, "--json", help="Print the record as JSON on stdout."),
    out: Annotated[
        Path, typer.Option(help="Directory for the record, or a .json file for the one record.")
    ] = Path("results/runs"),
    force: bool = typer.Option(False, "--force", help="Replace the file that --out names."),
    gate: Annotated[
        Path | None, typer.Option(help="Compare with this baseline, or these; exit with 1 if worse.")
    ] = None,
    max_regression: str | None = typer.Option(
        None, help="With --gate: how much worse figures may get, such as bytes=0%,time=10%."
    ),
    strict: bool = typer.Option(
        False, "--strict", help="With --gate: exit with 1 where time could not be judged."
    ),
    update: bool = typer.Option(False, "--update", help="With --gate: make the records its baselines."),
) -> None:
    """Save a prefix, restore it, and report what each policy costs.

    Every rank saves the prefix through the engine, forgets it, finds it, restores it under the policies
    dense, hit_policy and selective, and checks it byte for byte. A record is written for each preset.

    Example: hicache-bench run --preset deepseek --tokens 8k,1M --store count
    """
    from hicache_bench.cli.choice import ALL, chosen_presets
    from hicache_bench.cli.terminal import print_note, progress
    from hicache_bench.errors import InputError, VerificationError
    from hicache_bench.planning.policy import SavePolicy
    from hicache_bench.records.io import check_writable, write_record
    from hicache_bench.units import parse_memory, parse_size, parse_tokens
    from hicache_bench.workflows.environment import reduced_command
    from hicache_bench.workflows.meter import Meter
    from hicache_bench.workflows.run import RunOptions, run, work_of
    from hicache_bench.workflows.variant import apply_options

    chosen = [apply_options(found, variant) for found in chosen_presets(preset)]
    for one in chosen:
        _ = one.pools  # what an engine refuses of the last preset is refused before the first is run
    if queries:
        for one in chosen:
            _check_index(one)
    gating = _gating(gate, out, max_regression, strict=strict, update=update)
    jobs = [
        RunOptions(
            variant=one,
            token_lengths=tuple(parse_tokens(length) for length in tokens.split(",")),
            save_policy=SavePolicy.parse(save_policy),
            local_prefix_tokens=parse_tokens(local_prefix),
            store=store,
            master=master,
            master_http_port=master_http_port,
            segment_bytes=None if segment is None else parse_size(segment),
            num_queries=queries,
            repeat=repeat,
            memory_bytes=None if memory is None else parse_memory(memory),
            metrics=metrics,
            command=reduced_command(["hicache-bench", *sys.argv[1:]]),
        )
        for one in chosen
    ]
    if len(jobs) > 1 and out.suffix == ".json":
        raise InputError(f"--out {out.name} is one file, and there are {len(jobs)} records; give a directory")
    check_writable(out, force=force)
    records: list[RunRecord] = []
    paths: list[Path] = []
    try:
        with progress() as report:
            meter = Meter(report, [sum(work_of(job).values()) for job in jobs])
            for job in jobs:
                records.append(run(job, _named(job, meter), print_note, meter.within))
                paths.append(write_record(records[-1], out, force=force))
                meter.finish()
    finally:
        # A full disk must not cost the result of a long run, nor the last preset those before it.
        if records:
            _show(records, are_several=len(jobs) > 1, as_json=json)
    if len(paths) == 1:
        print_note(f"record: {paths[0]}")
    else:
        print_note(f"{len(paths)} records in {out}")
    failed = sum(len(record.failed_checks) for record in records)
    exit_code = (
        0 if gating is None else _gate(*gating, records, complete=preset.casefold() == ALL, as_json=json)
    )
    if failed:
        raise VerificationError(f"{failed} checks failed; the record says what was expected and found")
    if exit_code:
        raise typer.Exit(exit_code)


def _named(job: RunOptions, progress: Progress) -> Progress:
    return lambda step: progress(f"{job.variant.spec.name}, {step}")


def _gating(
    baseline: Path | None, out: Path, max_regression: str | None, *, strict: bool, update: bool
) -> tuple[GateOptions, list[Filed]] | None:
    """What ``--gate`` asks for, and the baselines as they are before any work; None without it."""
    from hicache_bench.errors import InputError

    if baseline is None:
        given = {"--max-regression": max_regression is not None, "--strict": strict, "--update": update}
        for option in (name for name, is_given in given.items() if is_given):
            raise InputError(f"{option} says how to gate, and nothing is gated; give --gate BASELINE too")
        return None
    from hicache_bench.cli.gate import parsed_thresholds
    from hicache_bench.workflows.gate import GateOptions, baselines_of, check_outside

    options = GateOptions(
        baseline=baseline, thresholds=parsed_thresholds(max_regression), strict=strict, accepts=update
    )
    check_outside(baseline, out)
    return options, baselines_of(options)


def _show(records: Sequence[RunRecord], *, are_several: bool, as_json: bool) -> None:
    """One record as its tables, several as a line for each length; as JSON whole, several as a list.

    Several that were asked for stay a list where only one was made: who reads it relies on that.
    """
    from hicache_bench.cli.terminal import print_json, print_result

    if as_json:
        print_json([record.to_dict() for record in records] if are_several else records[0].to_dict())
    elif are_several:
        from hicache_bench.report.run_list import render_runs

        print_result(render_runs(records))
    else:
        from hicache_bench.report.tables import render_run

        print_result(render_run(records[0]))


def _gate(
    options: GateOptions,
    baselines: Sequence[Filed],
    records: Sequence[RunRecord],
    *,
    complete: bool,
    as_json: bool,
) -> int:
    """Gate what was just run, on stdout unless JSON is there; the exit code."""
    from hicache_bench.cli.gate import show_gate
    from hicache_bench.workflows.gate import gate_records

    report = gate_records(options, baselines, records, complete=complete)
    show_gate(report, "note" if as_json else "text")
    return report.exit_code


def _check_index(variant: Variant) -> None:
    from hicache_bench.errors import InputError

    pools = (pool for pools in variant.pools.values() for pool in pools)
    if not any(pool.selection is not None for pool in pools):
        raise InputError(
            f"--queries reads the blocks that an index selects, and no index of model {variant.spec.name!r} "
            "selects any; leave --queries out"
        )
