"""Finding and reading presets; every fault of a file is told at once, with its line."""

from __future__ import annotations

from pathlib import Path

from pydantic_core import ValidationError

from hicache_bench.config.catalogue import aliased_files, list_presets, shipped_files
from hicache_bench.config.document import Document, Mark, Problem, describe, read_document, shorten
from hicache_bench.config.explain import add_layer_problems, add_schema_problems, config_error
from hicache_bench.config.nearest import nearest
from hicache_bench.config.schema import ModelPreset
from hicache_bench.errors import ConfigError, PresetNotFoundError
from hicache_bench.models.engine_profile import pools_of

__all__ = ["MAX_FILE_BYTES", "list_presets", "load_model", "parse_model"]

MAX_FILE_BYTES = 1 << 20
"""A preset takes a few kB; what is larger is some other file."""

_SUFFIXES = (".yaml", ".yml")


def load_model(name_or_path: str) -> ModelPreset:
    """The preset of this name or alias (in any case), or the one in this ``.yaml`` file.

    Raises:
        PresetNotFoundError: no shipped preset has this name.
        ConfigError: a file that cannot be read, or that describes no possible model. The message lists every
            problem with file, line, field, what was given and what is allowed.
    """
    if name_or_path.casefold().endswith(_SUFFIXES) or "/" in name_or_path:
        return _load_file(Path(name_or_path), name_or_path)
    wanted = name_or_path.casefold()
    path = shipped_files().get(wanted) or aliased_files().get(wanted)
    if path is None:
        raise _not_found(name_or_path)
    return _load_file(path, path.name)


def parse_model(content: bytes, *, file: str) -> ModelPreset:
    """The preset that ``content`` describes; ``file`` is its name in messages.

    Raises:
        ConfigError: as :func:`load_model`.
    """
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(
            f"{file} is larger than {MAX_FILE_BYTES:,} bytes, which no preset is; give a preset file"
        )
    document = read_document(_decode(content, file))
    if document.is_complete and isinstance(document.data, dict):
        preset = _validate(document)
        if preset is not None and not document.problems:
            return _check_geometry(preset, file)
    elif document.is_complete and not document.problems:
        document.add((), f"given {describe(document.data)}; allowed: a map of fields")
    raise config_error(file, document.problems)


def _validate(document: Document) -> ModelPreset | None:
    add_layer_problems(document)
    try:
        return ModelPreset.from_plain(document.data)
    except ValidationError as error:
        add_schema_problems(document, error)
        return None


def _check_geometry(preset: ModelPreset, file: str) -> ModelPreset:
    """Build the model and its pools once, so that dims which fit no pool are refused with the file's name."""
    try:
        pools_of(preset.spec, profile=preset.profile)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    return preset


def _decode(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        mark = Mark(before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        text = f"byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise config_error(file, [Problem(mark, "", text)]) from error


def _load_file(path: Path, shown: str) -> ModelPreset:
    try:
        if path.is_fifo():  # opening one waits for a writer, who may never come
            raise ConfigError(f"{shown} is a pipe; give a preset name or the path of a preset file")
        with path.open("rb") as stream:
            # Bounded, since the path may be a device that never ends.
            content = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        if path.suffix.casefold() not in _SUFFIXES:
            raise _not_found(shown) from error
        raise ConfigError(
            f"{shown}: no such file; give a preset name or the path of a preset file"
        ) from error
    except IsADirectoryError as error:
        raise ConfigError(
            f"{shown} is a directory; give a preset name or the path of a preset file"
        ) from error
    # ValueError: a NUL byte in the path.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{shorten(shown)!r} cannot be read: {reason}; give the path of a preset file"
        ) from error
    return parse_model(content, file=shown)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long, or with a NUL byte
        return False


def _not_found(name: str) -> PresetNotFoundError:
    files = shipped_files()
    # Of a repository's name, "deepseek-ai/DeepSeek-V3", the part behind the slash is the telling one.
    near = nearest(name.casefold().rpartition("/")[2], {**files, **aliased_files()})
    meant = [f"{name}{suffix}" for suffix in _SUFFIXES if _is_file(f"{name}{suffix}")] or near
    hint = f" did you mean {' or '.join(map(repr, meant))}?" if meant else ""
    return PresetNotFoundError(
        f"no preset is named {shorten(name)!r};{hint} known: {', '.join(files)}; "
        "to read a file of your own, give its path, ending in .yaml"
    )
