"""Faults of the real store: each holds, and each check of it can fail."""

from __future__ import annotations

import socket
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from hicache_bench.errors import InputError, StoreUnavailableError
from hicache_bench.records.proof import Proof
from hicache_bench.store import client
from hicache_bench.store.client import mooncake_availability
from hicache_bench.workflows.roundtrip import real_faults
from hicache_bench.workflows.roundtrip.real_fault_scenarios import SCENARIOS
from hicache_bench.workflows.roundtrip.real_faults import (
    MODULE,
    REAL_FAULTS,
    RealFault,
    real_fault_proofs,
    try_fault,
)

SIMPLE = RealFault(breaks="nothing", holds="everything", cases=(), limit_seconds=20.0)


def failed(proof: Proof) -> dict[str, str]:
    return {check.name: check.actual for check in proof.checks if not check.passed}


def try_source(source: str, fault: RealFault = SIMPLE) -> Proof:
    """What the parent makes of a child that runs ``source``; ``say`` speaks to the parent."""
    preamble = "import json, os, signal, subprocess, sys, time\n"
    say = "def say(**line): print(json.dumps(line), flush=True)\n"
    return try_fault("simple", fault, [sys.executable, "-c", preamble + say + textwrap.dedent(source)])


def try_broken(name: str, source: str, *, limit_seconds: float = 60.0, **environment: str) -> Proof:
    """A fault on a project that ``source`` has broken in the child."""
    code = textwrap.dedent(source) + f"\nimport sys, {MODULE} as child\nsys.exit(child.main(sys.argv[1:]))"
    fault = REAL_FAULTS[name]
    fault = replace(fault, limit_seconds=limit_seconds, environment={**fault.environment, **environment})
    return try_fault(name, fault, [sys.executable, "-c", code, "fault", name, "3"])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.mooncake
@pytest.mark.slow
class TestFaults:
    @pytest.mark.parametrize("name", REAL_FAULTS)
    def test_it_holds(self, name: str) -> None:
        said: list[str] = []
        (proof,) = real_fault_proofs((name, name), 3, said.append)
        assert {} == failed(proof)
        assert ("fault", name) == (proof.section, proof.subject)
        assert 1 == len(said)
        assert proof.seconds <= REAL_FAULTS[name].limit_seconds

    def test_an_end_without_the_resolver(self) -> None:
        """What was promised is used, whatever arrived."""
        proof = try_broken(
            "eviction-burst",
            """
            from hicache_bench.planning import ledger
            ledger._used_pages = lambda plan, arrivals: plan.endpoint_pages
            """,
        )
        assert "evicted after the lookup: used, resolved again from what arrived" in failed(proof)

    def test_a_miss_that_passes_for_a_read(self) -> None:
        proof = try_broken(
            "eviction-burst",
            """
            from hicache_bench.store.mooncake import MooncakeStoreBackend as Backend
            read = Backend._read
            Backend._read = lambda self, native, batch: (read(self, native, batch), list(batch.totals))[1]
            """,
        )
        assert {
            "evicted after the lookup: wrong bytes counted as restored",
            "objects evicted after they were promised",
        } <= set(failed(proof))

    def test_an_error_that_passes_for_a_miss(self) -> None:
        proof = try_broken(
            "master-killed",
            """
            from hicache_bench.store import mooncake
            mooncake._STATUS_OF_EXISTS[-900] = mooncake.MISS
            """,
        )
        assert "master dead: keys that the lookup calls errors" in failed(proof)

    def test_a_master_that_is_waited_for(self) -> None:
        proof = try_broken("master-stopped", "", limit_seconds=10.0, MC_RPC_TIMEOUT_MS="5000")
        assert "master stopped after the lookup" in failed(proof)

    def test_calls_that_are_not_cut(self) -> None:
        """Either they hang for 60 s, and the child is killed, or their objects do not come."""
        proof = try_broken(
            "too-many-slices",
            """
            from hicache_bench.store.mooncake import MooncakeStoreBackend as Backend
            Backend.__init__.__defaults__ = (1 << 20,)
            """,
            limit_seconds=15.0,
        )
        hung, lost = "the process comes back", "2500 objects of 1 slices: wrong objects"
        assert {hung, lost} & set(failed(proof))

    def test_calls_after_close_that_reach_the_library(self) -> None:
        proof = try_broken(
            "calls-after-close",
            """
            from hicache_bench.store.mooncake import MooncakeStoreBackend as Backend
            Backend._begin_call = lambda self: self._native
            Backend._end_call = lambda self: None
            """,
        )
        assert {"how the process ends": "not all said, ended by SIGSEGV"} == failed(proof)

    def test_a_close_that_does_not_wait(self) -> None:
        proof = try_broken(
            "close-during-use",
            """
            from hicache_bench.store.mooncake import MooncakeStoreBackend as Backend
            Backend.close = lambda self: self._native.close()
            """,
        )
        assert "how the process ends" in failed(proof)

    def test_objects_that_a_clearing_takes_despite_their_lease(self) -> None:
        proof = try_broken(
            "all-leased",
            """
            from hicache_bench.store.mooncake import MooncakeStoreBackend as Backend
            remove_all = Backend.remove_all
            Backend.remove_all = lambda self, force=False: remove_all(self, force=True)
            """,
        )
        assert {"leased objects that a clearing removes", "objects still there"} <= set(failed(proof))

    def test_a_lookup_that_lies_of_a_new_master(self) -> None:
        proof = try_broken(
            "master-restarted",
            """
            from hicache_bench.store import mooncake
            mooncake._STATUS_OF_EXISTS[0] = mooncake.OK
            """,
        )
        assert "tokens that the new master promises" in failed(proof)

    def test_a_master_that_gives_up_on_a_taken_port(self) -> None:
        proof = try_broken(
            "port-taken",
            """
            from hicache_bench.store import master
            master._PORT_TAKEN_EXIT_CODE = 99
            """,
        )
        assert "StoreUnavailableError" in failed(proof)["how the process ends"]

    def test_leases_that_last(self) -> None:
        """Then the fault did not take place, and nothing was proved."""
        proof = try_broken(
            "lease-too-short",
            f"""
            from {MODULE} import Stage
            master = Stage.master
            Stage.master = lambda self, **settings: master(self)
            """,
        )
        assert {"objects whose lease ended too early": "0"} == failed(proof)


