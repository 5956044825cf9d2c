"""A preset as the command line changes it: dtypes, page size, workers, layout, keys. No new file needed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hicache_bench.config.document import shorten
from hicache_bench.config.schema import MAX_DIMENSION, ModelPreset
from hicache_bench.errors import ConfigError, InputError
from hicache_bench.models.deployment import MAX_WORKERS, Deployment
from hicache_bench.models.engine_profile import PROFILES, SGLANG, cluster_pools
from hicache_bench.models.spec import (
    CompressedAttention,
    GatedDelta,
    KimiDelta,
    Lightning,
    Mamba1,
    Mamba2,
    ModelSpec,
    SparseIndex,
)
from hicache_bench.pools.descriptor import KVPoolDescriptor, Rank
from hicache_bench.pools.geometry import DTYPE_BYTES, INDEX_DTYPES, KV_DTYPES, dashed
from hicache_bench.pools.keys import (
    KeyBuilder,
    NamespacedKeyBuilder,
    SglangKeyBuilder,
    has_mla_anchor,
    namespace_seed,
)
from hicache_bench.pools.layout import STORABLE_LAYOUTS
from hicache_bench.pools.names import Layout

_SIZED_BY_STATE_DTYPE = (GatedDelta, KimiDelta, Lightning, Mamba1, Mamba2)

KEY_SCHEMES = (NamespacedKeyBuilder.scheme, SglangKeyBuilder.scheme)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantOptions:
    """What a command was asked to change of a preset; None leaves the preset's own.

    ``cp`` is ``N:sharded`` or ``N:replicated``: whether context-parallel ranks share out a page's tokens, or
    hold copies, cannot be guessed.
    """

    kv_dtype: str | None = None
    state_dtype: str | None = None
    index_dtype: str | None = None
    page_tokens: int | None = None
    profile: str | None = None
    tp: int = 1
    pp: int = 1
    cp: str = "1"
    dcp: int = 1
    tp_lcm: int | None = None
    layout: str = Layout.PAGE_FIRST.value
    draft: bool = False
    salt: str | None = None
    adapter: str | None = None
    key_scheme: str = NamespacedKeyBuilder.scheme
    model_name: str | None = None
    extra_backend_tag: str | None = None


@dataclass(frozen=True)
class Variant:
    """A model as it is deployed: what :func:`apply_options` makes of a preset."""

    preset: ModelPreset
    spec: ModelSpec
    profile: str
    deployment: Deployment
    options: VariantOptions

    @cached_property
    def pools(self) -> Mapping[Rank, tuple[KVPoolDescriptor, ...]]:
        """The pools of every rank.

        Raises:
            ConfigError: a combination that the engine refuses.
        """
        return cluster_pools(self.spec, profile=self.profile, deployment=self.deployment)

    @property
    def page_tokens(self) -> int:
        """Tokens of the tier's page, which decode-context ranks share: ``P x DCP``."""
        return self.spec.page_tokens * self.deployment.dcp_size

    @cached_property
    def keys(self) -> KeyBuilder:
        """The chosen key scheme, which has a key for every stored pool of every rank.

        Raises:
            ConfigError: a pool that the scheme has no key for.
        """
        if self.options.key_scheme == NamespacedKeyBuilder.scheme:
            return NamespacedKeyBuilder(self.spec.digest, salt=self.options.salt)
        builder = SglangKeyBuilder(
            mla_backend=has_mla_anchor(next(iter(self.pools.values()))),
            extra_backend_tag=self.options.extra_backend_tag,
            model_name=self.options.model_name,
        )
        for pools in self.pools.values():
            for pool in pools:
                builder.templates(pool)
        return builder

    @property
    def chain_seed(self) -> str | None:
        """First link of the hash chain of every prompt: the adapter and the salt, or None."""
        return namespace_seed(self.options.adapter, self.options.salt)


def apply_options(preset: ModelPreset, options: VariantOptions) -> Variant:
    """The preset with the options applied.

    Raises:
        InputError: an option that is not among those allowed, or two that contradict each other.
        ConfigError: sizes that do not fit together.
    """
    _check_keys(options)
    cp_size, cp_sharded = _parse_cp(options.cp)
    deployment = Deployment(
        tp_size=options.tp,
        pp_size=options.pp,
        cp_size=cp_size,
        cp_sharded=cp_sharded,
        dcp_size=options.dcp,
        tp_lcm=options.tp_lcm,
        layout=parse_layout(options.layout),
        with_draft=options.draft,
    )
    changes: dict[str, Any] = {
        "kv_dtype": _chosen("--kv-dtype", options.kv_dtype, KV_DTYPES),
        "state_dtype": _chosen("--state-dtype", options.state_dtype, tuple(DTYPE_BYTES)),
        "index_dtype": _chosen("--index-dtype", options.index_dtype, INDEX_DTYPES),
        "page_tokens": _page_tokens(options.page_tokens),
    }
    spec = replace(preset.spec, **{name: value for name, value in changes.items() if value is not None})
    _check_effect(spec, options)
    profile = _chosen("--profile", options.profile, tuple(PROFILES), dashes=True) or preset.profile
    _check_served(spec, profile, options.key_scheme)
    return Variant(preset, spec, profile, deployment, options)


