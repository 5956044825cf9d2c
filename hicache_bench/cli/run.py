"""``hicache-bench run``: parse, call the workflow, render, write the record."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hicache_bench.cli.variant import takes_variant

if TYPE_CHECKING:
    from hicache_bench.workflows.variant import Variant, VariantOptions


@takes_variant
def run_command(
    variant: VariantOptions,
    preset: str = typer.Option(..., "--preset", help="Name or alias of a preset, or a path to a .yaml file."),
    tokens: str = typer.Option("8k", help="Prefix lengths, comma-separated: 8k,32k,1M (k = 1,024)."),
    save_policy: str = typer.Option(
        "state=every:4096,window=all",
        help="What a save keeps: state=last|every:K|all, window=all|trailing:+X; one or both.",
    ),
    local_prefix: str = typer.Option("0", help="Tokens already in host or device memory; not read again."),
    store: str = typer.Option("local", help="local (embedded), count (sizes only) or mooncake."),
    master: str | None = typer.Option(
        None, help="HOST:PORT of a running Mooncake master to join; a private one is started otherwise."
    ),
    segment: str | None = typer.Option(
        None,
        help="Memory to give to the Mooncake cluster, such as 8GiB. Joined clusters get none by default.",
    ),
    queries: int = typer.Option(
        0,
        min=0,
        max=1_000_000,
        help="Read only blocks that the index selects for this many queries; 0 reads all.",
    ),
    repeat: int = typer.Option(3, min=1, help="Restores timed under each policy."),
    memory: str | None = typer.Option(None, help="Memory that a run may take, such as 4GiB."),
    json: bool = typer.Option(False, "--json", help="Print the record as JSON on stdout."),
    out: Annotated[Path, typer.Option(help="Directory for the record.")] = Path("results/runs"),
) -> None:
    """Save a prefix, restore it, and report what each policy costs.

    Every rank saves the prefix through the engine, forgets it, finds it, restores it under the policies
    dense, hit_policy and selective, and checks it byte for byte. A record is written.
    """
    from hicache_bench.cli.terminal import print_json, print_note, print_result, progress
    from hicache_bench.config.load import load_model
    from hicache_bench.errors import VerificationError
    from hicache_bench.planning.policy import SavePolicy
    from hicache_bench.records.io import check_writable, write_record
    from hicache_bench.units import parse_size, parse_tokens
    from hicache_bench.workflows.environment import reduced_command
    from hicache_bench.workflows.run import RunOptions, run
    from hicache_bench.workflows.variant import apply_options

    chosen = apply_options(load_model(preset), variant)
    if queries:
        _check_index(chosen)
    options = RunOptions(
        variant=chosen,
        token_lengths=tuple(parse_tokens(length) for length in tokens.split(",")),
        save_policy=SavePolicy.parse(save_policy),
        local_prefix_tokens=parse_tokens(local_prefix),
        store=store,
        master=master,
        segment_bytes=None if segment is None else parse_size(segment),
        num_queries=queries,
        repeat=repeat,
        memory_bytes=None if memory is None else parse_size(memory),
        command=reduced_command(["hicache-bench", *sys.argv[1:]]),
    )
    check_writable(out)
    with progress() as report:
        record = run(options, report)
    try:
        path = write_record(record, out)
    finally:
        # A full disk must not cost the result of a long run.
        if json:
            print_json(record.to_dict())
        else:
            from hicache_bench.report.tables import render_run

            print_result(render_run(record))
    print_note(f"record: {path}")
    if record.failed_checks:
        raise VerificationError(
            f"{len(record.failed_checks)} checks failed; the record says what was expected and found"
        )


def _check_index(variant: Variant) -> None:
    from hicache_bench.errors import InputError

    pools = (pool for pools in variant.pools.values() for pool in pools)
    if not any(pool.selection is not None for pool in pools):
        raise InputError(
            f"--queries reads the blocks that an index selects, and no index of model {variant.spec.name!r} "
            "selects any; leave --queries out"
        )
