"""The real store behind the wrapper: leases, a full segment, other processes, masters that die or hang."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import numpy as np
import pytest

from hicache_bench.store.base import EXISTS, INVALID_PARAMS, LEASED, MISS, NO_SPACE, OK, KVStoreBackend
from hicache_bench.store.client import open_mooncake
from hicache_bench.store.master import ManagedMaster, find_master_binary, master_command
from hicache_bench.store.mooncake import MooncakeStoreBackend
from hicache_bench.units import MIB
from tests.integration.processes import LIMIT_SECONDS, child, run

pytestmark = pytest.mark.mooncake

OWNER = """
    with open_mooncake(sys.argv[1], segment_bytes=64 << 20):
        say("ready")
        hear()
    """
"""A process that adds a segment to the cluster and holds it until it is told to go."""


@pytest.fixture
def source(mooncake_store: MooncakeStoreBackend) -> Iterator[np.ndarray]:
    memory = np.random.default_rng(7).integers(0, 256, 2 * MIB, dtype=np.uint8)
    address = int(memory.ctypes.data)
    mooncake_store.register_buffer(address, memory.nbytes)
    yield memory
    mooncake_store.remove_all(force=True)
    mooncake_store.unregister_buffer(address)


def put_until_stored(store: KVStoreBackend, key: str, address: int, num_bytes: int) -> None:
    """The master evicts on its own time: a full store has room again a moment later."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while NO_SPACE == (result := store.batch_put_from([key], [address], [num_bytes])[0]):
        assert time.monotonic() < deadline, "nothing was evicted"
        time.sleep(0.02)
    assert OK == result


class TestFullStore:
    def test_object_larger_than_the_segment_spoils_only_itself(
        self, mooncake_store: MooncakeStoreBackend, source: np.ndarray
    ) -> None:
        large = np.zeros(65 * MIB, dtype=np.uint8)
        mooncake_store.register_buffer(int(large.ctypes.data), large.nbytes)
        addresses = [int(source.ctypes.data), int(large.ctypes.data), int(source.ctypes.data)]
        results = mooncake_store.batch_put_from(["a", "large", "b"], addresses, [MIB, large.nbytes, 10])
        mooncake_store.unregister_buffer(int(large.ctypes.data))
        assert [OK, NO_SPACE, OK] == results
        assert [OK, MISS, OK] == mooncake_store.batch_exists(["a", "large", "b"])

    def test_burst_beyond_the_segment_counts_what_was_stored(
        self, mooncake_store: MooncakeStoreBackend, source: np.ndarray
    ) -> None:
        address, before = int(source.ctypes.data), mooncake_store.stats
        keys = [f"key-{index}" for index in range(80)]
        results = mooncake_store.batch_put_from(keys, [address] * 80, [MIB] * 80)
        num_stored = results.count(OK)
        assert 0 < num_stored <= 64
        assert 80 - num_stored == results.count(NO_SPACE)
        assert num_stored * MIB == mooncake_store.stats.put_bytes - before.put_bytes
        assert 80 - num_stored == mooncake_store.stats.put_failures - before.put_failures

    def test_oldest_objects_give_way(self, mooncake_store: MooncakeStoreBackend, source: np.ndarray) -> None:
        keys = [f"key-{index}" for index in range(100)]
        for key in keys:
            put_until_stored(mooncake_store, key, int(source.ctypes.data), MIB)
        present = [result is OK for result in mooncake_store.batch_exists(keys)]
        assert not present[0]
        assert present[-1]
        assert sum(present) <= 64

    def test_leased_objects_do_not(self, mooncake_store: MooncakeStoreBackend, source: np.ndarray) -> None:
        address = int(source.ctypes.data)
        leased = [f"leased-{index}" for index in range(8)]
        assert [OK] * 8 == mooncake_store.batch_put_from(leased, [address] * 8, [MIB] * 8)
        assert [OK] * 8 == mooncake_store.batch_exists(leased)
        for index in range(70):
            put_until_stored(mooncake_store, f"key-{index}", address, MIB)
        assert [OK] * 8 == mooncake_store.batch_exists(leased)
        assert LEASED == mooncake_store.remove(leased[0])


