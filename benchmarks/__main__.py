"""Every bar in one table: ``python -m benchmarks [NAME ...]``; exits 1 if one is not kept."""

from __future__ import annotations

import sys
from itertools import chain

from benchmarks import delivery, engine_cpu, lookup, overhead, replay, ttft
from benchmarks.table import print_rows

TABLES = {
    "delivery": delivery.rows,
    "engine_cpu": engine_cpu.rows,
    "lookup": lookup.rows,
    "overhead": overhead.rows,
    "replay": replay.rows,
    "ttft": ttft.rows,
}


def main(names: list[str]) -> None:
    """Print the rows of these tables, of all of them by default."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        sys.exit(f"unknown benchmark {', '.join(unknown)}; allowed: {', '.join(TABLES)}")
    print_rows(chain.from_iterable(TABLES[name]() for name in names or TABLES))


if __name__ == "__main__":
    main(sys.argv[1:])
