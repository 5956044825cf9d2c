"""The keys of a deployed model's objects, and the hashes of a prompt's pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hicache_bench.config.document import describe, shorten
from hicache_bench.config.read import read_input, shown_name
from hicache_bench.errors import InputError
from hicache_bench.planning.policy import trailing_units
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.keys import KeyUnit, page_hashes
from hicache_bench.pools.names import HitPolicy
from hicache_bench.workflows.cluster import members_of
from hicache_bench.workflows.variant import Variant

MAX_PROMPT_BYTES = 64 << 20
"""Text of four million tokens and more."""

_MAX_TOKEN = 2**32 - 1

Tokens = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One set of objects of a pool: those that a rank writes, and ``ranks`` ranks read."""

    pool: KVPoolDescriptor
    ranks: int

    def label_of(self, component: Component) -> str:
        """``tp0of2``; ``whole`` where there is one."""
        parts = [
            part
            for part in self.pool.shard_of(component)
            if part and not part.endswith("-") and not part.endswith("of1")
        ]
        return " ".join(parts) or "whole"


def shards_of(variant: Variant) -> Mapping[str, tuple[Shard, ...]]:
    """The shards of every pool that is stored, by the pool's name; ranks with equal keys share one.

    Raises:
        ConfigError: pools that the engine refuses, that collide, cannot be stored or have no key.
    """
    members = members_of(variant)
    held: dict[str, int] = {}
    owned: dict[str, list[KVPoolDescriptor]] = {}
    for member in members:
        for pool in member.registry.registered:
            held[pool.name] = held.get(pool.name, 0) + 1
        for pool in member.owned:
            owned.setdefault(pool.name, []).append(pool)
    return {
        name: tuple(Shard(pool=pool, ranks=held[name] // len(pools)) for pool in pools)
        for name, pools in owned.items()
    }


def trailing_pages(pool: KVPoolDescriptor) -> int | None:
    """Pages that an engine needs at the end of a prefix; None where it needs all."""
    return trailing_units(pool) if pool.hit_policy is HitPolicy.TRAILING_PAGES else None


def example_tokens(num_tokens: int) -> Tokens:
    """The prompt ``1, 2, 3, ...``, whose hashes anyone can compute again."""
    return np.arange(1, num_tokens + 1, dtype=np.uint32)


def prompt_hashes(variant: Variant, tokens: Tokens, key_unit: KeyUnit) -> list[str]:
    """Hashes of the whole pages of ``tokens``, seeded with the adapter and the salt.

    Raises:
        InputError: not one whole page.
    """
    page_tokens = variant.page_tokens
    hashes = page_hashes(tokens, page_tokens, parent=variant.chain_seed, key_unit=key_unit)
    if not hashes:
        least = page_tokens + (key_unit is KeyUnit.BIGRAM)
        raise InputError(
            f"{len(tokens)} tokens hold no whole page of {page_tokens} {key_unit}s; give at least {least}"
        )
    return hashes


def read_prompt(name: str) -> Tokens:
    """Token ids in a file, or on standard input: a JSON list, or numbers with white space between them.

    Raises:
        InputError: nothing that can be read, or something else than ids of 32 bits.
    """
    shown = shown_name(name)
    content = read_input(name, limit=MAX_PROMPT_BYTES, what="a file of token ids")
    try:
        text = content.decode("utf-8-sig").strip()
        ids = (
            json.loads(text) if text.startswith(("[", "{", '"')) else [_number(word) for word in text.split()]
        )
    except UnicodeDecodeError as error:
        raise InputError(f"{shown}: byte {error.start} is not UTF-8; {_PROMPT_FORM}") from error
    except RecursionError as error:
        raise InputError(f"{shown}: nested too deeply; {_PROMPT_FORM}") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{shown}: line {error.lineno}: not JSON ({error.msg}); {_PROMPT_FORM}") from error
    except ValueError as error:
        raise InputError(f"{shown}: {shorten(str(error), 120)}; {_PROMPT_FORM}") from error
    if not isinstance(ids, list):
        raise InputError(f"{shown} holds {describe(ids)}; {_PROMPT_FORM}")
    for position, token in enumerate(ids):
        if type(token) is not int or not 0 <= token <= _MAX_TOKEN:
            given = f"token {position} is {_shown_token(token)}"
            raise InputError(f"{shown}: {given}; allowed: 0 to {_MAX_TOKEN:,}; {_PROMPT_FORM}")
    return np.array(ids, dtype=np.uint32)


_PROMPT_FORM = "give a JSON list of token ids, or ids with white space between them"


def _number(word: str) -> int:
    if not (word.isascii() and word.isdecimal()):
        raise ValueError(f"{shorten(word)!r} is no token id")
    return int(word)


def _shown_token(token: Any) -> str:
    # Python refuses to print an integer of thousands of digits.
    return "too large" if type(token) is int and token > _MAX_TOKEN else describe(token)


def page_keys(
    variant: Variant, shards: Sequence[Shard], page_hash: str
) -> list[tuple[Shard, Component, str]]:
    """The key of every object of one page of one pool."""
    return [
        (shard, template.component, template.key(page_hash))
        for shard in shards
        for template in variant.keys.templates(shard.pool)
    ]
