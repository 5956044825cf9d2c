"""Which preset somebody may have meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from pathlib import Path

MAX_SHOWN = 3
_MIN_START = 2
_MIN_LIKENESS = 0.5
_MIN_START_LIKENESS = 0.75
"""The start of a name is short, and much is like it."""

_UNLIKE = (0.0, False)

_WITHOUT_MARKS = str.maketrans("", "", "-_. ")


def nearest(given: str, files: Mapping[str, Path]) -> tuple[str, ...]:
    """Up to three of the names in ``files``: those that start as ``given``, else those most like it.

    A name is compared whole and cut to the given length, with one letter more or less: most people leave out
    the end. Several names of one file count once, the first of them.
    """
    start = given.translate(_WITHOUT_MARKS)
    if len(start) >= _MIN_START:
        starting = [name for name in files if name.translate(_WITHOUT_MARKS).startswith(start)]
        if starting:
            return _one_a_file(starting, files)
    likeness = {name: _likeness(given, name) for name in files}
    best = max(likeness.values(), default=_UNLIKE)
    return _one_a_file((name for name in files if likeness[name] == best != _UNLIKE), files)


def _one_a_file(names: Iterable[str], files: Mapping[str, Path]) -> tuple[str, ...]:
    first: dict[Path, str] = {}
    for name in names:
        first.setdefault(files[name], name)
    return tuple(first.values())[:MAX_SHOWN]


def _likeness(given: str, name: str) -> tuple[float, bool]:
    """Between 0 and 1, 0 if the two have too little in common; of equals the name that is whole is nearer."""
    # The second text is the one that a matcher prepares.
    matcher = SequenceMatcher(b=given)
    matcher.set_seq1(name)
    whole = matcher.ratio()
    found = [(whole, True)] if whole >= _MIN_LIKENESS else []
    for length in range(max(_MIN_START, len(given) - 1), min(len(given) + 2, len(name))):
        matcher.set_seq1(name[:length])
        if (start := matcher.ratio()) >= _MIN_START_LIKENESS:
            found.append((start, False))
    return max(found, default=_UNLIKE)
