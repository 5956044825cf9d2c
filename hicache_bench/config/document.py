"""YAML text as plain data, with the line of every field and every fault found on the way.

The reader takes parse events one by one instead of building YAML's own node tree: nothing recurses, nothing
is expanded, and no class is ever constructed. Scalars mean what YAML 1.2 says: ``yes`` is text, ``010`` is
ten.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

MAX_DEPTH = 32
"""Nesting that no preset comes near; beyond it the file is hostile or broken."""

Path = tuple[Any, ...]
"""Keys and list positions from the root: ``("layers", 2, "of", 0)``."""

# libyaml is an optional part of PyYAML; the pure reader gives the same events, ten times slower.
LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INT = re.compile(r"[-+]?[0-9]+")
_PREFIXED_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MAX_NUMBER_LENGTH = 18
_MAX_NUMBER = 1e100
"""No figure comes near; what is computed from two below it can still be read back from a record."""

_DROPPED: Final = object()
"""Stands for a key that was refused; the value that follows it is read and dropped."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """Place in a file, both numbers counted from 1."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One fault: where, which field (as a user writes it), what is wrong and what is allowed."""

    mark: Mark
    field: str
    text: str


@dataclass(slots=True)
class Document:
    """What a file says. ``marks`` places each path at its key (at its item, within a list).

    ``is_complete`` says that the file was read to its end; ``placeholders`` are the paths whose value could
    not be taken, and which no later check should complain about again.
    """

    data: Any = None
    marks: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    placeholders: set[Path] = field(default_factory=set)
    is_complete: bool = False

    def mark_of(self, path: Path) -> Mark:
        """Where ``path`` stands, or the nearest thing around it that is written down."""
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks.get(path, Mark())

    def add(self, path: Path, text: str, mark: Mark | None = None) -> None:
        """Note a problem with ``path``, at ``mark`` if that is not where the path stands."""
        self.problems.append(Problem(mark or self.mark_of(path), format_path(path), text))

    def replace(self, path: Path, text: str, mark: Mark) -> None:
        """Note a problem with a value in whose place something else had to be put."""
        self.add(path, text, mark)
        self.placeholders.add(path)

    def is_placeholder(self, path: Path) -> bool:
        """Whether ``path`` is a placeholder, or a part of one."""
        return any(path[:length] in self.placeholders for length in range(len(path) + 1))