class TestParent:
    def test_a_good_child_passes(self) -> None:
        proof = try_source(
            """
            say(check=dict(name="a claim", expected="1", actual="1", passed=True))
            say(figure=["seconds", 1.5])
            say(port=1)
            say(done=True)
            """
        )
        assert {} == failed(proof)
        assert proof.passed
        assert {"seconds": 1.5} == proof.figures
        assert "a claim" == proof.checks[0].name

    def test_a_failed_check_fails(self) -> None:
        source = 'say(check=dict(name="claim", expected="1", actual="2", passed=False)); say(done=True)'
        assert {"claim": "2"} == failed(try_source(source))

    @pytest.mark.parametrize("hang", ["time.sleep(300)", "os.kill(os.getpid(), signal.SIGSTOP)"])
    def test_a_hang_is_killed(self, hang: str) -> None:
        proof = try_source(f"say(port=1); {hang}", replace(SIMPLE, limit_seconds=1.0))
        assert failed(proof)["the process comes back"].startswith("killed after 1.")
        assert "not all said, then killed" == failed(proof)["how the process ends"]

    def test_a_hang_after_everything_was_said(self) -> None:
        proof = try_source("say(done=True); time.sleep(300)", replace(SIMPLE, limit_seconds=1.0))
        assert "all said, then killed" == failed(proof)["how the process ends"]

    def test_one_that_is_to_be_killed_is(self) -> None:
        fault = replace(SIMPLE, is_killed=True)
        proof = try_source("say(done=True); time.sleep(300)", fault)
        assert {} == failed(proof)
        assert proof.seconds < fault.limit_seconds
        assert "how the process ends" in failed(try_source("say(port=1)", fault))

    @pytest.mark.parametrize(
        ("source", "actual"),
        [
            ("os.kill(os.getpid(), signal.SIGSEGV)", "not all said, ended by SIGSEGV"),
            ("say(done=True); sys.exit(3)", "all said, exit code 3"),
            ("say(stopped='StoreError: no'); sys.exit(3)", "stopped by StoreError: no, exit code 3"),
            ("", "not all said, exit code 0"),
            ("say(done=True); print('half a li', end='')", "all said, exit code 0, and something else"),
            ("print('not JSON'); say(done=True)", "all said, exit code 0, and something else"),
        ],
    )
    def test_an_end_that_is_none(self, source: str, actual: str) -> None:
        assert actual == failed(try_source(source))["how the process ends"]

    def test_a_traceback(self) -> None:
        found = failed(try_source("say(done=True); 1 / 0"))
        assert "ZeroDivisionError" in found["tracebacks"]

    def test_a_process_that_stays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """And holds the output of the child open."""
        monkeypatch.setattr(real_faults, "_LEAVE_SECONDS", 0.5)
        source = """
            stays = "import time; time.sleep(300)"
            left = subprocess.Popen([sys.executable, "-c", stays], start_new_session=True)
            say(figure=["pid", left.pid])
            say(done=True)
            """
        proof = try_source(source)
        pid = int(proof.figures["pid"])
        assert {"processes left"} == set(failed(proof))
        assert str(pid) in failed(proof)["processes left"]
        assert not is_alive(pid)

    def test_a_port_that_stays(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            assert {"ports left open": f"1: {port}"} == failed(
                try_source(f"say(port={port}); say(done=True)")
            )

    def test_shared_memory_that_stays(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """In a directory of its own: faults of other workers would find what this child leaves."""
        assert Path("/dev/shm") == real_faults._SHARED_MEMORY  # noqa: S108 -- looked at, never written to
        monkeypatch.setattr(real_faults, "_SHARED_MEMORY", tmp_path)
        (tmp_path / "there-before").touch()
        source = f"open('{tmp_path / 'kept'}', 'w').close(); say(done=True)"
        assert {"files left": "1: kept"} == failed(try_source(source))

    def test_a_temporary_file_that_stays(self) -> None:
        source = "open(os.environ['TMPDIR'] + '/kept', 'w').close(); say(done=True)"
        assert {"files left": "1: kept"} == failed(try_source(source))

    def test_settings_of_the_shell_do_not_reach_the_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MC_RPC_TIMEOUT_MS", "99999")
        source = "say(figure=['set', ' '.join(n for n in os.environ if n[:3] == 'MC_')]); say(done=True)"
        assert {"set": ""} == dict(try_source(source).figures)
        fault = replace(SIMPLE, environment={"MC_ONE": "1"})
        assert {"set": "MC_ONE"} == dict(try_source(source, fault).figures)

    def test_an_interrupt_kills_the_child(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pids: list[int] = []

        def interrupted(process: object, *rest: object, **named: object) -> None:
            pids.append(process.pid)  # type: ignore[attr-defined]
            raise KeyboardInterrupt

        monkeypatch.setattr(real_faults._Heard, "of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            try_source("time.sleep(300)")
        assert [False] == [is_alive(pid) for pid in pids]


@pytest.mark.mooncake
def test_a_child_does_not_survive_its_parent() -> None:
    source = f"""
        command = [sys.executable, "-m", "{MODULE}", "fault", "owner-stopped", "3"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True,
                                 stdout=subprocess.PIPE)
        child.stdout.readline()
        say(figure=["pid", child.pid])
        say(done=True)
        os._exit(0)
        """
    proof = try_source(source)
    assert {} == failed(proof)
    assert not is_alive(int(proof.figures["pid"]))


class TestCatalogue:
    def test_each_has_its_scenario(self) -> None:
        assert set(REAL_FAULTS) == set(SCENARIOS)

    def test_cases(self) -> None:
        cases = {case for fault in REAL_FAULTS.values() for case in fault.cases}
        assert {"E49", "E50", "E51", "E53", "E54", "E58", "E60"} == cases

    def test_an_unknown_name(self) -> None:
        with pytest.raises(
            InputError, match=r"unknown fault 'master-kiled'.*all.*did you mean 'master-killed'"
        ):
            real_fault_proofs(("port-taken", "master-kiled"), 0, lambda line: None)

    def test_without_the_wheel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        availability = mooncake_availability()
        missing = replace(availability, importable=False, reason="no wheel", advice="install it")
        monkeypatch.setattr(client, "mooncake_availability", lambda: missing)
        with pytest.raises(StoreUnavailableError, match="no wheel; to mend it: install it"):
            real_fault_proofs(("all",), 0, lambda line: None)
