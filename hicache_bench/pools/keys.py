"""Store keys: the hash chain of a prompt's pages, and the two schemes that turn a hash into object keys."""

from __future__ import annotations

import hashlib
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import quote

from hicache_bench.errors import ConfigError
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import SYNTHETIC_POOLS, AttentionType, PoolName

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_SGLANG_SEED_DOMAIN = b"sglang-cache-namespace-v1"
_SCHEME_VERSION = "hcb1"
_STATE_COMPONENT = re.compile(r"temporal|conv_\d+")


def namespace_seed(adapter: str | None, salt: str | None) -> str | None:
    """First link of a hash chain, hex; None without adapter and salt, so that plain keys stay plain.

    The parts are framed (presence byte, length, bytes): absent differs from empty, ``('a', 'bc')`` from
    ``('ab', 'c')``. Source: SGLang 0.5.23 ``mem_cache/utils.py`` (golden file, ``page_hash``).
    """
    if adapter is None and salt is None:
        return None
    digest = hashlib.sha256(_SGLANG_SEED_DOMAIN)
    for part in (adapter, salt):
        if part is None:
            digest.update(b"\x00")
        else:
            encoded = part.encode()
            digest.update(b"\x01" + len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


class KeyUnit(str, Enum):
    """What a page of a hash chain counts: tokens, or pairs of neighbours (SGLang's tree under EAGLE)."""

    TOKEN = "token"  # noqa: S105 -- of text, not of access
    BIGRAM = "bigram"

    def __str__(self) -> str:
        return self.value


def page_hashes(
    tokens: npt.NDArray[np.uint32],
    page_tokens: int,
    *,
    parent: str | None = None,
    key_unit: KeyUnit = KeyUnit.TOKEN,
) -> list[str]:
    """Hash every whole page of ``tokens``: ``sha256(previous digest ‖ units as uint32 little-endian)``, hex.

    ``parent`` is the hash of the page before the first one, or a :func:`namespace_seed`. A chain that
    continues at page ``n`` without its parent has other hashes than the one that was written.

    A bigram enters as its two tokens, so that N tokens have N - 1 units, and ``(N - 1) // page_tokens`` whole
    pages. Source: SGLang 0.5.23 ``mem_cache/cpp_utils/hash_binding.cpp``.
    """
    words = tokens.astype("<u4", copy=False)
    unit_bytes = 4
    if key_unit is KeyUnit.BIGRAM:
        words = words.repeat(2)[1:-1]  # a, b, c: (a, b), (b, c)
        unit_bytes = 8
    page_bytes = page_tokens * unit_bytes
    data = words.tobytes()
    digest = bytes.fromhex(parent) if parent is not None else b""
    hashes: list[str] = []
    sha256 = hashlib.sha256
    for (page,) in struct.iter_unpack(f"{page_bytes}s", data[: len(data) // page_bytes * page_bytes]):
        digest = sha256(digest + page).digest()
        hashes.append(digest.hex())
    return hashes


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """The static part of one component's keys; a key is ``prefix + page hash + suffix``."""

    component: Component
    prefix: str
    suffix: str

    def key(self, page_hash: str) -> str:
        """The key of one page."""
        return self.prefix + page_hash + self.suffix

    def all_keys(self, hashes: Sequence[str]) -> list[str]:
        """The key of each page."""
        if not self.suffix:
            return [*map(self.prefix.__add__, hashes)]  # a pass in C: half the time of the loop below
        return [self.prefix + page_hash + self.suffix for page_hash in hashes]


class KeyBuilder(ABC):
    """Keys of the objects of a pool. The static part is built once per pool."""

    scheme: str

    def __init__(self) -> None:
        self._templates: dict[KVPoolDescriptor, tuple[KeyTemplate, ...]] = {}

    def templates(self, pool: KVPoolDescriptor) -> tuple[KeyTemplate, ...]:
        """One template per component that has bytes, in the pool's order; none for a logical pool."""
        found = self._templates.get(pool)
        if found is None:
            found = tuple(
                KeyTemplate(component, *self._affixes(pool, component))
                for component in pool.stored_components
            )
            self._templates[pool] = found
        return found

    def keys(self, pool: KVPoolDescriptor, hashes: Sequence[str]) -> list[str]:
        """Keys page by page, the components of a page together: ``k`` and ``v`` of page 0, then of page 1."""
        templates = self.templates(pool)
        if len(templates) == 1:
            return templates[0].all_keys(hashes)
        keys = [""] * (len(hashes) * len(templates))
        for index, template in enumerate(templates):
            keys[index :: len(templates)] = template.all_keys(hashes)
        return keys

    @abstractmethod
    def _affixes(self, pool: KVPoolDescriptor, component: Component) -> tuple[str, str]:
        """What stands before and after the page hash."""


class NamespacedKeyBuilder(KeyBuilder):
    """Keys that no other model, dtype, geometry, tenant or shard can have.

    Fields are percent-escaped and joined by ``/``, which no escaped field holds: two different tuples never
    give one key. Tensor parallelism enters only as the shard of a *sharded* pool, so that a replicated pool
    has one key on any TP size.

    Args:
        model_digest: digest of the canonical model description (``ModelSpec.digest``).
        salt: tenant; None and the empty string are different tenants.
    """

    scheme = "namespaced"

    def __init__(self, model_digest: str, *, salt: str | None = None) -> None:
        super().__init__()
        seed = namespace_seed(model_digest, salt)
        assert seed is not None  # model_digest is a string
        self.namespace = seed[:32]

    def _affixes(self, pool: KVPoolDescriptor, component: Component) -> tuple[str, str]:
        fields = (
            _SCHEME_VERSION,
            self.namespace,
            str(pool.layout),
            str(pool.attention),
            str(pool.name),
            pool.dtype,
            f"p{pool.page_tokens}u{pool.unit_pages}",
            f"l{component.num_layers}r{component.rows}b{component.row_bytes}h{component.heads}",
            *pool.shard_of(component),
            component.name,
        )
        return "/".join(quote(part, safe="", errors="surrogatepass") for part in fields) + "/", ""


class SglangKeyBuilder(KeyBuilder):
    """Byte for byte the keys of SGLang 0.5.23's ``MooncakeStore``, so that a real server's objects are found.

    No TP size, page size, dtype or layout stands in them. The empty MLA suffix leaves a double underscore.

    Args:
        mla_backend: whether the anchor is an MLA (or DeepSeek V4) pool.
        extra_backend_tag: the server's ``extra_backend_tag``.
        model_name: the server's model name; ``/`` becomes ``-``.
    """

    scheme = "sglang"

    def __init__(
        self, *, mla_backend: bool, extra_backend_tag: str | None = None, model_name: str | None = None
    ) -> None:
        super().__init__()
        self.mla_backend = mla_backend
        # An empty tag is one, as it is to SGLang; an empty model name is none.
        parts = [] if extra_backend_tag is None else [extra_backend_tag]
        parts += [model_name.replace("/", "-")] if model_name else []
        self.prefix = "".join(f"{part}_" for part in parts)

    def _affixes(self, pool: KVPoolDescriptor, component: Component) -> tuple[str, str]:
        rank = pool.rank
        names = [stored.name for stored in pool.stored_components]
        stage = f"_{rank.pp_rank}" if rank.pp_size > 1 else ""
        shard = rank.tp_rank if component.chunk is None else component.chunk[0]
        per_rank = f"_{shard}{stage}"
        shared = f"_dcp{rank.dcp_rank}_cp{rank.cp_rank}{stage}" if rank.dcp_size > 1 else f"_{stage[1:]}"
        label = "" if pool.name == PoolName.KV.value else f"_{pool.name}"
        self._check_known(pool, names)
        prefix = self.prefix + _dcp_prefix(pool)
        if pool.attention is AttentionType.RECURRENT:
            return prefix, f"{per_rank}_{component.name}"
        if set(names) == {"k", "v"}:
            return prefix, f"{per_rank}{label}_{component.name}"
        if pool.attention is AttentionType.MLA:
            return prefix, f"{shared}{label}_k"
        return prefix, f"{shared}{label}"

    def _check_known(self, pool: KVPoolDescriptor, names: Sequence[str]) -> None:
        """Refuse a pool for which SGLang builds no key, or one key for different bytes."""
        refusal = None
        if pool.name in SYNTHETIC_POOLS:
            refusal = "it has no pool of that name"
        elif pool.cp_sharded:
            refusal = "its keys do not tell context-parallel ranks apart"
        elif any(component.chunk for component in pool.components) and pool.name != PoolName.KV.value:
            refusal = "it splits the heads of pool 'kv' alone"
        elif pool.attention is AttentionType.RECURRENT:
            unknown = [name for name in names if not _STATE_COMPONENT.fullmatch(name)]
            if unknown:
                refusal = f"it stores no {', '.join(unknown)} of a state"
        elif pool.name == PoolName.SWA.value and self.mla_backend != (names == ["page"]):
            anchor = "behind" if self.mla_backend else "without"
            refusal = (
                f"its sliding window of components {', '.join(names)} does not stand {anchor} an MLA anchor"
            )
        elif set(names) != {"k", "v"} and len(names) != 1:
            refusal = f"it stores no components {', '.join(names)} of a page"
        if refusal:
            raise ConfigError(
                f"SGLang has no key for pool {pool.name!r}: {refusal}; use --key-scheme namespaced"
            )


def _dcp_prefix(pool: KVPoolDescriptor) -> str:
    """What SGLang adds before the hash under decode-context parallelism: the whole topology."""
    rank = pool.rank
    if rank.dcp_size == 1:
        return ""
    return f"tp{rank.tp_size}_dcp{rank.dcp_size}_page{pool.page_tokens}_pp{rank.pp_size}_cp{rank.cp_size}_"


def has_mla_anchor(pools: Sequence[KVPoolDescriptor]) -> bool:
    """Whether SGLang would treat this set of pools as an MLA backend: an MLA or a logical ``kv``."""
    anchor = next((pool for pool in pools if pool.name == PoolName.KV.value), None)
    return anchor is not None and anchor.attention in (AttentionType.MLA, AttentionType.LOGICAL)
