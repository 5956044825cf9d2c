"""What a ``roundtrip`` proved: each claim with what was checked for it, and what failed as it must."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hicache_bench.records.schema import SCHEMA_VERSION, Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One claim and its checks.

    ``section`` is ``control``, ``rules``, ``bytes``, ``isolation``, ``reader``, ``numerics``, ``fault`` or
    ``soak``; ``subject`` what it was proved on (a preset, a fault). ``cases`` names the field's fault reports
    that it stands for. ``figures`` are numbers worth keeping: pages restored and skipped, bytes compared,
    differences. A control passes when what it broke was found.
    """

    section: str
    name: str
    subject: str
    checks: tuple[Check, ...]
    cases: tuple[str, ...] = ()
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Every check passed, and there was one."""
        return bool(self.checks) and all(check.passed for check in self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundtripRecord:
    """One ``roundtrip``. Holds no host name, user name or absolute path."""

    kind: str = "roundtrip"
    status: str
    created_utc: str
    command: tuple[str, ...]
    tool_version: str
    libraries: Mapping[str, str]
    environment: Mapping[str, str | int]
    seed: int
    store: str
    store_settings: Mapping[str, str | int | float]
    presets: Mapping[str, str]
    proofs: tuple[Proof, ...]
    schema_version: int = SCHEMA_VERSION

    @property
    def failed_checks(self) -> tuple[Check, ...]:
        """The checks that did not pass, over all proofs."""
        return tuple(check for proof in self.proofs for check in proof.checks if not check.passed)

    @property
    def subject(self) -> str:
        """``roundtrip`` and its preset with the digest, or the number of presets, or ``faults``."""
        if len(self.presets) == 1:
            ((name, digest),) = self.presets.items()
            return f"roundtrip-{name}-{digest[:8]}"
        return f"roundtrip-{len(self.presets)}-presets" if self.presets else "roundtrip-faults"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in field order."""
        return asdict(self)
