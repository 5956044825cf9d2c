"""Taking samples: warm-ups apart, as many as the time asks for, the garbage collector off."""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hicache_bench.stats import bootstrap_interval, median
from hicache_bench.units import format_seconds
from hicache_bench.workflows.bench.timed import StopWatch

NUM_WARMUPS = 2
MIN_SAMPLES = 15
"""Of a calibrated series: fewer give a bootstrap interval that means little."""

MAX_SAMPLES = 10_000
_MIN_CONCURRENT_SAMPLES = 3
_PROC = Path("/proc")
_MIN_SECONDS = 1e-3
_MAX_STDEV_SHARE = 0.10
_MAX_EXTREME_SHARE = 0.50
"""These three are the limits of pyperf's stability check (commit ab7fd04)."""

_MAX_INTERVAL_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many samples: ``repeat`` of them, or as many as fill ``min_seconds``.

    ``concurrent`` clients work for ``min_seconds`` by the clock instead, since they must stop at one time.
    """

    repeat: int | None
    min_seconds: float
    concurrent: bool = False

    def num_samples(self, warmups: Sequence[float]) -> int | None:
        """None: by the clock. Else fixed before the first sample: none decides whether it is the last."""
        if self.repeat is not None:
            return self.repeat
        if self.concurrent:
            return None
        wanted = math.ceil(self.min_seconds / max(median(warmups), 1e-9))
        return min(max(wanted, MIN_SAMPLES), MAX_SAMPLES)


@dataclass(slots=True)
class Samples:
    """Seconds, one entry for each sample; the fields are those of a record's ``Series``."""

    warmups: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    key_seconds: list[float] = field(default_factory=list)
    store_seconds: list[float] = field(default_factory=list)
    store_calls: int = 0
    busy_processors: float | None = None
    own_processors: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is sampled. ``before`` and ``after`` each call are outside the time."""

    action: Callable[[], object]
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None
    key_watch: StopWatch = field(default_factory=StopWatch)
    store_watch: StopWatch = field(default_factory=StopWatch)


def warm_up(subject: Subject, samples: Samples, clock: Callable[[], float] = time.monotonic) -> None:
    """Take the warm-ups: first calls fill caches, open connections and commit memory."""
    for _ in range(NUM_WARMUPS):
        subject.before()
        started = clock()
        subject.action()
        samples.warmups.append(clock() - started)
        subject.after()


def take(
    subject: Subject,
    samples: Samples,
    effort: Effort,
    *,
    origin: float,
    pids: Sequence[int] = (),
    note: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Take the samples after :func:`warm_up`; ``origin`` is the clock's time that their starts count from.

    ``clock`` is one that all processes of the machine share. ``pids`` are those whose work counts as our own.
    """
    wanted = effort.num_samples(samples.warmups)
    busy_before, own_before, began = busy_seconds(), own_seconds(pids), clock()
    with _collector_off():
        while not _is_enough(samples, effort, wanted, clock() - origin):
            subject.before()
            subject.key_watch.reset()
            subject.store_watch.reset()
            started = clock()
            subject.action()
            samples.seconds.append(clock() - started)
            samples.starts.append(started - origin)
            samples.key_seconds.append(subject.key_watch.seconds)
            samples.store_seconds.append(subject.store_watch.seconds)
            samples.store_calls = subject.store_watch.calls
            subject.after()
            note(f"sample {len(samples.seconds)}" + (f" of {wanted}" if wanted else ""))
    busy_after, own_after, ended = busy_seconds(), own_seconds(pids), clock()
    samples.busy_processors = _per_second(busy_before, busy_after, ended - began)
    samples.own_processors = _per_second(own_before, own_after, ended - began)


def busy_seconds(proc: Path = _PROC) -> float | None:
    """Seconds that all processors together have worked since the machine started; None without ``/proc``.

    The whole machine's: the threads of another process that serve a read are part of its cost.
    """
    try:
        first, *_ = (proc / "stat").read_text().splitlines()
    except OSError:
        return None
    _, *ticks = first.split()
    idle = sum(map(int, ticks[3:5]))  # idle, iowait
    # Guests are counted in user time already.
    return (sum(map(int, ticks[:8])) - idle) / os.sysconf("SC_CLK_TCK")


def own_seconds(pids: Sequence[int], proc: Path = _PROC) -> float | None:
    """Processor seconds that these processes have taken; None if one of them cannot be seen."""
    ticks = 0
    try:
        for pid in pids:
            # The name before the bracket may hold anything; user and system time are fields 14 and 15.
            fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    except OSError:
        return None
    return ticks / os.sysconf("SC_CLK_TCK") if pids else None


def _per_second(before: float | None, after: float | None, passed_seconds: float) -> float | None:
    if before is None or after is None or passed_seconds <= 0:
        return None
    return round((after - before) / passed_seconds, 2)


def _is_enough(samples: Samples, effort: Effort, wanted: int | None, passed_seconds: float) -> bool:
    taken = len(samples.seconds)
    if wanted is not None:
        return taken >= wanted
    return taken >= _MIN_CONCURRENT_SAMPLES and passed_seconds >= effort.min_seconds


@contextmanager
def _collector_off() -> Iterator[None]:
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def stability_warnings(seconds: Sequence[float]) -> tuple[str, ...]:
    """Why these samples may not be trusted; pyperf's rules, and the width of the median's interval."""
    if len(seconds) < 2:
        return ("one sample: nothing is known of its spread",)
    warnings = []
    mean, deviation = statistics.fmean(seconds), statistics.stdev(seconds)
    if deviation >= _MAX_STDEV_SHARE * mean:
        warnings.append(f"the standard deviation is {deviation / mean:.0%} of the mean")
    for name, extreme in (("shortest", min(seconds)), ("longest", max(seconds))):
        off = abs(extreme - mean) / mean
        if off >= _MAX_EXTREME_SHARE:
            warnings.append(f"the {name} sample is {off:.0%} off the mean")
    if min(seconds) < _MIN_SECONDS:
        warnings.append(f"the shortest sample is {format_seconds(min(seconds))}: interrupts weigh as much")
    low, high = bootstrap_interval(seconds)
    share = (high - low) / 2 / median(seconds)
    if share > _MAX_INTERVAL_SHARE:
        warnings.append(f"the median is known to ±{share:.0%} only; take more samples")
    return tuple(warnings)