def format_path(path: Path) -> str:
    """``layers[2].of[0]``; empty for the whole file."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return shorten(text, 120)


def shorten(text: str, length: int = 60) -> str:
    """Cut what would flood a terminal."""
    return text if len(text) <= length else text[: length - 3] + "..."


def read_document(text: str) -> Document:
    """Parse ``text``; faults end up in ``problems``, never in an exception."""
    reader = _Reader()
    try:
        for event in yaml.parse(text, Loader=LOADER):
            reader.feed(event)
            if reader.has_stopped:
                break
    except yaml.YAMLError as error:
        reader.document.problems.append(_syntax_problem(error, text))
    else:
        if reader.is_empty:
            reader.document.add((), "the file holds nothing")
        reader.document.is_complete = not (reader.is_empty or reader.has_stopped)
    return reader.document


@dataclass(slots=True)
class _Frame:
    """A list or map that is being read."""

    container: Any
    path: Path
    mark: Mark
    key: Any = None
    key_marks: dict[str, Mark] = field(default_factory=dict)

    @property
    def next_path(self) -> Path:
        """Path of the next value; for the key of a map, the map itself."""
        if isinstance(self.container, list):
            return (*self.path, len(self.container))
        return self.path if self.key is None or self.key is _DROPPED else (*self.path, self.key)


class _Reader:
    """Builds a :class:`Document` from parse events."""

    def __init__(self) -> None:
        self.document = Document()
        self.is_empty = True
        self.has_stopped = False
        self._stack: list[_Frame] = []

    def feed(self, event: Any) -> None:
        """Take one event; ``has_stopped`` is set once reading on would be pointless."""
        mark = Mark(event.start_mark.line + 1, event.start_mark.column + 1)
        path: Path = ()
        if isinstance(event, yaml.DocumentStartEvent) and not self.is_empty:
            self._stop((), "a second document starts here; a file holds one", mark)
        if isinstance(event, yaml.NodeEvent):
            self.is_empty = False
            path = self._stack[-1].next_path if self._stack else ()
            if self._stack and isinstance(self._stack[-1].container, list):
                self.document.marks[path] = mark
            self._refuse_indirection(event, path, mark)
        if isinstance(event, yaml.ScalarEvent):
            self._attach(self._scalar(event, path, mark), mark)
        elif isinstance(event, yaml.AliasEvent):
            self._attach("", mark)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self._stack) == MAX_DEPTH:
                self._stop(path, f"nested more than {MAX_DEPTH} deep; flatten it", mark)
            container: Any = [] if isinstance(event, yaml.SequenceStartEvent) else {}
            self._stack.append(_Frame(container, path, mark))
        elif isinstance(event, yaml.CollectionEndEvent):
            frame = self._stack.pop()
            self._attach(frame.container, frame.mark)

    def _stop(self, path: Path, text: str, mark: Mark) -> None:
        self.document.add(path, text, mark)
        self.has_stopped = True

    def _refuse_indirection(self, event: Any, path: Path, mark: Mark) -> None:
        if event.anchor is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            text = (
                f"given {sign}{shorten(event.anchor)}; anchors and aliases are not read: write the value out"
            )
            self.document.replace(path, text, mark)
        tag = getattr(event, "tag", None)
        if tag is not None:
            written = tag.replace("tag:yaml.org,2002:", "!!")
            self.document.replace(path, f"given tag {shorten(written)!r}; tags are not read: remove it", mark)

    def _attach(self, value: Any, mark: Mark) -> None:
        """Put a finished value where it belongs: root, list item, key, or value of the last key."""
        if not self._stack:
            self.document.data = value
            return
        frame = self._stack[-1]
        if isinstance(frame.container, list):
            frame.container.append(value)
        elif frame.key is None:
            frame.key = self._accept_key(frame, value, mark)
        else:
            if frame.key is not _DROPPED:
                frame.container[frame.key] = value
            frame.key = None

    def _accept_key(self, frame: _Frame, key: Any, mark: Mark) -> Any:
        if not isinstance(key, str):
            self.document.add(frame.path, f"given key {describe(key)}; a key is text: quote it", mark)
            return _DROPPED
        if key in frame.key_marks:
            first = frame.key_marks[key].line
            text = f"written twice, first on line {first}; remove one of them"
            self.document.add((*frame.path, key), text, mark)
            return _DROPPED
        frame.key_marks[key] = mark
        self.document.marks.setdefault((*frame.path, key), mark)
        return key

    def _scalar(self, event: yaml.ScalarEvent, path: Path, mark: Mark) -> Any:
        text: str = event.value
        if not event.implicit[0]:
            # The pure reader lets "\ud800" through, which is no character and breaks every encoder.
            if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
                self.document.replace(path, "holds half of a surrogate pair, which is no text", mark)
                return ""
            return text
        if text in _NULL:
            return None
        if text in _BOOL:
            return _BOOL[text]
        if _INT.fullmatch(text) or _PREFIXED_INT.fullmatch(text):
            if len(text) > _MAX_NUMBER_LENGTH:
                allowed = f"at most {_MAX_NUMBER_LENGTH} digits"
                self.document.replace(path, f"given {shorten(text)}; allowed: a number of {allowed}", mark)
                return 0
            return int(text, 0 if text[1:2] in ("o", "x") else 10)
        if _NOT_FINITE.fullmatch(text):
            self.document.replace(path, f"given {text}; allowed: finite numbers", mark)
            return 0
        if _FLOAT.fullmatch(text):
            number = float(text)
            if abs(number) < _MAX_NUMBER:
                return number
            allowed = f"numbers below {_MAX_NUMBER:g}"
            self.document.replace(path, f"given {shorten(text)}; allowed: {allowed}", mark)
            return 0
        return text


def describe(value: Any) -> str:
    """A value as an error shows it: ``'8' (text)``, ``8``, ``a list``."""
    if isinstance(value, str):
        return f"{shorten(value)!r} (text)"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if isinstance(value, dict):
        return "a map" if value else "an empty map"
    return shorten(str(value))


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        # It has no mark, and its position counts bytes in one reader and characters in the other.
        forbidden = yaml.reader.Reader.NON_PRINTABLE.search(text)
        before = text[: forbidden.start()] if forbidden else ""
        mark = Mark(before.count("\n") + 1, len(before) - before.rfind("\n"))
        return Problem(mark, "", "control characters are not allowed in YAML")
    place = getattr(error, "problem_mark", None)
    mark = Mark(place.line + 1, place.column + 1) if place else Mark()
    lines = text.splitlines()
    line = lines[mark.line - 1] if mark.line <= len(lines) else ""
    if line[: len(line) - len(line.lstrip())].count("\t"):
        return Problem(mark, "", "a tab in the indentation; YAML allows spaces only")
    parts = (getattr(error, "context", None), getattr(error, "problem", None))
    return Problem(mark, "", "not YAML: " + ", ".join(part for part in parts if part))
