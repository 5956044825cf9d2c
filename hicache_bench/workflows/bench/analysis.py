"""What raw samples come to: summaries, several clients against one, a store as a link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hicache_bench.records.bench import LinkPoint, Series, Summary, Together
from hicache_bench.stats import bootstrap_interval, jain_fairness, mad, median, percentile
from hicache_bench.workflows.bench.sampling import stability_warnings


def summarise(seconds: Sequence[float], *, num_bytes: int, objects: int) -> Summary:
    """The summary of samples that move so many bytes and objects each."""
    middle = median(seconds)
    low, high = bootstrap_interval(seconds)
    return Summary(
        samples=len(seconds),
        median=middle,
        mad=mad(seconds),
        p50=middle,
        p95=percentile(seconds, 95),
        p99=percentile(seconds, 99),
        p99_9=percentile(seconds, 99.9),
        low=low,
        high=high,
        bytes_per_second=num_bytes / middle if middle else 0.0,
        objects_per_second=objects / middle if middle else 0.0,
        warnings=stability_warnings(seconds),
    )


def compare_clients(series: Sequence[Series]) -> tuple[Together, ...]:
    """Each operation of several clients at once, against one client alone."""
    found = []
    for operation, policy in dict.fromkeys((item.operation, item.policy) for item in series):
        alike = [item for item in series if (item.operation, item.policy) == (operation, policy)]
        alone = [item for item in alike if item.concurrent == 1 and item.pool is None]
        at_once = [item for item in alike if item.concurrent > 1]
        if alone and at_once:
            found.append(_together(alone[0], at_once))
    return tuple(found)


def _together(alone: Series, at_once: Sequence[Series]) -> Together:
    window = common_window(at_once)
    rates = tuple(_rate(item, window) for item in at_once)
    alone_rate = _rate(alone, common_window([alone]))
    return Together(
        operation=alone.operation,
        policy=alone.policy,
        unit="bytes" if alone.num_bytes else "objects",
        window_seconds=window[1] - window[0],
        client_rates=rates,
        rate=sum(rates),
        busy_processors=at_once[0].busy_processors,
        own_processors=at_once[0].own_processors,
        alone_rate=alone_rate,
        alone_busy_processors=alone.busy_processors,
        alone_own_processors=alone.own_processors,
        speed_up=sum(rates) / alone_rate,
        efficiency=sum(rates) / alone_rate / len(at_once),
        fairness=jain_fairness(rates),
    )


def common_window(series: Sequence[Series]) -> tuple[float, float]:
    """From the moment when the last client has begun until the first one has ended.

    Bytes of all clients over the time of the slowest, or of the fastest, would be a rate that never was.
    """
    return max(item.starts[0] for item in series), min(item.starts[-1] + item.seconds[-1] for item in series)


def _rate(series: Series, window: tuple[float, float]) -> float:
    low, high = window
    if high <= low:
        return 0.0
    samples = 0.0
    for start, seconds in zip(series.starts, series.seconds, strict=True):
        inside = min(high, start + seconds) - max(low, start)
        samples += max(0.0, inside) / seconds
    return samples * (series.num_bytes or series.objects) / (high - low)


def link_points(series: Sequence[Series]) -> tuple[LinkPoint, ...]:
    """One point for each pool that was restored alone, by rising object size.

    The store time of a call is taken for ``op_seconds + bytes / bytes_per_second``; two sizes of call give
    both. Where they differ by too little to tell, everything is put down to the bytes.
    """
    return tuple(sorted(_points(series), key=lambda point: point.object_bytes))


def _points(series: Sequence[Series]) -> Iterator[LinkPoint]:
    calls = {item.pool: item for item in series if item.operation == "call"}
    for item in series:
        if item.operation != "restore" or item.pool is None or item.pool not in calls:
            continue
        call = calls[item.pool]
        whole_bytes, whole_seconds = _per_call(item)
        one_bytes, one_seconds = _per_call(call)
        rate, op_seconds = whole_bytes / whole_seconds, 0.0
        if whole_bytes > one_bytes and whole_seconds > one_seconds:
            slope = (whole_bytes - one_bytes) / (whole_seconds - one_seconds)
            if one_seconds > one_bytes / slope:
                rate, op_seconds = slope, one_seconds - one_bytes / slope
        yield LinkPoint(
            object_bytes=item.num_bytes // item.objects, bytes_per_second=rate, op_seconds=op_seconds
        )


def _per_call(series: Series) -> tuple[float, float]:
    return series.num_bytes / series.store_calls, median(series.store_seconds) / series.store_calls
