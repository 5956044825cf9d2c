"""``hicache-bench bench``: parse, call the workflow, render, write the record."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hicache_bench.cli.cluster import Master, MasterHttpPort, Segment
from hicache_bench.cli.quiet import takes_quiet
from hicache_bench.cli.variant import takes_variant

if TYPE_CHECKING:
    from hicache_bench.workflows.variant import VariantOptions


@takes_variant
@takes_quiet
def bench_command(
    variant: VariantOptions,
    preset: str = typer.Option(..., "--preset", help="Name or alias of a preset, or a path to a .yaml file."),
    store: str = typer.Option("local", help="local (embedded) or mooncake."),
    tokens: str = typer.Option("8k", help="Prefix length: 8k, 32k, 1M (k = 1,024)."),
    operations: str | None = typer.Option(
        None, "--op", help="What to measure, comma-separated: save, lookup, restore. All by default."
    ),
    policy: str = typer.Option(
        "dense,hit_policy,selective", help="Transfer policies of lookup and restore, comma-separated."
    ),
    repeat: int | None = typer.Option(None, min=1, max=10_000, help="Samples of each series."),
    min_time: str | None = typer.Option(
        None, help="Or: time that the samples of a series fill, such as 5s. 2s by default."
    ),
    cold: bool = typer.Option(
        False, "--cold", help="The default: each save starts in a store proven to hold none of its keys."
    ),
    warm: bool = typer.Option(
        False, "--warm", help="Everything is in the store before, and proven to be; nothing is saved."
    ),
    batch_pages: int = typer.Option(128, min=1, max=1024, help="Pages of one store call, over all pools."),
    save_policy: str = typer.Option(
        "state=every:4096,window=all",
        help="What a save keeps: state=last|every:K|all, window=all|trailing:+X; one or both.",
    ),
    clients: int | None = typer.Option(
        None,
        min=1,
        help="Processes that read, over the network, what another process wrote. One for all by default.",
    ),
    master: Master = None,
    master_http_port: MasterHttpPort = None,
    segment: Segment = None,
    protocol: str = typer.Option("tcp", help="Transport of Mooncake: tcp or rdma."),
    device: str = typer.Option("", help="RDMA device, such as mlx5_0; with --protocol rdma."),
    json: bool = typer.Option(False, "--json", help="Print the record as JSON on stdout."),
    out: Annotated[Path, typer.Option(help="Directory for the record.")] = Path("results/runs"),
) -> None:
    """Measure how fast a store saves, finds and restores a prefix.

    The table says where the time goes. Every process of the bench has its own store client. Restored
    bytes are compared before and after the samples, outside the time. A record with every sample is
    written.

    Example: hicache-bench bench --preset kitchen-sink --tokens 1k --op restore --repeat 15
    """
    from hicache_bench.cli.choice import check_moving_store
    from hicache_bench.cli.lists import one_of, values_of
    from hicache_bench.cli.terminal import print_json, print_note, print_result, progress
    from hicache_bench.config.load import load_model
    from hicache_bench.errors import InputError, VerificationError
    from hicache_bench.planning.policy import SavePolicy, TransferPolicy
    from hicache_bench.records.io import check_writable, write_record
    from hicache_bench.units import parse_seconds, parse_size, parse_tokens
    from hicache_bench.workflows.bench.measure import bench
    from hicache_bench.workflows.bench.options import OPERATIONS, BenchOptions
    from hicache_bench.workflows.environment import reduced_command
    from hicache_bench.workflows.variant import apply_options

    check_moving_store(store)
    if cold and warm:
        raise InputError("--cold and --warm contradict each other; give one of them")
    names = {name: name for name in OPERATIONS}
    policies = {policy.value: policy for policy in TransferPolicy}
    options = BenchOptions(
        preset=preset,
        variant=apply_options(load_model(preset), variant),
        num_tokens=parse_tokens(tokens),
        save_policy=SavePolicy.parse(save_policy),
        operations=None if operations is None else values_of("--op", operations, one_of("--op", names)),
        policies=values_of("--policy", policy, one_of("--policy", policies)),
        repeat=repeat,
        min_seconds=None if min_time is None else parse_seconds(min_time),
        batch_pages=batch_pages,
        is_warm=warm,
        clients=clients or 0,
        store=store,
        master=master,
        master_http_port=master_http_port,
        segment_bytes=None if segment is None else parse_size(segment),
        protocol=protocol,
        device=device,
        command=reduced_command(["hicache-bench", *sys.argv[1:]]),
    )
    check_writable(out)
    with progress() as report:
        record = bench(options, report)
    try:
        path = write_record(record, out)
    finally:
        # A full disk must not cost the result of a long run.
        if json:
            print_json(record.to_dict())
        else:
            from hicache_bench.report.bench import render_bench

            print_result(render_bench(record))
    print_note(f"record: {path}")
    if record.failed_checks:
        raise VerificationError(
            f"{len(record.failed_checks)} checks failed; the record says what was expected and found"
        )
