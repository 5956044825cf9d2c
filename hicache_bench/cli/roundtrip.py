"""``hicache-bench roundtrip``: parse, call the workflow, render, write the record."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hicache_bench.cli.cluster import Master, MasterHttpPort, Segment
from hicache_bench.cli.metrics import takes_metrics
from hicache_bench.cli.quiet import takes_quiet
from hicache_bench.cli.variant import takes_variant

if TYPE_CHECKING:
    from hicache_bench.config.schema import ModelPreset
    from hicache_bench.engine.metrics import MetricsSink
    from hicache_bench.planning.policy import TransferPolicy
    from hicache_bench.records.proof import RoundtripRecord
    from hicache_bench.workflows.variant import VariantOptions


@takes_variant
@takes_metrics
@takes_quiet
def roundtrip_command(
    variant: VariantOptions,
    metrics: MetricsSink | None,
    preset: str | None = typer.Option(
        None, "--preset", help="Names or aliases of presets, comma-separated, a .yaml file, or all."
    ),
    store: str = typer.Option("local", help="local (embedded) or mooncake."),
    master: Master = None,
    master_http_port: MasterHttpPort = None,
    segment: Segment = None,
    policy: str = typer.Option("dense,hit_policy,selective", help="Transfer policies, comma-separated."),
    lengths: str | None = typer.Option(
        None, help="Prefix lengths in pages, comma-separated; default: around the seam of two batches."
    ),
    batch_pages: int | None = typer.Option(
        None, min=1, help="Pages of one store call; default: 128, or what fits in memory."
    ),
    memory: str | None = typer.Option(
        None, help="Memory of one length; default: 1GiB for one preset, 256MiB for each of several."
    ),
    seed: int | None = typer.Option(
        None, min=0, max=(1 << 31) - 1, help="Seed of tokens and bytes; default: 0, fresh with --master."
    ),
    numerics: bool = typer.Option(
        False, "--numerics", help="Compute attention from what was restored, and compare."
    ),
    faults: str | None = typer.Option(
        None, help="Faults to try, comma-separated, or all; those of the real store need --store mooncake."
    ),
    injections: int = typer.Option(0, min=0, help="Random faults to try, so many."),
    soak: str | None = typer.Option(None, help="Time for random requests and faults, such as 60s or 10m."),
    checksum: str | None = typer.Option(None, help="Digest stored beside each object: xxh3."),
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    json: bool = typer.Option(False, "--json", help="Print the record as JSON on stdout."),
    out: Annotated[Path, typer.Option(help="Directory for the record.")] = Path("results/runs"),
) -> None:
    """Prove that a restored prefix is right.

    Saves, forgets and restores prefixes, and compares every restored byte; what was not asked for must be
    untouched. Requests, tenants and models in one store must not see each other. Checks are tried on broken
    restores too, each time: a proof that cannot fail proves nothing. Exits 0 only if every check passed.

    Example: hicache-bench roundtrip --preset kitchen-sink --lengths 1,3 --batch-pages 2
    """
    from hicache_bench.cli.choice import check_moving_store
    from hicache_bench.cli.terminal import print_aside, print_json, print_note, print_result, progress
    from hicache_bench.errors import OutputError, VerificationError
    from hicache_bench.records.io import check_writable, write_record
    from hicache_bench.units import parse_memory, parse_seconds, parse_size
    from hicache_bench.workflows.environment import reduced_command
    from hicache_bench.workflows.roundtrip.job import RoundtripOptions, roundtrip
    from hicache_bench.workflows.variant import apply_options

    check_moving_store(store)
    _check_effect(preset, variant)
    options = RoundtripOptions(
        presets=tuple(apply_options(found, variant) for found in _presets(preset)),
        store=store,
        master=master,
        master_http_port=master_http_port,
        segment_bytes=None if segment is None else parse_size(segment),
        lengths=None if lengths is None else tuple(map(_pages, lengths.split(","))),
        policies=_policies(policy),
        batch_pages=batch_pages,
        memory_bytes=None if memory is None else parse_memory(memory),
        seed=seed,
        numerics=numerics,
        faults=() if faults is None else tuple(name.strip() for name in faults.split(",")),
        injections=injections,
        soak_seconds=0.0 if soak is None else parse_seconds(soak),
        checksum=_is_checked(checksum),
        metrics=metrics,
        command=reduced_command(["hicache-bench", *sys.argv[1:]]),
    )
    check_writable(out)
    if junit is not None:
        _check_junit(junit)
    with progress() as report:
        record = roundtrip(options, report)
    failed = sum(not proof.passed for proof in record.proofs)
    path: Path | None = None
    unwritten: OutputError | None = None
    try:
        path = write_record(record, out)
        if junit is not None:
            _write_junit(record, junit)
    except OutputError as error:
        if not failed:
            raise
        # What was proved wrong outweighs what could not be written.
        unwritten = error
    finally:
        # A full disk must not cost the result of a long run.
        if json:
            print_json(record.to_dict())
        else:
            from hicache_bench.report.roundtrip import render_roundtrip

            print_result(render_roundtrip(record))
    if path is not None:
        print_note(f"record: {path}")
    if unwritten is not None:
        print_aside(f"error: {unwritten}")
    if failed:
        raise VerificationError(
            f"{failed} of {len(record.proofs)} proofs failed; the record says what was expected and found"
        )


def _check_effect(preset: str | None, variant: VariantOptions) -> None:
    """Options of a model are for a model."""
    from dataclasses import fields

    from hicache_bench.errors import InputError

    given = [field.name for field in fields(variant) if getattr(variant, field.name) != field.default]
    if preset is None and given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(f"{names} without --preset: faults are tried on models of their own; name a preset")


def _presets(text: str | None) -> list[ModelPreset]:
    """The presets that ``--preset`` names, each once."""
    from hicache_bench.cli.choice import chosen_presets

    return [] if text is None else chosen_presets(text)


def _pages(text: str) -> int:
    from hicache_bench.errors import InputError

    if re.fullmatch(r"\s*0*[1-9][0-9]{0,17}\s*", text, re.ASCII) is None:
        raise InputError(f"--lengths {text[:40]!r} is not a number of pages; give some, such as 1,127,128")
    return int(text)


def _policies(text: str) -> tuple[TransferPolicy, ...]:
    from hicache_bench.errors import InputError
    from hicache_bench.planning.policy import TransferPolicy

    allowed = [policy.value for policy in TransferPolicy]
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in allowed:
            raise InputError(f"--policy {name!r} is unknown; allowed: {', '.join(allowed)}")
    return tuple(dict.fromkeys(map(TransferPolicy, names)))


def _is_checked(text: str | None) -> bool:
    from hicache_bench.errors import InputError

    if text not in (None, "xxh3"):
        raise InputError(f"--checksum {text!r} is unknown; allowed: xxh3")
    return text is not None


def _check_junit(path: Path) -> None:
    """Before any work: the file can be written."""
    from hicache_bench.errors import OutputError

    if path.is_dir() or not path.parent.is_dir():
        raise OutputError(f"--junit {str(path)!r} is not a file in an existing directory; give one")


def _write_junit(record: RoundtripRecord, path: Path) -> None:
    from hicache_bench.errors import OutputError
    from hicache_bench.report.junit import junit_xml

    try:
        path.write_text(junit_xml(record), encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"cannot write --junit {str(path)!r}: {error.strerror or error}; give another file"
        ) from error