def parse_layout(name: str) -> Layout:
    """The layout of this name.

    Raises:
        InputError: no layout has it.
    """
    try:
        return Layout(name)
    except ValueError as error:
        allowed = ", ".join(sorted(layout.value for layout in STORABLE_LAYOUTS))
        raise InputError(f"unknown layout {name!r}; allowed: {allowed}") from error


def _page_tokens(given: int | None) -> int | None:
    if given is not None and not 1 <= given <= MAX_DIMENSION:
        raise InputError(f"--page-tokens {given} is no page size; allowed: 1 to {MAX_DIMENSION:,}")
    return given


def _check_effect(spec: ModelSpec, options: VariantOptions) -> None:
    """An option that changes no byte would still change the digest, and so every key."""
    layers = (*spec.layers, *(spec.draft_layers if options.draft else ()))
    attentions = [spec.attentions[name] for name in {name for names in layers for name in names}]
    if options.state_dtype is not None and not any(
        isinstance(attention, _SIZED_BY_STATE_DTYPE) for attention in attentions
    ):
        raise ConfigError(
            f"--state-dtype is of recurrent states, and model {spec.name!r} has none that it sizes; leave it "
            "out"
        )
    scaled = any(
        isinstance(attention, SparseIndex)
        or (isinstance(attention, CompressedAttention) and attention.index_head_dim is not None)
        for attention in attentions
    )
    if options.index_dtype is not None and not scaled:
        raise ConfigError(
            f"--index-dtype is of index keys with scales, and model {spec.name!r} has none; leave it out"
        )


def _check_served(spec: ModelSpec, profile: str, key_scheme: str) -> None:
    if spec.served_by:
        return
    for given, instead in (
        (profile == SGLANG and f"--profile {SGLANG}", "--profile by_kind"),
        (key_scheme == SglangKeyBuilder.scheme and f"--key-scheme {key_scheme}", "--key-scheme namespaced"),
    ):
        if given:
            raise ConfigError(
                f"{given} is what an engine does, and no engine serves model {spec.name!r} (served_by is "
                f"empty); use {instead}"
            )


def _check_keys(options: VariantOptions) -> None:
    for option, text in (
        ("--salt", options.salt),
        ("--adapter", options.adapter),
        ("--model-name", options.model_name),
        ("--extra-backend-tag", options.extra_backend_tag),
    ):
        _check_text(option, text)
    if options.key_scheme not in KEY_SCHEMES:
        raise InputError(f"unknown key scheme {options.key_scheme!r}; allowed: {', '.join(KEY_SCHEMES)}")
    if options.key_scheme != SglangKeyBuilder.scheme:
        for option, value in (
            ("--model-name", options.model_name),
            ("--extra-backend-tag", options.extra_backend_tag),
        ):
            if value is not None:
                raise InputError(f"{option} is a part of SGLang's keys; use it with --key-scheme sglang")


def _check_text(option: str, text: str | None) -> None:
    """The text itself is not told: a salt is a secret."""
    try:
        (text or "").encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{option} is not UTF-8 text; give it as such") from error
    for position, character in enumerate(text or "", 1):
        if unicodedata.category(character) == "Cc":
            raise InputError(
                f"{option} has the control character {character!r} at position {position}; allowed: text "
                "without control characters"
            )


def _chosen(option: str, value: str | None, allowed: tuple[str, ...], *, dashes: bool = False) -> str | None:
    """``value`` if it is one of ``allowed``; ``fp8-packed`` is ``fp8_packed`` unless ``dashes`` differ."""
    if value is None:
        return None
    found = value if dashes else value.replace("-", "_")
    if found not in allowed:
        shown = allowed if dashes else map(dashed, allowed)
        raise InputError(f"{option} {value!r} is unknown; allowed: {', '.join(shown)}")
    return found


def _parse_cp(text: str) -> tuple[int, bool]:
    match = re.fullmatch("0*([1-9][0-9]{0,8})(?::(sharded|replicated)?)?", text)
    if match is None:
        raise InputError(
            f"--cp {shorten(text)!r} is not a number of ranks; use N:sharded or N:replicated, such as "
            f"8:sharded (up to {MAX_WORKERS:,} ranks)"
        )
    size, kind = match.groups()
    if int(size) == 1:
        return 1, False
    if not kind:
        raise InputError(
            f"--cp {text} does not say what the ranks hold; use {size}:sharded (each its part of a page) or "
            f"{size}:replicated (all the same bytes)"
        )
    return int(size), kind == "sharded"
