"""Bytes to seconds on a storage path."""

from __future__ import annotations

from dataclasses import dataclass

from hicache_bench.errors import ConfigError


@dataclass(frozen=True, slots=True)
class BandwidthModel:
    """Time of one batched call: ``op_seconds + objects·object_seconds + bytes/bytes_per_second``.

    ``op_seconds`` is paid once a call, ``object_seconds`` once an object (the reason that small objects are
    slow), bandwidth is in bytes per second.

    Raises:
        ConfigError: a bandwidth that is not positive, or a negative latency.
    """

    bytes_per_second: float
    op_seconds: float = 0.0
    object_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not self.bytes_per_second > 0:
            raise ConfigError(f"bandwidth must be above zero bytes per second, not {self.bytes_per_second}")
        if self.op_seconds < 0 or self.object_seconds < 0:
            raise ConfigError(f"latencies cannot be negative: {self.op_seconds}, {self.object_seconds}")

    def seconds(self, num_bytes: int, *, num_objects: int = 1, num_calls: int = 1) -> float:
        """Modelled seconds of ``num_calls`` calls that move ``num_objects`` objects, ``num_bytes`` in all."""
        return (
            num_calls * self.op_seconds
            + num_objects * self.object_seconds
            + num_bytes / self.bytes_per_second
        )
