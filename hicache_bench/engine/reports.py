"""What a save, a lookup and a restore came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hicache_bench.engine.prefix import Prefix
from hicache_bench.engine.transfer import Transfer
from hicache_bench.planning.ledger import Ledger, Volume
from hicache_bench.planning.plan import TransferPlan
from hicache_bench.planning.policy import BoolVector, IntVector


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveReport:
    """What a save stored.

    ``existing`` objects were there before; nothing was written for them. ``stored_pages`` is the leading run
    of pages whose every object is now stored, ``failed_pages`` the rest, sent in vain or never sent.
    """

    written: Mapping[str, Volume]
    existing: Mapping[str, Volume]
    failed: Mapping[str, Volume]
    stored_pages: int
    failed_pages: int
    transfer: Transfer
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every page of the prefix is stored."""
        return not self.failed_pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """What a store holds of a prefix: per pool, one flag per unit. An ``error`` is not a miss.

    A unit that was not ``asked`` for is neither there nor a miss. Its ``presence`` is false, except below
    ``first_page``, where all is local.

    ``diagnostics`` name faults of the question itself: ``chain_anchor_mismatch`` if a prefix that continues
    past ``first_page`` was hashed without its parent, so that nothing written by a server can be found.
    """

    prefix: Prefix
    presence: Mapping[str, BoolVector]
    asked: Mapping[str, BoolVector]
    keys_asked: int
    calls: int
    errors: int
    seconds: float
    diagnostics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """A restore that was executed: the plan as narrowed by an index, what arrived, and the closed account.

    ``seconds`` leave out the ``selection_seconds`` that the selector took, since a server scores on its GPU,
    and what hooks took.
    """

    plan: TransferPlan
    ledger: Ledger
    arrived: Mapping[str, IntVector]
    transfer: Transfer
    seconds: float
    selection_seconds: float = 0.0
