"""Finding and reading links, systems and compute dimensions; every fault of a file is told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails, ValidationError

from hicache_bench.config.catalogue import presets_folder
from hicache_bench.config.deployment_schema import (
    ComputeFile,
    DeploymentFile,
    LinkFile,
    SystemFile,
)
from hicache_bench.config.document import Document, describe, read_document, shorten
from hicache_bench.config.document import Path as FieldPath
from hicache_bench.config.explain import config_error, given_and_allowed, suggest, unknown_field
from hicache_bench.config.measured import MEASURED, read_measured
from hicache_bench.config.read import read_input
from hicache_bench.errors import ConfigError, PresetNotFoundError
from hicache_bench.links.link import Link
from hicache_bench.links.system import System
from hicache_bench.models.compute import ComputeDims

MAX_FILE_BYTES = 1 << 20
"""A preset takes a few kB; what is larger is some other file."""

_SUFFIXES = (".yaml", ".yml")
_File = TypeVar("_File", bound=DeploymentFile)
_Built = TypeVar("_Built")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSummary:
    """One line of a list of links or systems."""

    name: str
    aliases: tuple[str, ...]
    summary: str


def list_links() -> tuple[DeploymentSummary, ...]:
    """The shipped links, by name."""
    return _summaries("links")


def list_systems() -> tuple[DeploymentSummary, ...]:
    """The shipped systems, by name."""
    return _summaries("systems")


def load_link(name_or_path: str) -> Link:
    """The link of this name or alias, in this ``.yaml`` file, or ``measured:FILE``.

    Raises:
        PresetNotFoundError: no shipped link has this name.
        ConfigError: a file that cannot be read, or that describes no possible link. The message lists every
            problem with file, line, field, what was given and what is allowed.
    """
    if name_or_path.startswith(MEASURED):
        return read_measured(name_or_path.removeprefix(MEASURED))
    return _load(name_or_path, "links", LinkFile, LinkFile.link)


def load_system(name_or_path: str) -> System:
    """The system of this name or alias, or in this ``.yaml`` file.

    Raises:
        PresetNotFoundError: no shipped system has this name.
        ConfigError: as :func:`load_link`.
    """
    return _load(name_or_path, "systems", SystemFile, SystemFile.system)


@cache
def load_compute() -> Mapping[str, ComputeDims]:
    """The shipped compute dimensions, by preset name."""
    path = presets_folder("compute") / "models.yaml"
    table = parse_file(path.read_bytes(), ComputeFile, file=path.name)
    return {name: entry.dims() for name, entry in table.models.items()}


def parse_link(content: bytes, *, file: str) -> Link:
    """The link that ``content`` describes; ``file`` is its name in messages.

    Raises:
        ConfigError: as :func:`load_link`.
    """
    return _build(parse_file(content, LinkFile, file=file), LinkFile.link, file)


def parse_system(content: bytes, *, file: str) -> System:
    """The system that ``content`` describes; ``file`` is its name in messages.

    Raises:
        ConfigError: as :func:`load_link`.
    """
    return _build(parse_file(content, SystemFile, file=file), SystemFile.system, file)


def parse_file(content: bytes, schema: type[_File], *, file: str) -> _File:
    """Validate a file against ``schema``.

    Raises:
        ConfigError: every problem, with its line.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file}: byte 0x{content[error.start]:02x} is not UTF-8; save it as UTF-8"
        ) from error
    document = read_document(text)
    if document.is_complete and isinstance(document.data, dict):
        try:
            found = schema.from_plain(document.data)
        except ValidationError as error:
            _add_problems(document, error, schema)
        else:
            if not document.problems:
                return found
    elif document.is_complete and not document.problems:
        document.add((), f"given {describe(document.data)}; allowed: a map of fields")
    raise config_error(file, document.problems)


def _load(name_or_path: str, kind: str, schema: type[_File], build: Callable[[_File], _Built]) -> _Built:
    if name_or_path.casefold().endswith(_SUFFIXES) or "/" in name_or_path:
        content = read_input(name_or_path, limit=MAX_FILE_BYTES, what=f"the path of a {schema.what} file")
        file = shorten(name_or_path, 200)
    else:
        path = _find(name_or_path, kind, schema.what)
        content, file = path.read_bytes(), path.name
    return _build(parse_file(content, schema, file=file), build, file)


def _build(found: _File, build: Callable[[_File], _Built], file: str) -> _Built:
    try:
        return build(found)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error


def _find(name: str, kind: str, what: str) -> Path:
    files = {path.stem: path for path in _files(kind)}
    wanted = name.casefold()
    if wanted in files:
        return files[wanted]
    aliases = {alias: files[entry.name] for entry in _summaries(kind) for alias in entry.aliases}
    if wanted in aliases:
        return aliases[wanted]
    hint = suggest(wanted, (*files, *aliases), cutoff=0.5)
    measured = f", and {MEASURED}FILE for what bench measured" if kind == "links" else ""
    raise PresetNotFoundError(
        f"no {what} is named {shorten(name)!r}{hint or ';'} known: {', '.join(files)}; "
        f"to read a file of your own, give its path, ending in .yaml{measured}"
    )


def _files(kind: str) -> list[Path]:
    return sorted(presets_folder(kind).glob("*.yaml"))


def _summaries(kind: str) -> tuple[DeploymentSummary, ...]:
    found = (read_document(path.read_text(encoding="utf-8")).data for path in _files(kind))
    return tuple(
        DeploymentSummary(name=data["name"], aliases=tuple(data.get("aliases", ())), summary=data["summary"])
        for data in found
    )


def _add_problems(document: Document, error: ValidationError, schema: type[BaseModel]) -> None:
    for details in error.errors(include_url=False):
        path: FieldPath = details["loc"]
        if not document.is_placeholder(path):
            document.add(path, _explain(details, path, schema))


def _explain(details: ErrorDetails, path: FieldPath, schema: type[BaseModel]) -> str:
    fields = {field.alias or name: field for name, field in _model_at(schema, path[:-1]).model_fields.items()}
    if details["type"] == "missing":
        return f"missing ({fields[str(path[-1])].description})"
    if details["type"] == "extra_forbidden":
        return unknown_field(path, list(fields))
    return given_and_allowed(details)


def _model_at(schema: type[BaseModel], path: FieldPath) -> type[BaseModel]:
    """The model that the value at ``path`` is validated against, or the last one on the way to it."""
    for part in path:
        field = next(
            (field for name, field in schema.model_fields.items() if part in (name, field.alias)),
            None,
        )
        if field is not None:
            schema = next(_models_in(field.annotation), schema)
    return schema


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
