"""The presets that a ``--preset`` names."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hicache_bench.config.schema import ModelPreset

ALL = "all"


def chosen_presets(text: str) -> list[ModelPreset]:
    """Names or aliases of presets, paths to ``.yaml`` files, or ``all``, comma-separated; each once.

    Raises:
        ConfigError: no preset has a name, or a file is none.
    """
    from hicache_bench.config.catalogue import shipped_files
    from hicache_bench.config.load import load_model

    words = [word.strip() for word in text.split(",")]
    names = chain.from_iterable(shipped_files() if word.casefold() == ALL else (word,) for word in words)
    found = [load_model(name) for name in names]
    return list({preset.name: preset for preset in found}.values())


def check_moving_store(name: str) -> None:
    """For a command that moves bytes; ``count`` is known, and why it will not do is said by the workflow.

    Raises:
        InputError: no store has this name.
    """
    from hicache_bench.cli.lists import one_of
    from hicache_bench.workflows.stores import STORES

    if name != "count":
        one_of("--store", {store: store for store in STORES if store != "count"})(name)
