"""What commands leave in the metrics agrees with their records."""

from __future__ import annotations

from hicache_bench.engine.metrics import MetricsSink
from hicache_bench.workflows.roundtrip.job import RoundtripOptions, roundtrip
from tests.engine.scraped import families, value
from tests.workflows.runs import only_length, quiet, run_now

REPEAT = 2


def total(metrics: MetricsSink, name: str, **labels: str) -> float:
    """Sum over the series that have these labels."""
    family = families(metrics).get(name)
    samples = family.samples if family is not None else []
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def test_a_run_counts_what_its_record_says() -> None:
    metrics = MetricsSink()
    record = run_now("mimo-v2-flash", 1024, tp=2, store="local", repeat=REPEAT, metrics=metrics)
    ranks = only_length(record).ranks
    assert len(ranks) == 2
    for policy in ("dense", "hit_policy", "selective"):
        results = [found for rank in ranks for found in rank.policies if found.policy == policy]
        assert REPEAT * sum(found.read.num_bytes for found in results) == total(
            metrics, "mooncake_hicache_read_bytes", policy=policy
        )
        for found in results:
            assert found.hit_tokens * REPEAT * len(results) == value(
                metrics, "endpoint_hit_tokens", policy=policy
            )
        for pool in {account.pool for found in results for account in found.pools}:
            accounts = [account for found in results for account in found.pools if account.pool == pool]
            skipped = sum(amount.num_bytes for account in accounts for amount in account.skipped.values())
            assert REPEAT * skipped == total(
                metrics, "mooncake_hicache_skipped_bytes", policy=policy, pool=pool
            )
    assert total(metrics, "mooncake_store_get_bytes") == total(metrics, "mooncake_hicache_read_bytes")
    assert total(metrics, "mooncake_store_put_bytes") == total(metrics, "mooncake_hicache_written_bytes")
    assert 0 == total(metrics, "mooncake_hicache_missed_bytes")


def test_a_counted_length_leaves_nothing() -> None:
    metrics = MetricsSink()
    run_now("mimo-v2-flash", 1024, store="count", metrics=metrics)
    assert metrics.is_empty


def test_random_requests_are_one_account_too() -> None:
    metrics = MetricsSink()
    record = roundtrip(RoundtripOptions(injections=40, seed=3, metrics=metrics), quiet)
    assert "ok" == record.status
    assert total(metrics, "mooncake_store_get_keys") > 0
    hit = total(metrics, "mooncake_hicache_endpoint_hit_tokens")
    used = total(metrics, "mooncake_hicache_endpoint_used_tokens")
    unused = total(metrics, "mooncake_hicache_unused_tokens")
    assert used > 0
    assert unused > 0
    # A restore that falls back to its local prefix uses tokens that lookup may not have promised.
    assert hit <= used + unused
    lost = total(metrics, "mooncake_hicache_missed_pages") + total(metrics, "mooncake_hicache_failed_pages")
    assert lost > 0
