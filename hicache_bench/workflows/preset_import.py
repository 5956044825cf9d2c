"""A Hugging Face ``config.json`` as the text of a preset file."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from hicache_bench.config.load import parse_model
from hicache_bench.config.read import read_input, shown_name
from hicache_bench.config.schema import ModelPreset, PresetName
from hicache_bench.config.write import write_preset
from hicache_bench.errors import ConfigError, InputError, OutputError
from hicache_bench.models.hf.importer import MAX_CONFIG_BYTES, import_config, read_config
from hicache_bench.models.spec import ModelSpec

CONFIG_NAME = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedPreset:
    """A preset, the text of its file, and what was concluded rather than read."""

    preset: ModelPreset
    text: str
    notes: tuple[str, ...]


def import_preset(source: str, *, name: str | None = None) -> ImportedPreset:
    """Make a preset of ``source``: a file, a directory with a ``config.json``, or ``-`` for standard input.

    Raises:
        InputError: ``name`` is none that a preset may have.
        ConfigError: nothing to read there, or a config that is not understood or describes no possible model.
    """
    _check_name(name)
    content = read_input(_config_of(source), limit=MAX_CONFIG_BYTES, what=f"a {CONFIG_NAME}")
    shown = shown_name(source)
    data = read_config(content, file=shown)
    try:
        imported = import_config(data, name=name)
    except ConfigError as error:
        raise ConfigError(f"{shown}: {error}") from None
    spec = imported.spec
    # The name of a path says where a file lay on one machine; it is left out.
    origin = f"{CONFIG_NAME} of {spec.architecture}"
    text = write_preset(
        spec,
        sources={
            kind: f"{CONFIG_NAME}: {fields}" if fields else CONFIG_NAME
            for kind, fields in imported.sources.items()
        },
        summary=_summary(spec),
        comments=(f"Imported from the {origin}.", *(f"Note: {note}" for note in imported.notes)),
    )
    return ImportedPreset(preset=parse_model(text.encode(), file=shown), text=text, notes=imported.notes)


def write_file(text: str, target: Path, *, force: bool) -> None:
    """Write ``text``; the file appears whole or not at all, and replaces another only with ``force``.

    Raises:
        OutputError: it exists, is no file, or cannot be written.
    """
    temporary = None
    try:
        path = target.resolve()
        if path.exists() and not path.is_file():
            raise OutputError(f"{str(target)!r} is no file; give the path of a file to write")
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=".preset-", suffix=".tmp", delete=False, encoding="utf-8"
        ) as file:
            temporary = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        if force:
            temporary.replace(path)
        else:
            os.link(temporary, path)  # unlike a rename, refuses to replace what is there
    except FileExistsError as error:
        raise OutputError(f"{str(target)!r} exists; give --force to replace it, or another path") from error
    except OutputError:
        raise
    # RuntimeError: a loop of links; ValueError: a NUL byte in the path.
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(
            f"cannot write {str(target)!r}: {reason}; give the path of a file to write"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _check_name(name: str | None) -> None:
    rule = get_args(PresetName)[1]
    if name is not None and not re.fullmatch(rule.pattern, name):
        raise InputError(f"--name {name!r} is no name of a preset; allowed: {rule.allowed}")


def _config_of(source: str) -> str:
    path = Path(source)
    try:
        return str(path / CONFIG_NAME) if path.is_dir() else source
    except ValueError:  # a NUL byte in the path, which reading it tells
        return source


def _summary(spec: ModelSpec) -> str:
    counts: Counter[str] = Counter()
    for name, count in spec.layer_counts.items():
        counts[spec.attentions[name].attention] += count
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return f"{len(spec.layers)} layers ({kinds}), as imported from its {CONFIG_NAME}"
