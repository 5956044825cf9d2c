"""The shipped presets: which files there are, and what each says of itself.

Only plain data is read here, a fraction of a millisecond a file: a list needs no validated model.
Shipped presets lie in ``hicache_bench/presets`` of an installed package, and in ``presets`` of a source tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hicache_bench.config.document import read_document


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetSummary:
    """One line of a list of presets."""

    name: str
    aliases: tuple[str, ...]
    summary: str
    served_by: tuple[str, ...]


def list_presets() -> tuple[PresetSummary, ...]:
    """The shipped model presets, by name."""
    return tuple(
        PresetSummary(
            name=data["name"],
            aliases=tuple(data.get("aliases", ())),
            summary=data["summary"],
            served_by=tuple(data["served_by"]),
        )
        for data in map(_plain, shipped_files().values())
    )


def shipped_files() -> Mapping[str, Path]:
    """Shipped files by stem, which is the preset's name."""
    return dict(sorted((path.stem, path) for path in presets_folder("models").glob("*.yaml")))


def presets_folder(kind: str) -> Path:
    """Where the shipped ``models``, ``links`` and so on lie. A path is enough: wheels are always unpacked."""
    package = Path(__file__).parents[1]
    # An editable install has the package in the source tree, and the presets beside it.
    folders = (package / "presets" / kind, package.parent / "presets" / kind)
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def aliased_files() -> Mapping[str, Path]:
    """Shipped files by alias."""
    found: dict[str, Path] = {}
    for path in shipped_files().values():
        found.update(dict.fromkeys(_plain(path).get("aliases", ()), path))
    return found


def _plain(path: Path) -> Any:
    """The fields before the attentions: a name, aliases and prose, where shipped files have all of them."""
    # Without libyaml, whole files would take half a second in all.
    head, _, _ = path.read_text(encoding="utf-8").partition("\nattentions:")
    return read_document(head).data
