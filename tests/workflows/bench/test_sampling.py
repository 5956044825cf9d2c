"""Warm-ups, how many samples, what is inside the time, and when samples are not to be trusted."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hicache_bench.errors import StoreError
from hicache_bench.workflows.bench.sampling import (
    MAX_SAMPLES,
    MIN_SAMPLES,
    NUM_WARMUPS,
    Effort,
    Samples,
    Subject,
    busy_seconds,
    own_seconds,
    stability_warnings,
    take,
    warm_up,
)
from hicache_bench.workflows.bench.timed import StopWatch


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> Callable[[], None]:
        def wait() -> None:
            self.now += seconds

        return wait


@pytest.mark.parametrize(
    ("effort", "warmups", "expected"),
    [
        (Effort(repeat=4, min_seconds=9.0), [1.0], 4),
        (Effort(repeat=None, min_seconds=2.0), [0.04, 0.02], 67),
        (Effort(repeat=None, min_seconds=2.0), [1.0, 1.0], MIN_SAMPLES),
        (Effort(repeat=None, min_seconds=2.0), [1e-9, 1e-9], MAX_SAMPLES),
        (Effort(repeat=None, min_seconds=2.0), [0.0], MAX_SAMPLES),
        (Effort(repeat=None, min_seconds=2.0, concurrent=True), [1.0], None),
        (Effort(repeat=7, min_seconds=2.0, concurrent=True), [1.0], 7),
    ],
    ids=["repeat", "calibrated", "at least", "at most", "no time", "by the clock", "repeat at once"],
)
def test_number_of_samples(effort: Effort, warmups: list[float], expected: int | None) -> None:
    assert expected == effort.num_samples(warmups)


def test_only_the_action_is_timed() -> None:
    clock = Clock()
    subject = Subject(action=clock.passes(1.0), before=clock.passes(10.0), after=clock.passes(100.0))
    samples = Samples()
    warm_up(subject, samples, clock)
    assert [1.0] * NUM_WARMUPS == samples.warmups
    origin = clock.now
    take(subject, samples, Effort(repeat=3, min_seconds=0), origin=origin, clock=clock)
    assert [1.0, 1.0, 1.0] == samples.seconds
    assert [10.0, 121.0, 232.0] == samples.starts
    assert NUM_WARMUPS == len(samples.warmups)


def test_concurrent_samples_end_by_the_clock() -> None:
    clock = Clock()
    samples = Samples(warmups=[1.0])
    effort = Effort(repeat=None, min_seconds=5.0, concurrent=True)
    take(Subject(action=clock.passes(1.0)), samples, effort, origin=clock.now, clock=clock)
    assert 5 == len(samples.seconds)
    slow = Samples(warmups=[1.0])
    take(Subject(action=clock.passes(10.0)), slow, effort, origin=clock.now, clock=clock)
    assert 3 == len(slow.seconds)


def test_watches_are_of_one_sample_each() -> None:
    clock = Clock()
    watch = StopWatch(clock)
    subject = Subject(
        action=lambda: [watch.time(clock.passes(0.5)), watch.time(clock.passes(0.25)), clock.passes(1.0)()],
        store_watch=watch,
    )
    samples = Samples(warmups=[1.0])
    take(subject, samples, Effort(repeat=2, min_seconds=0), origin=clock.now, clock=clock)
    assert ([0.75, 0.75], [0.0, 0.0], 2) == (
        samples.store_seconds,
        samples.key_seconds,
        samples.store_calls,
    )
    assert [1.75, 1.75] == samples.seconds


@pytest.mark.parametrize("was_on", [True, False], ids=["on", "off"])
def test_the_collector_is_off_and_as_before_afterwards(was_on: bool) -> None:
    seen: list[bool] = []
    before = gc.isenabled()
    (gc.enable if was_on else gc.disable)()
    try:
        subject = Subject(action=lambda: seen.append(gc.isenabled()))
        take(subject, Samples(warmups=[1.0]), Effort(repeat=2, min_seconds=0), origin=0.0)
        assert ([False, False], was_on) == (seen, gc.isenabled())

        def fail() -> None:
            raise StoreError("gone")

        with pytest.raises(StoreError, match="gone"):
            take(Subject(action=fail), Samples(warmups=[1.0]), Effort(repeat=1, min_seconds=0), origin=0.0)
        assert was_on == gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()


STEADY = [0.010, 0.0101, 0.0099] * 10


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (STEADY, []),
        ([0.01], ["one sample"]),
        ([*STEADY, 0.0121, 0.0145], []),
        ([*STEADY, 0.0155], ["the longest sample is 52% off the mean"]),
        ([*STEADY, 0.004], ["the standard deviation is 11% of the mean", "the shortest sample is 59% off"]),
        ([0.0009, 0.00091] * 10, ["the shortest sample is 900 µs"]),
        ([0.01, 0.0113] * 6, ["the median is known to ±6% only"]),
    ],
    ids=["steady", "one", "a little off", "long", "short", "too short", "wide"],
)
def test_stability(seconds: list[float], words: list[str]) -> None:
    found = stability_warnings(seconds)
    assert len(words) == len(found), found
    for word, warning in zip(words, found, strict=True):
        assert word in warning


def test_busy_processors_are_those_of_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 20 30 4000 500 6 7 8 90 10\ncpu0 1 2 3\n")
    assert 1.71 == busy_seconds(tmp_path)
    assert busy_seconds(tmp_path / "none") is None


def test_own_processors_are_those_of_the_named_processes(tmp_path: Path) -> None:
    for pid, name, user, system in (
        (7, "python", 100, 20),
        (8, "odd) 1 2 (name", 30, 1),
        (9, "other", 999, 9),
    ):
        (tmp_path / str(pid)).mkdir()
        line = f"{pid} ({name}) S 1 2 3 4 5 6 7 8 9 10 {user} {system} 0 0\n"
        (tmp_path / str(pid) / "stat").write_text(line)
    assert 1.51 == own_seconds((7, 8), tmp_path)
    assert own_seconds((7, 10), tmp_path) is None
    assert own_seconds((), tmp_path) is None


def test_a_series_tells_what_its_own_processes_took() -> None:
    samples = Samples(warmups=[0.01])

    def work() -> None:
        started = time.process_time()
        while time.process_time() - started < 0.03:
            pass

    take(
        Subject(action=work),
        samples,
        Effort(repeat=5, min_seconds=0),
        origin=time.monotonic(),
        pids=(os.getpid(),),
    )
    assert samples.own_processors is not None
    assert 0 < samples.own_processors <= 1.2  # one thread, in ticks of 10 ms
    assert samples.busy_processors is not None
