"""``hicache-bench trace``: make a trace of requests, look at one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Generate traces of requests, and show what is in one.", no_args_is_help=True)


@app.command("generate")
def generate_command(
    out: Annotated[Path, typer.Option(help="File to write: .jsonl or .jsonl.gz; never overwritten.")],
    kind: str = typer.Option("multi-turn", help="multi-turn, shared-system-prompt or agent."),
    requests: int = typer.Option(1000, min=1, help="Requests in the trace."),
    seed: int = typer.Option(0, help="One seed gives one trace, on every machine."),
    rate: float = typer.Option(3.0, help="Requests a second, of all sessions together."),
    turns: int = typer.Option(5, min=1, help="Mean number of turns or steps of a session."),
    system_prompts: int = typer.Option(8, min=1, help="Different system prompts."),
    system_tokens: str = typer.Option("2k", help="Tokens of a system prompt."),
    message_tokens: str = typer.Option("1k", help="Mean tokens of a message or a tool's result."),
    output_tokens: str = typer.Option("384", help="Mean tokens of an output."),
    trace_block_tokens: int = typer.Option(512, min=1, help="Tokens of a block."),
    json: bool = typer.Option(False, "--json", help="Print JSON on stdout."),
) -> None:
    """Write a seeded trace in the Mooncake format.

    It has the block ids of outputs too.

    Example: hicache-bench trace generate --requests 100 --out agents.jsonl.gz --kind agent
    """
    from dataclasses import asdict, replace

    from hicache_bench.cli.terminal import print_json, print_text
    from hicache_bench.errors import InputError
    from hicache_bench.report.replay import trace_text
    from hicache_bench.trace.format import TRACE_SUFFIXES, write_trace
    from hicache_bench.trace.generate import GenerateOptions, TraceKind, generate
    from hicache_bench.trace.paths import page_paths
    from hicache_bench.units import parse_tokens
    from hicache_bench.workflows.replay_options import parse_choice
    from hicache_bench.workflows.traces import trace_record

    if not out.name.endswith(TRACE_SUFFIXES):
        raise InputError(f"--out {out.name!r} is no name of a trace; end it in {' or '.join(TRACE_SUFFIXES)}")
    trace = generate(
        GenerateOptions(
            kind=parse_choice("--kind", kind, TraceKind),
            requests=requests,
            seed=seed,
            requests_per_second=rate,
            turns=turns,
            system_prompts=system_prompts,
            system_tokens=parse_tokens(system_tokens),
            message_tokens=parse_tokens(message_tokens),
            output_tokens=parse_tokens(output_tokens),
            block_tokens=trace_block_tokens,
        )
    )
    write_trace(trace, out)
    written = trace_record(replace(trace, name=out.name), page_paths(trace, trace.block_tokens))
    if json:
        print_json({"file": out.name, **asdict(written)})
    else:
        print_text(f"{trace_text(written)}\n")


@app.command("show")
def show_command(
    trace: str = typer.Argument(help="Name of a shipped trace, or a path to a .jsonl or .jsonl.gz file."),
    blocks: str = typer.Option("1k,10k,30k,50k,100k,all", help="Blocks that a cache holds (k = 1,000 here)."),
    measure: str = typer.Option("all", help="Requests that are counted: all, or last:50%."),
    trace_block_tokens: int | None = typer.Option(
        None, help="Tokens of a block, where the file does not say and they are not 512."
    ),
    on_error: str = typer.Option("refuse", help="What a malformed line does: refuse the trace, or skip."),
    json: bool = typer.Option(False, "--json", help="Print JSON on stdout."),
) -> None:
    """Show a trace's lengths, and what an LRU cache would hit.

    Example: hicache-bench trace show multi-turn --blocks 1k,10k,all
    """
    from dataclasses import asdict

    from hicache_bench.cli.terminal import print_json, print_result
    from hicache_bench.report.trace import render_trace
    from hicache_bench.trace.format import OnError
    from hicache_bench.workflows.replay_options import parse_block_tokens, parse_choice, parse_measured
    from hicache_bench.workflows.traces import open_trace, parse_blocks, trace_figures

    figures = trace_figures(
        open_trace(
            trace,
            block_tokens=parse_block_tokens(trace_block_tokens),
            on_error=parse_choice("--on-error", on_error, OnError),
        ),
        parse_blocks(blocks),
        measured_percent=parse_measured(measure),
    )
    if json:
        print_json(asdict(figures))
    else:
        print_result(render_trace(figures))
