"""``hicache-bench run`` on the real store: with a master of its own, and on a cluster of others."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from hicache_bench.config.load import load_model
from hicache_bench.engine.prefix import PrefixKeys
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.planning.policy import SavePolicy
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.records.io import read_record
from hicache_bench.store.base import MISS
from hicache_bench.store.master import ManagedMaster
from hicache_bench.store.mooncake import MooncakeStoreBackend
from hicache_bench.workflows.prefix import build_registry, lay_out, prompt_prefix
from tests.cli.command import Answer, descendants, finish, is_alive, run_apart, start, wait_until
from tests.workflows.runs import cached_run, only_length

pytestmark = pytest.mark.mooncake
MOONCAKE = ("run", "--store", "mooncake")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results"


def bytes_read(answer: Answer) -> list[int]:
    (result,) = json.loads(answer.out)["results"]
    return [policy["read"]["num_bytes"] for policy in result["policies"]]


def objects_left(store: MooncakeStoreBackend, preset: str, tokens: int, token_seed: int) -> int:
    """Objects of that run which the cluster still holds."""
    model = load_model(preset)
    registry = build_registry(pools_of(model.spec, profile=model.profile))
    prefix = prompt_prefix(lay_out(registry, tokens, SavePolicy()), token_seed=token_seed)
    keys = PrefixKeys(NamespacedKeyBuilder(model.spec.digest))
    asked = [key for pool in registry.registered for key in keys.asked(pool, prefix)]
    assert asked
    return sum(result is not MISS for result in store.batch_exists(asked))


def test_a_private_store_moves_what_is_counted(out: Path) -> None:
    answer = run_apart(
        *MOONCAKE, "--preset", "deepseek", "--tokens", "2k", "--repeat", 1, "--json", "--out", out
    )
    assert 0 == answer.code, answer.err
    (path,) = out.iterdir()
    record = read_record(path)
    assert json.loads(answer.out) == record
    assert ("ok", "mooncake") == (record["status"], record["store"])
    (result,) = record["results"]
    assert ("measured", None) == (result["evidence"], result["evidence_reason"])
    assert all(check["passed"] for check in result["checks"])
    counted = only_length(cached_run("deepseek", 2048))
    assert [policy.read.num_bytes for policy in counted.policies] == bytes_read(answer)
    assert counted.stored.num_bytes == result["stored"]["num_bytes"]
    assert any(name.startswith("mooncake-transfer-engine") for name in record["libraries"])
    # Effective settings of the private master, and no address of it.
    assert {"lease_ttl_ms", "eviction_watermark"} <= set(result["store_settings"])
    assert "127.0.0.1" not in path.read_text()


def test_a_joined_cluster_keeps_nothing_of_a_run(
    managed_master: ManagedMaster, mooncake_store: MooncakeStoreBackend, out: Path
) -> None:
    """The run gives no memory: every object lies in the segment of another client."""
    http_port = managed_master.http_address.rpartition(":")[2]
    options = ("--preset", "kitchen-sink", "--tokens", "1k", "--repeat", 1, "--json", "--out", out)
    joined = ("--master", managed_master.address, "--master-http-port", http_port)
    seeds = []
    for _ in range(2):
        answer = run_apart(*MOONCAKE, *options, *joined)
        assert 0 == answer.code, answer.err
        counted = only_length(cached_run("kitchen-sink", 1024))
        assert [policy.read.num_bytes for policy in counted.policies] == bytes_read(answer)
        record = json.loads(answer.out)
        assert "counted" not in {result["evidence"] for result in record["results"]}
        (settings,) = [result["store_settings"] for result in record["results"]]
        assert (f"port {http_port}", 1) == (settings["master_http"], settings["cluster_segments"])
        seeds.append(record["token_seed"])
    assert len(set(seeds)) == 2  # two runs on one cluster never find each other's pages
    assert [0, 0] == [objects_left(mooncake_store, "kitchen-sink", 1024, seed) for seed in seeds]
    assert managed_master.is_running


def test_a_cluster_without_room_is_an_error_and_is_left_clean(
    managed_master: ManagedMaster, mooncake_store: MooncakeStoreBackend, out: Path
) -> None:
    answer = run_apart(
        *MOONCAKE,
        "--preset",
        "llama-3.1-70b",
        "--tokens",
        "512",
        "--master",
        managed_master.address,
        "--out",
        out,
    )
    assert "of 8 pages whole, and the save ended there" in answer.err
    answer.assert_refused(3, "no_space", "Give it more room")
    assert not out.exists()
    assert mooncake_store.batch_exists(["any"]) == [MISS]


@pytest.mark.parametrize(
    ("stop", "delay_seconds"), [(signal.SIGINT, 0), (signal.SIGINT, 1), (signal.SIGTERM, 1)]
)
def test_an_interrupt_stops_the_master_and_leaves_nothing(
    out: Path, stop: signal.Signals, delay_seconds: float
) -> None:
    with start(
        *MOONCAKE, "--preset", "deepseek", "--tokens", "2k", "--repeat", 100_000, "--out", out
    ) as process:
        wait_until(lambda: "mooncake_master" in descendants(process.pid).values(), process)
        children = descendants(process.pid)
        # Its threads come with the client: set-up has begun by then, and the rest may have.
        wait_until(lambda: len(list(Path(f"/proc/{process.pid}/task").iterdir())) > 8, process)
        time.sleep(delay_seconds)
        process.send_signal(stop)
        answer = finish(process)
    expected = (130, "", "interrupted: what was started is stopped; a record is there whole or not at all\n")
    assert expected == (answer.code, answer.out, answer.err)
    assert [] == [name for pid, name in children.items() if is_alive(pid)]
    assert not out.exists()
