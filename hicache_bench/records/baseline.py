"""Baselines: records that are kept under a steady name, and that two runs of one tree write alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hicache_bench.errors import InputError, VerificationError
from hicache_bench.records.compare import differing_settings
from hicache_bench.records.gate import Filed, match, read_side, subject_of
from hicache_bench.records.io import write_data
from hicache_bench.records.kinds import settings_of
from hicache_bench.records.metrics import metrics_of

_OF_THE_MOMENT: Mapping[str, Any] = {
    "created_utc": "1970-01-01T00:00:00.000000Z",
    "command": [],
    "tool_version": "",
    "libraries": {},
    "environment": {},
}
"""What a baseline without timings leaves out: none of it can decide, and version control says it better."""

_ADVICE = "those before it are written; make room there, or give a BASELINE that can be written"


def read_baselines(path: Path) -> list[Filed]:
    """The baseline in a file, or those of a directory.

    Raises:
        InputError: none is there; the message tells how to make one.
    """
    if not path.exists():
        raise InputError(
            f"no baseline at {str(path)!r}; make one of a record or of a directory of them: "
            f"hicache-bench gate {path} NEW --update"
        )
    return read_side(path)


def as_baseline(data: Mapping[str, Any]) -> dict[str, Any]:
    """``data`` without the moment it was made in, if it holds no timing sample; else as it is."""
    timed = any(isinstance(value, tuple) and value for value in metrics_of(data).values())
    return dict(data) if timed else {**data, **_OF_THE_MOMENT}


def update(path: Path, baselines: Sequence[Filed], news: Sequence[Filed]) -> tuple[list[Path], int]:
    """Make ``news`` the baselines at ``path``; return what was written, and how many were there already.

    A record takes the file of the baseline that has its settings, or had them but for the digest of the
    preset. Baselines without a new record stay.

    Raises:
        VerificationError: a new record has failed checks.
        InputError: several records for one file.
        OutputError: a baseline that cannot be written.
    """
    failed = [new for new in news if new.data["status"] != "ok"]
    if failed:
        raise VerificationError(
            f"{failed[0].name or subject_of(failed[0].data)} has failed checks; it is no baseline"
        )
    one_file = path.suffix == ".json" and not path.is_dir()
    if one_file and len(news) > 1:
        raise InputError(f"{len(news)} records cannot become one file {path.name!r}; give a directory")
    taken = {baseline.path for baseline in baselines}
    written: list[Path] = []
    unchanged = 0
    for baseline, new in match(baselines, news):
        data = as_baseline(new.data)
        if baseline is not None and json.dumps(baseline.data) == json.dumps(data):
            unchanged += 1
            continue
        if one_file:
            target = path
        elif baseline is not None and baseline.path is not None and _replaces(new, baseline):
            target = baseline.path
        else:
            target = _new_name(path, data, taken)
        taken.add(target)
        written.append(write_data(data, target, force=True, advice=_ADVICE))
    return written, unchanged


def _replaces(new: Filed, baseline: Filed) -> bool:
    return all("digest" in name for name in differing_settings(baseline.data, new.data))


def _new_name(folder: Path, data: Mapping[str, Any], taken: set[Path | None]) -> Path:
    """``<preset>.json``, with the kind before it unless that is ``run``; other settings add their digest."""
    kind, subject = data["kind"], subject_of(data).replace(" ", "-")
    name = subject if kind in ("run", subject) else f"{kind}-{subject}"
    plain = folder / f"{name}.json"
    if plain not in taken:
        return plain
    digest = hashlib.sha256(json.dumps(settings_of(data)).encode()).hexdigest()[:8]
    return folder / f"{name}-{digest}.json"
