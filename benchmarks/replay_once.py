"""One replay as a whole process, its options those of ``ReplayArguments``."""

from __future__ import annotations

import argparse
import gc
from dataclasses import MISSING, fields

from hicache_bench.cli.terminal import print_result
from hicache_bench.config.load import load_model
from hicache_bench.report.replay import render_replay
from hicache_bench.workflows.replay import replay_trace
from hicache_bench.workflows.replay_options import ReplayArguments, parse_replay
from hicache_bench.workflows.variant import VariantOptions, apply_options


def main() -> None:
    """Replay, and print the tables."""
    gc.set_threshold(100_000)  # as the command line does
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", required=True)
    parser.add_argument("--page-tokens", type=int)
    for field in fields(ReplayArguments):
        kind = int if field.name == "trace_block_tokens" else str
        default = None if field.default is MISSING else field.default
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=default)
    asked = vars(parser.parse_args())
    options = VariantOptions(page_tokens=asked.pop("page_tokens"))
    variant = apply_options(load_model(asked.pop("preset")), options)
    record = replay_trace(parse_replay(variant, ReplayArguments(**asked)), lambda _: None)
    print_result(render_replay(record))


if __name__ == "__main__":
    main()
