"""The mutation check: break the package one line at a time; ``roundtrip`` itself must find each.

    python -m tests.mutation.run [--only TEXT] [--stages bytes,faults] [--all-stages] [--list]

Exits 0 if the package as it is passes every stage, and a stage catches every mutant but those that are said
to be equivalent; else 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.mutation.laboratory import STAGES, Laboratory, laboratory
from tests.mutation.mutant import Mutant
from tests.mutation.mutants import MUTANTS

_CAUGHT, _SURVIVED = "caught", "SURVIVED"
_EQUIVALENT, _NOT_EQUIVALENT = "equivalent", "CAUGHT, though said to be equivalent"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check and print what became of each mutant; 0 if all is as it must be."""
    options = _options(arguments)
    mutants = [mutant for mutant in MUTANTS if options.only in f"{mutant.path}: {mutant.name}"]
    stages = [stage.strip() for stage in options.stages.split(",")]
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown or not mutants:
        what = f"stages {', '.join(unknown)}" if unknown else f"mutant with {options.only!r}"
        _say(f"there is no {what}; stages: {', '.join(STAGES)}; --list shows the mutants")
        return 2
    if options.list:
        for mutant in mutants:
            _say(f"{mutant.path}: {mutant.name}")
        return 0
    with laboratory() as lab:
        if not _passes(lab, stages):
            return 1
        return _try(lab, mutants, stages, all_stages=options.all_stages)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.run", description=__doc__)
    parser.add_argument("--only", default="", help="mutants with this text in 'path: name'")
    parser.add_argument("--stages", default=",".join(STAGES), help="commands to try, comma-separated")
    parser.add_argument("--all-stages", action="store_true", help="do not stop at the first that finds it")
    parser.add_argument("--list", action="store_true", help="name the mutants and do nothing")
    return parser.parse_args(arguments)


def _passes(lab: Laboratory, stages: Sequence[str]) -> bool:
    """A proof that always fails would catch everything."""
    for outcome in lab.outcomes(stages, all_stages=True):
        _say(f"nothing broken, {outcome.stage}: {outcome}, {outcome.seconds:.1f} s")
        if not outcome.passed:
            return False
    return True


def _try(lab: Laboratory, mutants: Sequence[Mutant], stages: Sequence[str], *, all_stages: bool) -> int:
    started = time.monotonic()
    first: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    for mutant in mutants:
        with lab.broken(mutant):
            outcomes = list(lab.outcomes(stages, all_stages=all_stages))
        caught = [outcome.stage for outcome in outcomes if outcome.caught]
        first.update(caught[:1])
        verdict = _verdict(mutant, caught=bool(caught))
        verdicts[verdict] += 1
        _say(f"{verdict:<10} {mutant.path}: {mutant.name}")
        for outcome in outcomes:
            if not outcome.passed:
                _say(f"{'':<10} {outcome.stage}: {outcome}")
        if mutant.equivalent:
            _say(f"{'':<10} {mutant.equivalent}")
    found = ", ".join(f"{count} by {stage}" for stage, count in first.items())
    _say(f"{len(mutants)} mutants in {time.monotonic() - started:.0f} s; first found: {found or 'none'}")
    _say(", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()))
    return 0 if verdicts.keys() <= {_CAUGHT, _EQUIVALENT} else 1


def _verdict(mutant: Mutant, *, caught: bool) -> str:
    if mutant.equivalent:
        return _NOT_EQUIVALENT if caught else _EQUIVALENT
    return _CAUGHT if caught else _SURVIVED


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
