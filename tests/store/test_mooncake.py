"""The Mooncake backend over a native store that answers whatever a test asks for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from hicache_bench.errors import StoreClosedError, StoreContractError, StoreError, StoreUnavailableError
from hicache_bench.store.base import (
    EXISTS,
    INVALID_PARAMS,
    LEASED,
    MISS,
    NO_SPACE,
    OK,
    KeyResult,
    KVStoreBackend,
    error,
)
from hicache_bench.store.mooncake import MooncakeStoreBackend
from hicache_bench.store.mooncake_codes import describe_code
from tests.store.contract import StoreContract
from tests.store.fake_mooncake import FakeMooncake, FakeMooncakeFixtures


class TestContract(StoreContract):
    """The whole contract; the fake fails the test wherever the real store would crash."""

    @pytest.fixture
    def store(self) -> Iterator[KVStoreBackend]:
        with MooncakeStoreBackend(FakeMooncake(), {}) as store:
            yield store


class TestOpening(FakeMooncakeFixtures):
    def test_store_that_is_not_set_up_is_refused(self) -> None:
        with pytest.raises(StoreClosedError, match="not set up"):
            MooncakeStoreBackend(FakeMooncake(health=1), {})

    def test_store_without_master_is_refused(self) -> None:
        with pytest.raises(StoreUnavailableError, match="lost its master"):
            MooncakeStoreBackend(FakeMooncake(health=2), {})

    def test_settings_name_the_slice_limit(self, store: MooncakeStoreBackend) -> None:
        assert {"protocol": "fake", "max_slices_per_call": 1024} == store.settings

    def test_capabilities(self, store: MooncakeStoreBackend) -> None:
        capabilities = store.capabilities
        assert ("mooncake", True, 1024, True, True) == (
            capabilities.name,
            capabilities.moves_bytes,
            capabilities.max_slices_per_call,
            capabilities.supports_leases,
            capabilities.needs_registration,
        )


class TestReturnCodes(FakeMooncakeFixtures):
    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            (0, OK),
            (-705, EXISTS),
            (-200, NO_SPACE),
            (-600, INVALID_PARAMS),
            # No put may answer MISS or LEASED: the contract has no such word for it.
            (-704, error(-704)),
            (-706, error(-706)),
            (-800, error(-800)),
            (-900, error(-900)),
            (-1, error(-1)),
        ],
    )
    def test_put(
        self,
        store: MooncakeStoreBackend,
        native: FakeMooncake,
        address: int,
        code: int,
        expected: KeyResult,
    ) -> None:
        native.scripted["batch_put_from"] = lambda answers: [0, code, 0]
        results = store.batch_put_from(["a", "b", "c"], [address] * 3, [10, 20, 30])
        assert [OK, expected, OK] == results
        assert 40 + (20 if expected is OK else 0) == store.stats.put_bytes
        assert int(expected is EXISTS) == store.stats.put_noops
        assert int(expected not in (OK, EXISTS)) == store.stats.put_failures

    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            (-704, MISS),
            (-600, INVALID_PARAMS),
            (0, INVALID_PARAMS),
            (9, INVALID_PARAMS),
            (11, INVALID_PARAMS),
            (1024, INVALID_PARAMS),
            (-703, error(-703)),
            (-707, error(-707)),
            (-800, error(-800)),
            (-801, error(-801)),
            (-901, error(-901)),
        ],
    )
    def test_get(
        self,
        store: MooncakeStoreBackend,
        native: FakeMooncake,
        address: int,
        code: int,
        expected: KeyResult,
    ) -> None:
        store.batch_put_from(["a", "b", "c"], [address] * 3, [10, 10, 10])
        native.scripted["batch_get_into"] = lambda answers: [10, code, 10]
        assert [OK, expected, OK] == store.batch_get_into(["a", "b", "c"], [address] * 3, [10, 10, 10])
        assert 20 == store.stats.get_bytes
        assert int(expected is MISS) == store.stats.get_misses
        assert int(expected is not MISS) == store.stats.get_failures

    @pytest.mark.parametrize(
        ("code", "expected"), [(1, OK), (0, MISS), (-1, error(-1)), (-900, error(-900)), (-901, error(-901))]
    )
    def test_exists(
        self, store: MooncakeStoreBackend, native: FakeMooncake, code: int, expected: KeyResult
    ) -> None:
        native.scripted["batch_is_exist"] = lambda answers: [1, code]
        assert [OK, expected] == store.batch_exists(["a", "b"])

    @pytest.mark.parametrize(
        ("code", "expected"),
        [(0, OK), (-704, MISS), (-706, LEASED), (-714, error(-714)), (-900, error(-900))],
    )
    def test_remove(
        self, store: MooncakeStoreBackend, native: FakeMooncake, code: int, expected: KeyResult
    ) -> None:
        native.scripted["remove"] = lambda answers: [code]
        assert expected == store.remove("a")

    def test_remove_all_that_fails_is_no_count(
        self, store: MooncakeStoreBackend, native: FakeMooncake
    ) -> None:
        native.scripted["remove_all"] = lambda answers: [-900]
        with pytest.raises(StoreError, match=r"RPC_FAIL \(-900\)"):
            store.remove_all()

    def test_lookup_that_fails_keeps_the_put_from_the_store(
        self, store: MooncakeStoreBackend, native: FakeMooncake, address: int
    ) -> None:
        native.scripted["batch_is_exist"] = lambda answers: [0, -901, 1]
        assert [OK, error(-901), EXISTS] == store.batch_put_from(["a", "b", "c"], [address] * 3, [10] * 3)
        assert [["a"]] == native.called("batch_put_from")

    def test_unknown_code_still_has_text(self) -> None:
        assert "OBJECT_NOT_FOUND (-704)" == describe_code(-704)
        assert "unknown code (-4242)" == describe_code(-4242)


class TestWrongNumberOfResults(FakeMooncakeFixtures):
    @pytest.mark.parametrize("answers", [[], [0], [0, 0, 0]], ids=len)
    @pytest.mark.parametrize(
        ("method", "native_method"),
        [
            ("exists", "batch_is_exist"),
            ("put", "batch_is_exist"),
            ("put", "batch_put_from"),
            ("put_scattered", "batch_put_from_multi_buffers"),
            ("get", "batch_get_into"),
            ("get_scattered", "batch_get_into_multi_buffers"),
        ],
    )
    def test_raises(
        self,
        store: MooncakeStoreBackend,
        native: FakeMooncake,
        address: int,
        method: str,
        native_method: str,
        answers: list[int],
    ) -> None:
        native.scripted[native_method] = lambda _: answers
        whole, pieces = ([address] * 2, [10] * 2), ([[address, address]] * 2, [[5, 5]] * 2)
        calls = {
            "exists": lambda: store.batch_exists(["a", "b"]),
            "put": lambda: store.batch_put_from(["a", "b"], *whole),
            "put_scattered": lambda: store.batch_put_from(["a", "b"], *pieces),
            "get": lambda: store.batch_get_into(["a", "b"], *whole),
            "get_scattered": lambda: store.batch_get_into(["a", "b"], *pieces),
        }
        with pytest.raises(StoreContractError, match=rf"{native_method} .*{len(answers)} results for 2 keys"):
            calls[method]()


class TestPut(FakeMooncakeFixtures):
    def test_existing_keys_are_not_sent_again(
        self, store: MooncakeStoreBackend, native: FakeMooncake, address: int
    ) -> None:
        store.batch_put_from(["a"], [address], [10])
        assert [EXISTS, OK] == store.batch_put_from(["a", "b"], [address] * 2, [10, 10])
        assert [["a"], ["b"]] == native.called("batch_put_from")
        assert (20, 1) == (store.stats.put_bytes, store.stats.put_noops)

    def test_second_of_a_failed_key_shares_its_failure(
        self, store: MooncakeStoreBackend, native: FakeMooncake, address: int
    ) -> None:
        native.scripted["batch_put_from"] = lambda answers: [-200]
        assert [NO_SPACE, NO_SPACE] == store.batch_put_from(["a", "a"], [address] * 2, [10, 10])

    def test_first_of_a_key_that_cannot_be_stored_leaves_it_to_the_second(
        self, store: MooncakeStoreBackend, native: FakeMooncake, address: int
    ) -> None:
        results = store.batch_put_from(["a", "a", "a"], [0, address, address], [10, 20, 30])
        assert [INVALID_PARAMS, OK, EXISTS] == results
        assert 20 == len(native.objects["a"])

    def test_nothing_admitted_asks_nothing(self, store: MooncakeStoreBackend, native: FakeMooncake) -> None:
        native.calls.clear()
        assert [INVALID_PARAMS] * 2 == store.batch_put_from(["a", ""], [0, 0], [10, 10])
        assert [] == native.calls


class TestRegistration(FakeMooncakeFixtures):
    def test_refusal_of_the_store_is_an_error_and_leaves_no_trace(
        self, store: MooncakeStoreBackend, native: FakeMooncake
    ) -> None:
        memory = np.zeros(16, dtype=np.uint8)
        start = int(memory.ctypes.data)
        native.scripted["register_buffer"] = lambda answers: [-600]
        with pytest.raises(StoreError, match="INVALID_PARAMS"):
            store.register_buffer(start, 16)
        assert [INVALID_PARAMS] == store.batch_put_from(["a"], [start], [16])

    def test_refused_unregistration_is_an_error(
        self, store: MooncakeStoreBackend, native: FakeMooncake, address: int
    ) -> None:
        native.scripted["unregister_buffer"] = lambda answers: [-600]
        with pytest.raises(StoreError, match="INVALID_PARAMS"):
            store.unregister_buffer(address)


class TestClosing(FakeMooncakeFixtures):
    def test_native_store_is_closed_once(self, native: FakeMooncake) -> None:
        store = MooncakeStoreBackend(native, {})
        store.close()
        store.close()
        assert 1 == native.num_closes

    def test_close_that_fails_is_an_error(self, native: FakeMooncake) -> None:
        native.scripted["close"] = lambda answers: [-1]
        store = MooncakeStoreBackend(native, {})
        with pytest.raises(StoreError, match="INTERNAL_ERROR"):
            store.close()

    def test_close_waits_for_calls_that_run(self, native: FakeMooncake) -> None:
        store = MooncakeStoreBackend(native, {})
        started, may_end = threading.Event(), threading.Event()

        def slow(answers: list[int]) -> list[int]:
            started.set()
            assert may_end.wait(10)
            assert not native.num_closes
            return answers

        native.scripted["batch_is_exist"] = slow
        results: list[Sequence[KeyResult]] = []
        reader = threading.Thread(target=lambda: results.append(store.batch_exists(["a"])))
        reader.start()
        assert started.wait(10)
        closer = threading.Thread(target=store.close)
        closer.start()
        closer.join(0.2)
        assert closer.is_alive()
        with pytest.raises(StoreClosedError):
            store.batch_exists(["a"])
        may_end.set()
        reader.join(10)
        closer.join(10)
        assert [[MISS]] == results
        assert 1 == native.num_closes

    def test_forked_child_is_kept_from_the_parents_client(
        self, store: MooncakeStoreBackend, native: FakeMooncake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: os.getppid() + 2**22)
            with pytest.raises(StoreError, match="spawn instead of fork"):
                store.batch_exists(["a"])
            store.close()
        assert 0 == native.num_closes
        assert [MISS] == store.batch_exists(["a"])
