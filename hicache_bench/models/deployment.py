"""How a model is spread over workers, and how each lays out its pages."""

from __future__ import annotations

from dataclasses import dataclass

from hicache_bench.errors import ConfigError
from hicache_bench.pools.descriptor import Rank
from hicache_bench.pools.names import Layout

MAX_WORKERS = 4096
"""More is a slip, and would be thousands of ranks to walk through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Sizes of the parallel groups, and the host layout.

    ``dcp_size`` (decode-context parallelism) divides the tensor-parallel group: its ranks share out the
    tokens of a page. Context-parallel ranks either share them out too (``cp_sharded``) or hold copies.
    ``tp_lcm`` cuts the heads into that many objects over all ranks, so that other TP sizes find them.
    ``with_draft`` serves the draft (MTP) layers, behind the last pipeline stage: ``sglang-0.5.23`` packs
    them into the pools of their kind, whose objects grow, and ``by_kind`` gives them pools of their own. The
    compressor states of DeepSeek V4 grow with it as well, on every stage.

    Raises:
        ConfigError: sizes below 1, too many workers, groups that do not divide.
    """

    tp_size: int = 1
    pp_size: int = 1
    cp_size: int = 1
    cp_sharded: bool = False
    dcp_size: int = 1
    tp_lcm: int | None = None
    layout: Layout = Layout.PAGE_FIRST
    with_draft: bool = False

    def __post_init__(self) -> None:
        sizes = {"TP": self.tp_size, "PP": self.pp_size, "CP": self.cp_size, "DCP": self.dcp_size}
        for name, size in sizes.items():
            if size < 1:
                raise ConfigError(f"{name} {size} must be at least 1")
        if self.num_workers > MAX_WORKERS:
            raise ConfigError(f"{self.num_workers:,} workers are more than the {MAX_WORKERS:,} allowed")
        if self.tp_size % self.dcp_size:
            raise ConfigError(
                f"DCP {self.dcp_size} does not divide TP {self.tp_size}, whose ranks it groups; use a divisor"
            )
        if self.tp_lcm is not None and (self.tp_lcm < 1 or self.tp_lcm % self.tp_size):
            raise ConfigError(
                f"--tp-lcm {self.tp_lcm} is not a multiple of TP {self.tp_size}; use a common multiple of "
                "the TP sizes that shall share objects"
            )

    @property
    def num_workers(self) -> int:
        """Ranks of the deployment."""
        return self.tp_size * self.pp_size * self.cp_size

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """Every worker's place, the first pipeline stage first."""
        return tuple(
            Rank(
                tp_rank=tp,
                tp_size=self.tp_size,
                pp_rank=pp,
                pp_size=self.pp_size,
                cp_rank=cp,
                cp_size=self.cp_size,
                dcp_rank=tp % self.dcp_size,
                dcp_size=self.dcp_size,
            )
            for pp in range(self.pp_size)
            for cp in range(self.cp_size)
            for tp in range(self.tp_size)
        )

    def stage(self, num_layers: int, pp_rank: int) -> slice:
        """Layers of one pipeline stage: equal shares, and the last stages take one more each.

        Source: SGLang 0.5.23 ``distributed/utils.py``, ``get_pp_indices``.

        Raises:
            ConfigError: fewer layers than stages.
        """
        share, longer = divmod(num_layers, self.pp_size)
        if not share:
            raise ConfigError(f"{num_layers} layers cannot fill {self.pp_size} pipeline stages")
        first_longer = self.pp_size - longer
        start = pp_rank * share + max(0, pp_rank - first_longer)
        return slice(start, start + share + (pp_rank >= first_longer))
