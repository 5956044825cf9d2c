"""The Grafana dashboard: what hybrid pools move and leave, beside the Mooncake master that holds them.

``python -m hicache_bench.report.dashboard > dashboards/hicache-hybrid.json`` writes the committed file. Tests
hold one to the other, and ask a real Prometheus server every expression.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

from hicache_bench.engine.metrics import CALL_SECONDS, PREFIX, STORE_PREFIX, TRANSFER_SECONDS
from hicache_bench.report.grafana import Panel, Query, Row, dashboard, datasource_variable, label_variable

_RUN = 'instance=~"$run"'
_POLICY = f'{_RUN}, policy=~"$policy"'
_MASTER = 'instance=~"$master"'

_stat = partial(Panel, kind="stat", width=4, height=4)
_bars = partial(Panel, kind="bargauge", width=8)
_graph = partial(Panel, kind="timeseries", width=8)


def _pools(name: str) -> str:
    return f"{PREFIX}_{name}_total{{{_POLICY}}}"


def _sum(name: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}({_pools(name)})"


def _rate(name: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}(rate({_pools(name)}[$__rate_interval]))"


def _store_rate(name: str) -> str:
    return f"sum(rate({STORE_PREFIX}_{name}_total{{{_RUN}}}[$__rate_interval]))"


def _quantile(quantile: float, histogram: str, where: str, by: str) -> str:
    buckets = f"rate({histogram}_bucket{{{where}}}[$__rate_interval])"
    return f"histogram_quantile({quantile:g}, sum by (le, {by}) ({buckets}))"


def _master(name: str) -> str:
    return f"{name}{{{_MASTER}}}"


def _master_rate(name: str) -> str:
    return f"sum(rate({_master(name)}[$__rate_interval]))"


# A pool in which nothing was ever skipped, or a request that lost nothing, has no such series.
_SKIPPED = f"({_sum('skipped_bytes')} or vector(0))"
_SKIP_RATIO = (
    f"{_SKIPPED} / ({_sum('read_bytes')} + {_SKIPPED} + {_sum('missed_bytes')} + {_sum('failed_bytes')})"
)

_SUMMARY = Row(
    "Since the start of the run",
    (
        _stat(
            title="Skip ratio",
            text="Bytes left in the store, of all bytes that the store holds for what was restored.",
            unit="percentunit",
            queries=(Query(_SKIP_RATIO, "skipped"),),
            maximum=1,
        ),
        _stat(
            title="Bytes read",
            text="Restored from the store. A failed or missing object counts nothing here.",
            unit="bytes",
            queries=(Query(_sum("read_bytes"), "read"),),
        ),
        _stat(
            title="Bytes wasted",
            text="Read, and not usable: something else of the endpoint was lost. A part of the bytes read.",
            unit="bytes",
            queries=(Query(_sum("wasted_bytes"), "wasted"),),
            warn_above=1,
        ),
        _stat(
            title="Bytes missed and failed",
            text="Promised by lookup and absent at the read, or lost to an error.",
            unit="bytes",
            queries=(Query(_sum("missed_bytes"), "missed"), Query(_sum("failed_bytes"), "failed")),
            warn_above=1,
        ),
        _stat(
            title="Hit tokens used",
            text="Of the tokens that lookup promised, those from which a model resumes.",
            unit="percentunit",
            queries=(Query(f"{_sum('endpoint_used_tokens')} / {_sum('endpoint_hit_tokens')}", "used"),),
            maximum=1,
        ),
        _stat(
            title="Hit rate beyond the local prefix",
            text="Hit tokens, of the tokens that were asked of the store. Local tokens count in neither.",
            unit="percentunit",
            queries=(Query(f"{_sum('query_hit_tokens')} / {_sum('query_tokens')}", "hit"),),
            maximum=1,
        ),
    ),
)

_BYTES = Row(
    "Bytes by pool",
    (
        _bars(
            title="By pool and reason, since the start",
            text="Where each pool's bytes went: read, or left in the store and why.",
            unit="bytes",
            queries=(
                Query(_sum("read_bytes", "pool"), "{{pool}} read"),
                Query(_sum("skipped_bytes", "pool, reason"), "{{pool}} skipped: {{reason}}"),
            ),
            height=10,
        ),
        _graph(
            title="Read",
            text="Restored from the store, by pool.",
            unit="binBps",
            queries=(Query(_rate("read_bytes", "pool"), "{{pool}}"),),
            height=10,
            stacked=True,
        ),
        _graph(
            title="Skipped",
            text="Left in the store, by pool and reason: what a dense transfer would have moved as well.",
            unit="binBps",
            queries=(Query(_rate("skipped_bytes", "pool, reason"), "{{pool}}: {{reason}}"),),
            height=10,
            stacked=True,
        ),
        _graph(
            title="Wasted",
            text="Read and not usable, by pool.",
            unit="binBps",
            queries=(Query(_rate("wasted_bytes", "pool"), "{{pool}}"),),
        ),
        _graph(
            title="Missed and failed",
            text="Pages that were promised or needed and absent, or failed while being read.",
            unit="short",
            queries=(
                Query(_rate("missed_pages", "pool"), "{{pool}} missed"),
                Query(_rate("failed_pages", "pool"), "{{pool}} failed"),
            ),
        ),
        _graph(
            title="Written",
            text="Newly stored by saves, by pool. What existed already was not written.",
            unit="binBps",
            queries=(
                Query(
                    f"sum by (pool) (rate({PREFIX}_written_bytes_total{{{_RUN}}}[$__rate_interval]))",
                    "{{pool}}",
                ),
            ),
            stacked=True,
        ),
    ),
)

_ENDPOINTS = Row(
    "Endpoints and latency",
    (
        _graph(
            title="Hit, fulfilled, used",
            text="Tokens per second: promised by lookup, whole with what arrived, resumed from.",
            unit="short",
            queries=tuple(
                Query(_rate(f"endpoint_{stage}_tokens"), stage) for stage in ("hit", "fulfilled", "used")
            ),
        ),
        _bars(
            title="Hit tokens not used, by reason",
            text="Each hit token is used, or has one reason why not. Since the start.",
            unit="short",
            queries=(Query(_sum("unused_tokens", "reason"), "{{reason}}"),),
        ),
        _graph(
            title="Restores",
            text="Seconds of one restore, by policy.",
            unit="s",
            queries=tuple(
                Query(
                    _quantile(quantile, TRANSFER_SECONDS, f'{_POLICY}, operation="restore"', "policy"),
                    f"{{{{policy}}}} p{quantile * 100:g}",
                )
                for quantile in (0.5, 0.9, 0.99)
            ),
        ),
    ),
)

_STORE = Row(
    "The store, as this client sees it",
    (
        _graph(
            title="Bytes",
            text="Of objects that were read whole, and of objects that are newly stored.",
            unit="binBps",
            queries=(Query(_store_rate("get_bytes"), "get"), Query(_store_rate("put_bytes"), "put")),
        ),
        _graph(
            title="Keys",
            text="Answers per second. A put finds a key there (hit) or stores it (miss).",
            unit="short",
            queries=tuple(
                Query(_store_rate(f"{operation}_{what}"), f"{operation} {what}")
                for operation in ("exists", "get", "put")
                for what in ("hits", "misses", "failures")
            ),
        ),
        _graph(
            title="Batched calls",
            text="Seconds of one call, by operation.",
            unit="s",
            queries=tuple(
                Query(
                    _quantile(quantile, CALL_SECONDS, _RUN, "operation"),
                    f"{{{{operation}}}} p{quantile * 100:g}",
                )
                for quantile in (0.5, 0.99)
            ),
        ),
    ),
)

_CLUSTER = Row(
    "Mooncake master",
    (
        _stat(
            title="Memory in use",
            text="Of the segments that clients contribute. Eviction starts at 90 % unless configured.",
            unit="percentunit",
            queries=(
                Query(
                    f"sum({_master('master_allocated_bytes')}) / "
                    f"sum({_master('master_total_capacity_bytes')})",
                    "in use",
                ),
            ),
            maximum=1,
            warn_above=0.9,
        ),
        _stat(
            title="Keys",
            text="Objects that the master knows.",
            unit="short",
            queries=(Query(f"sum({_master('master_key_count')})", "keys"),),
        ),
        _stat(
            title="Clients",
            text="Clients that have pinged within their time.",
            unit="short",
            queries=(Query(f"sum({_master('master_active_clients')})", "clients"),),
        ),
        _stat(
            title="Allocations that failed",
            text="Puts for which no segment had room, since the start of the master.",
            unit="short",
            queries=(Query(f"sum({_master('master_put_start_alloc_failures_total')})", "failures"),),
            warn_above=1,
        ),
        _stat(
            title="Evicted",
            text="Since the start of the master. Pages evicted between lookup and read are missed above.",
            unit="bytes",
            queries=(Query(f"sum({_master('master_evicted_size_bytes')})", "evicted"),),
        ),
        _stat(
            title="Gets that found their key",
            text="The master's own count, of all its clients.",
            unit="percentunit",
            queries=(
                Query(f"sum({_master('valid_get_nums_')}) / sum({_master('total_get_nums_')})", "found"),
            ),
            maximum=1,
        ),
        _graph(
            title="Memory by segment",
            text="Allocated bytes of each segment, and the capacity of all.",
            unit="bytes",
            queries=(
                Query(f"sum by (segment) ({_master('segment_allocated_bytes')})", "{{segment}}"),
                Query(f"sum({_master('master_total_capacity_bytes')})", "capacity"),
            ),
        ),
        _graph(
            title="Evictions",
            text="Keys evicted per second, and rounds that were tried and that freed something.",
            unit="short",
            queries=(
                Query(_master_rate("master_evicted_key_count"), "keys"),
                Query(_master_rate("master_attempted_evictions_total"), "rounds tried"),
                Query(_master_rate("master_successful_evictions_total"), "rounds that freed"),
            ),
        ),
        _graph(
            title="Items of batched requests",
            text="Keys per second that the master was asked about, and those that failed or were absent.",
            unit="short",
            queries=tuple(
                Query(_master_rate(f"master_batch_{request}_{what}_total"), f"{request} {what}")
                for request in ("exist_key", "get_replica_list", "put_start")
                for what in ("items", "failed_items")
            ),
        ),
    ),
)


def hybrid_dashboard() -> dict[str, Any]:
    """The dashboard as plain data."""
    read_bytes = f"{PREFIX}_read_bytes_total"
    return dashboard(
        "hicache-hybrid",
        "HiCache: hybrid and sparse pools on Mooncake",
        "Counters of hicache-bench (docs/metrics.md) beside those of the Mooncake master.",
        (
            datasource_variable(),
            label_variable("run", "Run", read_bytes, "instance"),
            label_variable("policy", "Policy", f"{read_bytes}{{{_RUN}}}", "policy"),
            label_variable("master", "Master", "master_key_count", "instance"),
        ),
        (_SUMMARY, _BYTES, _ENDPOINTS, _STORE, _CLUSTER),
    )


def dashboard_text() -> str:
    """The committed file, byte for byte."""
    return json.dumps(hybrid_dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(dashboard_text())