def test_lease_ends() -> None:
    with (
        ManagedMaster(lease_ttl_ms=50) as master,
        open_mooncake(master.address, segment_bytes=0) as reader,
        child(OWNER, master.address) as owner,
    ):
        assert "ready" == owner.hear()
        memory = np.zeros(16, dtype=np.uint8)
        address = int(memory.ctypes.data)
        reader.register_buffer(address, memory.nbytes)
        assert [OK] == reader.batch_put_from(["key"], [address], [16])
        assert [OK] == reader.batch_get_into(["key"], [address], [16])
        deadline = time.monotonic() + LIMIT_SECONDS
        while LEASED == (result := reader.remove("key")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert OK == result
        owner.say()


class TestOtherProcess:
    """A second process owns the segment, so bytes travel over TCP: the path where large calls break."""

    @pytest.mark.parametrize("num_buffers", [1, 4])
    def test_more_slices_than_the_transport_takes(self, num_buffers: int) -> None:
        # The queue at the library's own default: what keeps the call whole is the cut, not a longer queue.
        source = """
            num_buffers = int(sys.argv[2])
            keys = [f"key-{index}" for index in range(2500 if num_buffers == 1 else 700)]
            def pieces(base):
                starts = [base + 4096 * index for index in range(len(keys))]
                size = 4096 // num_buffers
                return (
                    [[start + size * piece for piece in range(num_buffers)] for start in starts],
                    [[size] * num_buffers for _ in keys],
                )
            target = np.zeros(16 << 20, dtype=np.uint8)
            with open_mooncake(sys.argv[1], segment_bytes=0) as store:
                store.register_buffer(address, memory.nbytes)
                store.register_buffer(int(target.ctypes.data), target.nbytes)
                put = store.batch_put_from(keys, *pieces(address))
                got = store.batch_get_into(keys, *pieces(int(target.ctypes.data)))
                used = 4096 * len(keys)
                say(set(text(put)) == set(text(got)) == {"ok"})
                say(bool((memory[:used] == target[:used]).all()))
            """
        queue = {"MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "1024"}
        with ManagedMaster() as master, child(OWNER, master.address) as owner:
            assert "ready" == owner.hear()
            ended = run(source, master.address, str(num_buffers), **queue)
            owner.say()
        assert ("true\ntrue\n", "", 0) == (ended.stdout, ended.stderr, ended.returncode)

    def test_threads_share_the_way_to_a_peer(self) -> None:
        source = """
            keys = [f"key-{index}" for index in range(1024)]
            with open_mooncake(sys.argv[1], segment_bytes=0) as store:
                store.register_buffer(address, memory.nbytes)
                addresses, sizes = [address + 16384 * index for index in range(1024)], [16384] * 1024
                store.batch_put_from(keys, addresses, sizes)
                answers = []
                def read():
                    for _ in range(3):
                        answers.append(set(text(store.batch_get_into(keys, addresses, sizes))))
                threads = [threading.Thread(target=read) for _ in range(6)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                say([len(answers), all(answer == {"ok"} for answer in answers)])
            """
        with ManagedMaster() as master, child(OWNER, master.address) as owner:
            assert "ready" == owner.hear()
            ended = run(source, master.address)
            owner.say()
        assert ("[18, true]\n", "", 0) == (ended.stdout, ended.stderr, ended.returncode)

    def test_objects_of_a_dead_owner(self) -> None:
        source = """
            with open_mooncake(sys.argv[1], segment_bytes=0) as store:
                store.register_buffer(address, memory.nbytes)
                store.batch_put_from(["key"], [address], [10])
                say("stored")
                hear()
                # The master learns of it 10 s later: until then the key is there and its bytes are not.
                say(text(store.batch_exists(["key"])))
                say(text(store.batch_get_into(["key"], [address], [10])))
                say(text(store.batch_get_into(["key"], [[address, address + 5]], [[5, 5]])))
            """
        with (
            ManagedMaster() as master,
            child(OWNER, master.address) as owner,
        ):
            assert "ready" == owner.hear()
            with child(source, master.address) as reader:
                assert "stored" == reader.hear()
                owner.process.kill()
                owner.process.wait(LIMIT_SECONDS)
                reader.say()
                assert ["ok"] == reader.hear()
                assert ["error(-800)"] == reader.hear()
                assert ["error(-800)"] == reader.hear()
                assert 0 == reader.process.wait(LIMIT_SECONDS)


class TestMasterGone:
    def test_killed_and_started_again(self) -> None:
        source = """
            with open_mooncake(sys.argv[1], segment_bytes=16 << 20) as store:
                store.register_buffer(address, memory.nbytes)
                say(text(store.batch_put_from(["key"], [address], [10])))
                hear()
                say(text(store.batch_exists(["key"])))
                say(text(store.batch_put_from(["other"], [address], [10])))
                hear()
                # The client finds the new master by itself and mounts its segment again.
                while text(store.batch_put_from(["new"], [address], [10])) not in (["ok"], ["exists"]):
                    time.sleep(0.1)
                say(text(store.batch_exists(["key", "new"])))
                say(text(store.batch_get_into(["new"], [address + 64], [10])))
            """
        with ManagedMaster() as master, child(source, master.address) as client:
            assert ["ok"] == client.hear()
            os.kill(master.pid, signal.SIGKILL)
            client.say()
            assert ["error(-900)"] == client.hear()
            assert ["error(-900)"] == client.hear()
            ports = [int(address.rpartition(":")[2]) for address in (master.address, master.http_address)]
            with subprocess.Popen(master_command(find_master_binary(), *ports)) as restarted:
                client.say()
                assert ["miss", "ok"] == client.hear()
                assert ["ok"] == client.hear()
                assert 0 == client.process.wait(LIMIT_SECONDS)
                restarted.terminate()

    @pytest.mark.slow
    def test_close_after_its_death_is_bounded(self) -> None:
        source = """
            master = ManagedMaster()
            with open_mooncake(master.address, segment_bytes=16 << 20) as store:
                os.kill(master.pid, signal.SIGKILL)
                results = store.batch_exists([f"key-{index}" for index in range(5000)])
                say([len(results), sorted(set(text(results)))])
            """
        assert ('[5000, ["error(-900)"]]\n', 0) == ((ended := run(source)).stdout, ended.returncode)

    def test_stopped_master_is_given_up(self) -> None:
        # By default these calls take 30 s each, set-up 10 minutes and close 62 s, the last two with the GIL.
        source = """
            with ManagedMaster() as master:
                with open_mooncake(master.address, segment_bytes=16 << 20) as store:
                    store.register_buffer(address, memory.nbytes)
                    say(text(store.batch_put_from(["key"], [address], [10])))
                    freeze(master.pid)
                    say(text(store.batch_exists(["key"])))
                    say(sorted(set(text(store.batch_exists([f"key-{index}" for index in range(50000)])))))
                    say(text(store.batch_get_into(["key"], [address], [10])))
                    say(str(store.remove("key")))
                    try:
                        open_mooncake(master.address, segment_bytes=0)
                    except StoreError as problem:
                        say(str(problem))
                    os.kill(master.pid, signal.SIGCONT)
                    say(text(store.batch_exists(["key"])))
                    os.kill(master.pid, signal.SIGSTOP)
            """
        ended = run(source)
        lines = ended.stdout.splitlines()
        expected = ['["ok"]', *['["error(-901)"]'] * 3, '"error(-901)"']
        assert expected == lines[:5]
        assert "does not answer as a Mooncake master" in lines[5]
        assert '["ok"]' == lines[6]
        assert 0 == ended.returncode


def test_put_renews_the_lease_of_what_exists(
    mooncake_store: MooncakeStoreBackend, source: np.ndarray
) -> None:
    address = int(source.ctypes.data)
    assert [OK] == mooncake_store.batch_put_from(["key"], [address], [10])
    assert OK == mooncake_store.remove("key")
    assert [OK] == mooncake_store.batch_put_from(["key"], [address], [10])
    assert [EXISTS] == mooncake_store.batch_put_from(["key"], [address], [10])
    assert LEASED == mooncake_store.remove("key")


def test_set_up_and_close_print_nothing(
    managed_master: ManagedMaster, capfd: pytest.CaptureFixture[str]
) -> None:
    with open_mooncake(managed_master.address, segment_bytes=1) as store:
        assert [INVALID_PARAMS, MISS] == store.batch_exists(["", "gone"])
    assert ("", "") == capfd.readouterr()
