"""A copy of the package that can be broken, and what ``roundtrip`` says of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hicache_bench.errors import StoreError, VerificationError
from tests.mutation.mutant import Mutant

ROOT = Path(__file__).parents[2]
CAUGHT = (VerificationError.exit_code, StoreError.exit_code)
"""Exit codes of a ``roundtrip`` that found something; any other end of a mutant is an accident."""

MAX_SECONDS = 180.0
"""Of one command: the slowest takes a third of it on a busy machine."""

STAGES: dict[str, tuple[str, ...]] = {
    "bytes": ("--preset", "kitchen-sink", "--lengths", "1,9,17", "--batch-pages", "4"),
    # A draft of the model's own attention: with one layer each, only its name tells it from the anchor.
    "draft": (
        *("--preset", "deepseek-v3", "--draft", "--profile", "by_kind"),
        *("--lengths", "5", "--batch-pages", "4"),
    ),
    # These keys name no tenant: only the first link of the hash chain keeps two of them apart.
    "sglang": (
        *("--preset", "gpt-oss-20b", "--key-scheme", "sglang"),
        *("--lengths", "9", "--batch-pages", "4"),
    ),
    "faults": ("--faults", "all"),
    "checksums": ("--faults", "all", "--checksum", "xxh3"),
    "injections": ("--injections", "300"),
    "models": (
        *("--preset", "gpt-oss-20b,deepseek-v4-flash,llama-4-scout,falcon-h1-1.5b"),
        *("--lengths", "9", "--batch-pages", "4"),
    ),
    "numerics": ("--preset", "kitchen-sink", "--lengths", "1", "--numerics"),
}
"""Options of the commands that are tried, the fast ones first."""

# The copy must be what runs, whatever is installed.
_MAIN = """
import sys
import hicache_bench
if not hicache_bench.__file__.startswith(sys.argv.pop(1)):
    sys.exit(f"{hicache_bench.__file__} is not the copy")
from hicache_bench.cli.entry import main
main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one command ended: its exit code, and the proofs that failed, by section and name."""

    stage: str
    exit_code: int
    failed: tuple[str, ...] = ()
    told: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Nothing was found."""
        return self.exit_code == 0

    @property
    def caught(self) -> bool:
        """``roundtrip`` itself said that something is wrong."""
        return self.exit_code in CAUGHT

    def __str__(self) -> str:
        if self.passed:
            return "passed"
        if not self.caught:
            return f"ended with {self.exit_code}: {self.told}"
        if not self.failed:
            return self.told
        return f"{self.failed[0]}" + (f" and {len(self.failed) - 1} more" if len(self.failed) > 1 else "")


class Laboratory:
    """One copy of the package in ``folder``; at most one mutant is in it at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.package = folder / "hicache_bench"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "hicache_bench", self.package, ignore=ignored)
        shutil.copytree(ROOT / "presets", folder / "presets")

    @contextmanager
    def broken(self, mutant: Mutant) -> Iterator[None]:
        """Put the mutant into the copy for a while."""
        original = mutant.original(self.package)
        self._write(mutant.path, mutant.applied_to(original))
        try:
            yield
        finally:
            self._write(mutant.path, original)

    def _write(self, path: str, text: str) -> None:
        file = self.package / path
        file.write_text(text, encoding="utf-8")
        # Bytecode is told from its source by size and whole seconds: a mutant can have both alike.
        shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)

    def outcomes(self, stages: Sequence[str], *, all_stages: bool = False) -> Iterator[Outcome]:
        """Run the stages until one says that something is wrong, or all of them."""
        for stage in stages:
            outcome = self.outcome(stage)
            yield outcome
            if outcome.caught and not all_stages:
                break

    def outcome(self, stage: str) -> Outcome:
        """Run one command on the copy as it is."""
        started = time.monotonic()
        command = [
            *(sys.executable, "-c", _MAIN, str(self.package), "roundtrip", *STAGES[stage]),
            *("--json", "--out", str(self._folder / "records")),
        ]
        environment = {**os.environ, "PYTHONPATH": str(self._folder)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            done = subprocess.run(
                command,
                cwd=self._folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=MAX_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(stage=stage, exit_code=-1, told=f"it took longer than {MAX_SECONDS:g} s")
        lines = done.stderr.strip().splitlines()
        return Outcome(
            stage=stage,
            exit_code=done.returncode,
            failed=_failed(done.stdout),
            told=lines[-1] if lines else "",
            seconds=time.monotonic() - started,
        )


@contextmanager
def laboratory() -> Iterator[Laboratory]:
    """A laboratory in a folder of its own, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="hicache-mutants-") as folder:
        yield Laboratory(Path(folder).resolve())


def _failed(stdout: str) -> tuple[str, ...]:
    """The failed proofs of the record on stdout; none where the command ended without one."""
    if not stdout:
        return ()
    proofs = json.loads(stdout)["proofs"]
    return tuple(
        f"{proof['section']} ({proof['subject']}, {proof['name']}): {check['name']}"
        for proof in proofs
        for check in proof["checks"]
        if not check["passed"]
    )
