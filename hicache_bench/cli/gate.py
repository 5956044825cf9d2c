"""``hicache-bench gate``: parse, call the workflow, render, exit with what it found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hicache_bench.cli.quiet import takes_quiet

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hicache_bench.records.gate import GateReport
    from hicache_bench.records.thresholds import Thresholds
    from hicache_bench.workflows.gate import SelfTested

FORMATS = ("text", "markdown", "junit", "json", "github")
SUMMARY = "GITHUB_STEP_SUMMARY"
"""In a job on GitHub: the file that becomes the step's summary."""


@takes_quiet
def gate_command(
    baseline: Annotated[Path, typer.Argument(help="A record, or a directory of them.")],
    new: Annotated[Path | None, typer.Argument(help="The new record, or a directory.")] = None,
    max_regression: str | None = typer.Option(
        None,
        help="How much worse figures may get: bytes=0%,objects=0%,modeled=0%,rate=0%,time=10% by default.",
        show_default=False,
    ),
    output_format: str = typer.Option("text", "--format", help="text, markdown, junit, json or github."),
    strict: bool = typer.Option(False, "--strict", help="Exit with 1 where time could not be judged."),
    update: bool = typer.Option(False, "--update", help="Accept NEW: make it the baseline."),
    self_test: bool = typer.Option(
        False, "--self-test", help="Perturb each metric of BASELINE; each change must be noticed."
    ),
    json: bool = typer.Option(False, "--json", help="The same as --format json."),
) -> None:
    """Compare records with their baselines.

    Bytes, objects, endpoints, ledger reasons and checks are compared exactly. Time is judged only with at
    least 6 samples a side, a ratio beyond the threshold and a significant Mann-Whitney test.

    Exit codes: 0 pass, improved or inconclusive; 1 regressed; 2 bad input; 4 something that fails
    verification; 5 not comparable.

    Example: hicache-bench gate results/baselines results/runs
    """
    from hicache_bench.errors import InputError
    from hicache_bench.workflows.gate import GateOptions, gate_files

    if json:
        output_format = "json"
    if output_format not in FORMATS:
        raise InputError(f"--format {output_format!r} is unknown; allowed: {', '.join(FORMATS)}")
    thresholds = parsed_thresholds(max_regression)
    if self_test:
        if new is not None or update:
            raise InputError("--self-test takes a baseline alone; leave NEW and --update out")
        _self_test(baseline, thresholds, as_json=output_format == "json")
        return
    if new is None:
        raise InputError("give NEW, the record to compare with the baseline, or --self-test")
    options = GateOptions(baseline=baseline, thresholds=thresholds, strict=strict, accepts=update)
    report = gate_files(options, new)
    show_gate(report, output_format)
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def parsed_thresholds(text: str | None) -> Thresholds:
    """The thresholds of ``--max-regression``, or the defaults.

    Raises:
        InputError: not a threshold.
    """
    from hicache_bench.records.thresholds import DEFAULT_THRESHOLDS, parse_thresholds

    return DEFAULT_THRESHOLDS if text is None else parse_thresholds(text)


def show_gate(report: GateReport, output_format: str) -> None:
    """Print a report on stdout; in a job on GitHub, fill the step's summary and annotate as well.

    ``note`` is text on stderr, for a command that has something else on stdout.
    """
    from hicache_bench.cli.terminal import print_aside, print_json, print_result, print_text

    if output_format == "json":
        print_json(report.to_dict())
    elif output_format == "junit":
        from hicache_bench.report.ci import gate_junit_xml

        print_text(gate_junit_xml(report))
    elif output_format == "markdown":
        from hicache_bench.report.ci import markdown

        print_text(markdown(report))
    else:
        from hicache_bench.report.gate import render_gate

        if output_format == "note":
            _print_aside(render_gate(report))
        else:
            print_result(render_gate(report))
    summary = os.environ.get(SUMMARY)
    if summary or output_format == "github":
        from hicache_bench.report.ci import github_annotations

        # The runner reads both streams; only with `github` is stdout meant for it.
        say = (lambda line: print_text(f"{line}\n")) if output_format == "github" else print_aside
        for line in github_annotations(report):
            say(line)
    if summary:
        _add_summary(report, Path(summary))


def _print_aside(result: RenderableType) -> None:
    from rich.console import Console

    from hicache_bench.cli.terminal import PIPED_WIDTH, print_aside

    console = Console(width=PIPED_WIDTH, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        console.print(result)
    for line in capture.get().splitlines():
        print_aside(line.rstrip())


def _add_summary(report: GateReport, path: Path) -> None:
    from hicache_bench.cli.terminal import print_note
    from hicache_bench.report.ci import markdown

    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(markdown(report))
    except OSError as error:
        # The verdict counts, and it is on stdout.
        print_note(f"the step summary {path.name} cannot be written: {error.strerror or error}")


def _self_test(baseline: Path, thresholds: Thresholds, *, as_json: bool) -> None:
    from hicache_bench.cli.terminal import print_json, print_text, progress
    from hicache_bench.errors import VerificationError
    from hicache_bench.workflows.gate import self_test_files

    with progress() as report:
        tested = self_test_files(baseline, thresholds, report)
    if as_json:
        print_json(tested.to_dict())
    else:
        print_text(_self_test_text(tested))
    if tested.missed:
        raise VerificationError(
            f"the gate missed {tested.missed} perturbations; it must not be trusted until it notices them"
        )


def _self_test_text(tested: SelfTested) -> str:
    lines = []
    for name, test in tested.tests.items():
        noticed = test.perturbations - len(test.missed)
        lines.append(f"{name}: {noticed:,} of {test.perturbations:,} perturbations noticed")
        lines += [f"  missed {missed}" for missed in test.missed]
    total = sum(test.perturbations for test in tested.tests.values())
    lines.append(f"self-test: {total - tested.missed:,} of {total:,} noticed")
    return "\n".join(lines) + "\n"
