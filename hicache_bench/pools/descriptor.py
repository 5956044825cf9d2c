"""One pool of one rank: what it caches, how many bytes, how its pages become legal."""

from __future__ import annotations

from dataclasses import dataclass, field

from hicache_bench.errors import ConfigError
from hicache_bench.pools.geometry import Component
from hicache_bench.pools.names import (
    TRAILING_ATTENTION,
    AttentionType,
    HitPolicy,
    Layout,
    Requirement,
    Sharding,
)


@dataclass(frozen=True, slots=True)
class Rank:
    """Place of one worker in its parallel groups; sizes of 1 mean that the dimension is off.

    The groups are those of tensor, pipeline, context and decode-context parallelism.
    """

    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    cp_rank: int = 0
    cp_size: int = 1
    dcp_rank: int = 0
    dcp_size: int = 1

    def __post_init__(self) -> None:
        for name, rank, size in (
            ("tp", self.tp_rank, self.tp_size),
            ("pp", self.pp_rank, self.pp_size),
            ("cp", self.cp_rank, self.cp_size),
            ("dcp", self.dcp_rank, self.dcp_size),
        ):
            if not 0 <= rank < size:
                raise ConfigError(f"{name} rank {rank} is outside 0..{size - 1}")

    def __str__(self) -> str:
        parts = [
            f"{name}{rank}"
            for name, rank, size in (
                ("tp", self.tp_rank, self.tp_size),
                ("pp", self.pp_rank, self.pp_size),
                ("cp", self.cp_rank, self.cp_size),
                ("dcp", self.dcp_rank, self.dcp_size),
            )
            if size > 1
        ]
        return " ".join(parts) or "the only rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSelection:
    """How an index selects blocks of a pool: each query takes ``top_k`` rows of ``group_tokens`` tokens."""

    index_pool: str
    top_k: int
    group_tokens: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KVPoolDescriptor:
    """A pool as the planner and the store see it.

    ``page_tokens`` is the tier's page (P). ``unit_pages`` is the pool's own unit: one object covers that many
    pages, and an endpoint is legal only at its multiples unless ``partial_units`` says that the last unit may
    be used in part. Bytes of ``components`` are those of one unit on ``rank``.

    ``window_tokens`` is the model's window (``swa``, the query's own token included) or chunk (``chunked``);
    ``engine_window_tokens`` is what the engine believes it to be, used by the ``hit_policy`` policy alone.

    Raises:
        ConfigError: fields that contradict each other.
    """

    name: str
    attention: AttentionType
    page_tokens: int
    components: tuple[Component, ...] = ()
    dtype: str = "bf16"
    layout: Layout = Layout.PAGE_FIRST
    unit_pages: int = 1
    partial_units: bool = False
    window_tokens: int | None = None
    engine_window_tokens: int | None = None
    sharding: Sharding = Sharding.REPLICATED
    cp_sharded: bool = False
    dcp_sharded: bool = False
    rank: Rank = field(default_factory=Rank)
    required_for: Requirement = Requirement.CORRECTNESS
    derived_from: str | None = None
    selection: IndexSelection | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a pool needs a name")
        if self.page_tokens < 1 or self.unit_pages < 1:
            raise ConfigError(
                f"pool {self.name!r}: page_tokens {self.page_tokens} and unit_pages {self.unit_pages} "
                "must be at least 1"
            )
        windowed = self.attention in (AttentionType.SWA, AttentionType.CHUNKED)
        if windowed != (self.window_tokens is not None):
            raise ConfigError(
                f"pool {self.name!r}: attention {self.attention} "
                + ("needs window_tokens" if windowed else "has no window_tokens")
            )
        if self.window_tokens is not None and self.window_tokens < 1:
            raise ConfigError(f"pool {self.name!r}: window_tokens {self.window_tokens} must be at least 1")
        if self.partial_units and self.hit_policy is HitPolicy.TRAILING_PAGES:
            raise ConfigError(f"pool {self.name!r}: a state or window cannot be used in part")
        if self.is_logical and self.components:
            raise ConfigError(f"pool {self.name!r} is logical and must own no component")
        if not self.is_logical and not self.stored_components:
            raise ConfigError(f"pool {self.name!r} has no bytes; a pool without a buffer is a logical one")
        names = [component.name for component in self.components]
        if len({(component.name, component.chunk) for component in self.components}) != len(names):
            raise ConfigError(f"pool {self.name!r} has two components with one name: {', '.join(names)}")

    @property
    def is_logical(self) -> bool:
        """Whether the pool only owns allocation indices: no buffer, no key, no constraint."""
        return self.attention is AttentionType.LOGICAL

    @property
    def hit_policy(self) -> HitPolicy:
        """SGLang's word for which pages must exist."""
        return HitPolicy.TRAILING_PAGES if self.attention in TRAILING_ATTENTION else HitPolicy.ALL_PAGES

    @property
    def constrains(self) -> bool:
        """Whether a missing page of this pool may shorten the prefix."""
        return not self.is_logical and self.required_for is Requirement.CORRECTNESS

    def shard_of(self, component: Component) -> tuple[str, ...]:
        """Which part of the pool ``component`` is: ranks with equal shards hold the same bytes."""
        rank = self.rank
        tp_index, tp_count = component.chunk or (rank.tp_rank, rank.tp_size)
        return (
            f"tp{tp_index}of{tp_count}" if self.sharding is Sharding.SHARDED else "tp-",
            f"pp{rank.pp_rank}of{rank.pp_size}",
            "".join(
                (
                    f"cp{rank.cp_rank}of{rank.cp_size}" if self.cp_sharded else "cp-",
                    f"dcp{rank.dcp_rank}of{rank.dcp_size}" if self.dcp_sharded else "",
                )
            ),
        )

    @property
    def stored_components(self) -> tuple[Component, ...]:
        """The components that have bytes, hence a key and a buffer."""
        return tuple(component for component in self.components if component.object_bytes)

    @property
    def unit_tokens(self) -> int:
        """Tokens that one object of this pool covers."""
        return self.page_tokens * self.unit_pages

    @property
    def unit_bytes(self) -> int:
        """Bytes of one unit on this rank, over its components."""
        return sum(component.object_bytes for component in self.components)
