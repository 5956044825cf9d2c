"""Is a preset file whole? Its text, its pools under each grouping, a key for all that it stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hicache_bench.config.load import MAX_FILE_BYTES, parse_model
from hicache_bench.config.read import read_input, shown_name
from hicache_bench.config.schema import ModelPreset
from hicache_bench.errors import ConfigError, InputError
from hicache_bench.models.deployment import Deployment
from hicache_bench.models.engine_profile import BY_KIND, SGLANG, pools_of
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import KeyBuilder, NamespacedKeyBuilder, SglangKeyBuilder, has_mla_anchor
from hicache_bench.workflows.prefix import build_registry


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """What was found in one file: pools under its own profile, and how many keys a page of them has."""

    file: str
    problems: tuple[str, ...] = ()
    preset: ModelPreset | None = None
    pools: tuple[KVPoolDescriptor, ...] = ()
    keys: int = 0


def check_files(names: Sequence[str]) -> tuple[FileCheck, ...]:
    """Check every file, whatever is wrong with the others; a name that is given twice is read once."""
    return tuple(_check_file(name) for name in dict.fromkeys(names))


def _check_file(name: str) -> FileCheck:
    shown = shown_name(name)
    try:
        content = read_input(name, limit=MAX_FILE_BYTES, what="a preset file")
        preset = parse_model(content, file=shown)
    except InputError as error:
        return FileCheck(file=shown, problems=(str(error),))
    problems = tuple(f"{shown}: {problem}" for problem in dict.fromkeys(_problems(preset)))
    pools = pools_of(preset.spec, profile=preset.profile)
    keys = sum(len(pool.stored_components) for pool in pools)
    return FileCheck(file=shown, problems=problems, preset=preset, pools=pools, keys=keys)


def _problems(preset: ModelPreset) -> Iterator[str]:
    """What keeps the pools from being stored, under every grouping that the preset may be used with."""
    if preset.profile == SGLANG and not preset.served_by:
        yield f"profile {SGLANG} is what an engine does, and served_by is empty; use profile {BY_KIND}"
    served = SGLANG in preset.served_by
    profiles = dict.fromkeys((preset.profile, BY_KIND, *((SGLANG,) if served else ())))
    for profile in profiles:
        for with_draft in (False, True) if preset.draft_layers else (False,):
            try:
                pools = pools_of(preset.spec, profile=profile, deployment=Deployment(with_draft=with_draft))
                build_registry(pools)
            except ConfigError as error:
                yield f"profile {profile}: {error}"
                continue
            yield from _key_problems(NamespacedKeyBuilder(preset.spec.digest), pools)
            if served and profile == SGLANG:
                yield from _key_problems(SglangKeyBuilder(mla_backend=has_mla_anchor(pools)), pools)


def _key_problems(builder: KeyBuilder, pools: Sequence[KVPoolDescriptor]) -> Iterator[str]:
    """Components with bytes that the scheme has no key for, or one that another component has too."""
    owners: dict[str, str] = {}
    for pool in pools:
        try:
            templates = builder.templates(pool)
        except ConfigError as error:
            yield f"key scheme {builder.scheme}: {error}"
            continue
        keyed = {template.component for template in templates}
        yield from (
            f"key scheme {builder.scheme} has no key for {pool.name}.{component.name}"
            for component in pool.components
            if component.object_bytes and component not in keyed
        )
        for template in templates:
            owner = f"{pool.name}.{template.component.name}"
            first = owners.setdefault(template.key("-"), owner)
            if first != owner:
                yield f"key scheme {builder.scheme} gives {first} and {owner} one key"
