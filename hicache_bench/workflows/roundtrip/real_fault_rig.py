"""What a fault of the real store is tried on: masters, clients, segment owners, and one hybrid prefix.

Runs in a child process that its parent may kill at any moment. What is found is said at once, so that a hang
loses only what comes after it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hicache_bench.config.load import load_model
from hicache_bench.engine.controller import HybridKVController
from hicache_bench.engine.lookup import look_up_prefix, resolve_lookup
from hicache_bench.engine.prefix import Prefix, PrefixKeys
from hicache_bench.engine.reports import Lookup, RestoreReport, SaveReport
from hicache_bench.errors import StoreError
from hicache_bench.fixtures.host_pool import HostPool
from hicache_bench.models.engine_profile import pools_of
from hicache_bench.planning.ledger import volume
from hicache_bench.planning.policy import SavePolicy, StateSave, TransferPolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.pools.names import AttentionType, HitPolicy
from hicache_bench.records.schema import Check
from hicache_bench.store import master_guard
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.store.client import open_mooncake
from hicache_bench.store.master import ManagedMaster, find_master_binary, master_command
from hicache_bench.store.mooncake import MooncakeStoreBackend
from hicache_bench.workflows.prefix import FixtureBytes, build_registry, lay_out, prompt_prefix
from hicache_bench.workflows.rank import equal, none_of

PRESET = "kitchen-sink"
"""All four kinds of attention in 1 MiB a page: what one pool loses must shorten the others."""

NUM_PAGES = 24
SEGMENT_BYTES = 64 << 20
WAIT_SECONDS = 40.0
"""How long something may take to happen that the store does on its own time."""

_POLL_SECONDS = 0.05

Say = Callable[[Mapping[str, Any]], None]


class Findings:
    """Checks and figures, each said the moment it is known."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def check(self, check: Check) -> None:
        """Say one check."""
        self._say(
            {
                "check": {
                    "name": check.name,
                    "expected": check.expected,
                    "actual": check.actual,
                    "passed": check.passed,
                }
            }
        )

    def equal(self, name: str, expected: object, actual: object) -> None:
        """What was found is what was expected."""
        self.check(equal(name, str(expected), str(actual)))

    def none_of(self, name: str, found: list[str]) -> None:
        """Nothing was found."""
        self.check(none_of(name, found))

    def within(self, name: str, limit_seconds: float, seconds: float) -> None:
        """It took at most ``limit_seconds``."""
        self.check(
            Check(name, f"at most {limit_seconds:g} s", f"{seconds:.2f} s", passed=seconds <= limit_seconds)
        )
        self.figure(f"{name}, seconds", round(seconds, 3))

    def at_least(self, name: str, least: int, found: int) -> None:
        """The fault took place: there were at least so many."""
        self.check(Check(name, f"at least {least}", str(found), passed=found >= least))

    def refused(self, name: str, call: Callable[[], object], *parts: str) -> None:
        """``call`` raises a :class:`StoreError` whose message has the ``parts``, one of them what to do."""
        try:
            call()
            said = "no error"
        except StoreError as problem:
            said = f"{type(problem).__name__}: {problem}"
        expected = " … ".join(parts)
        self.check(Check(name, expected, said, passed=all(part in said for part in parts)))

    def figure(self, name: str, value: float | str) -> None:
        """Say one number worth keeping."""
        self._say({"figure": [name, value]})

    def uses(self, *addresses: str) -> None:
        """Say which ``HOST:PORT`` nothing may listen on afterwards."""
        for address in addresses:
            self._say({"port": int(address.rpartition(":")[2])})


class Owner:
    """A process that adds a segment to the cluster and holds it until it is told to go."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def kill(self) -> None:
        """End it without a good-bye to the master."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Stop it."""
        freeze(self.process.pid)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Let it leave the cluster; kill it if it does not."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


@dataclass(slots=True)
class Stage:
    """Opens what a scenario needs, and closes it in the order that Mooncake wants: clients, then masters."""

    seed: int
    found: Findings
    owner_command: list[str]
    _masters: ExitStack = field(default_factory=ExitStack)
    _clients: ExitStack = field(default_factory=ExitStack)

    def master(self, **settings: Any) -> ManagedMaster:
        """A private master."""
        master = self._masters.enter_context(ManagedMaster(**settings))
        self.found.uses(master.address, master.http_address)
        return master

    def restarted(self, master: ManagedMaster) -> None:
        """Start a dead master again, on the ports that it had."""
        ports = [int(address.rpartition(":")[2]) for address in (master.address, master.http_address)]
        command = master_command(find_master_binary(), *ports)
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", master_guard.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        # Leaving a Popen closes the pipe, which ends the guard's command, and waits.
        self._masters.enter_context(guard)

    def client(self, master: ManagedMaster, *, segment_bytes: int) -> MooncakeStoreBackend:
        """A client of this process; with 0 bytes its objects lie in other processes."""
        store = open_mooncake(master.address, segment_bytes=segment_bytes)
        self._clients.callback(store.close)
        return store

    def owner(self, master: ManagedMaster, *, segment_bytes: int = SEGMENT_BYTES) -> Owner:
        """Another process with a segment."""
        process = subprocess.Popen(
            [*self.owner_command, master.address, str(segment_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        owner = Owner(process)
        self._masters.callback(owner.stop)
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], WAIT_SECONDS)
        if not (readable and process.stdout.readline()):
            raise StoreError("a second process could not join the private master")
        return owner

    def close(self) -> None:
        """Close everything."""
        try:
            self._clients.close()
        finally:
            self._masters.close()


@dataclass(frozen=True, slots=True)
class Request:
    """One request's lookup and restore."""

    lookup: Lookup
    report: RestoreReport

    @property
    def used_tokens(self) -> int:
        """Tokens that the model resumes from."""
        return self.report.ledger.used_tokens

    @property
    def answers(self) -> str:
        """The different answers of the store to the read."""
        results = self.report.transfer.results.values()
        return ", ".join(sorted({str(result) for part in results for result in part})) or "nothing asked"


class SavedPrefix:
    """A hybrid prefix with known bytes, on one client."""

    def __init__(self, stage: Stage, store: KVStoreBackend, *, number: int = 0) -> None:
        model = load_model(PRESET)
        self.registry = build_registry(pools_of(model.spec, profile=model.profile))
        self.num_tokens = NUM_PAGES * model.spec.page_tokens
        self.layout = lay_out(self.registry, self.num_tokens, SavePolicy(states=StateSave.ALL))
        seed = stage.seed + number
        self.prefix: Prefix = prompt_prefix(self.layout, token_seed=seed)
        self.store = store
        self._fixture = FixtureBytes(self.layout, seed)
        self._keys = NamespacedKeyBuilder(model.spec.digest)
        self._found = stage.found

    @property
    def keys(self) -> list[str]:
        """Every key of the prefix."""
        keys = PrefixKeys(self._keys)
        return [key for pool in self.layout.pools for key in keys.asked(pool, self.prefix)]

    def save(self) -> SaveReport:
        """Save from host pools that are gone afterwards."""
        host_pools = self.layout.host_pools(backed=True)
        self._fixture.fill(host_pools)
        with self._controller(host_pools) as controller:
            return controller.save(self.prefix, SavePolicy(states=StateSave.ALL))

    def save_whole(self, label: str) -> None:
        """Save; the store must keep every page."""
        self._found.equal(f"{label}: pages stored", self.prefix.num_pages, self.save().stored_pages)

    def save_refused(self, label: str, answers: str, limit_seconds: float) -> None:
        """Save to a store that keeps nothing: it must end in time, and say so."""
        started = time.monotonic()
        saved = self.save()
        given = sorted({str(result) for part in saved.transfer.results.values() for result in part})
        self._found.within(label, limit_seconds, time.monotonic() - started)
        self._found.equal(f"{label}: pages that it says failed", self.prefix.num_pages, saved.failed_pages)
        self._found.equal(f"{label}: answers", answers, ", ".join(given))

    def look_up(self) -> Lookup:
        """Ask for every object."""
        return look_up_prefix(self.layout.pools, PrefixKeys(self._keys), self.store, self.prefix)

    def hit_tokens(self, lookup: Lookup) -> int:
        """What a lookup promises."""
        resolution = resolve_lookup(self.layout.pools, lookup, TransferPolicy.DENSE)
        return resolution.hit_pages * self.prefix.page_tokens

    def request(
        self,
        label: str,
        *,
        limit_seconds: float,
        policy: TransferPolicy = TransferPolicy.DENSE,
        between: Callable[[], object] = lambda: None,
    ) -> Request:
        """Look up, let ``between`` happen, restore into poisoned pools, and check what must always hold."""
        lookup = self.look_up()
        host_pools = self.layout.host_pools(backed=True)
        for host_pool in host_pools.values():
            host_pool.poison()
        with self._controller(host_pools) as controller:
            plan = controller.plan(lookup, policy)
            between()
            bytes_before, started = self.store.stats.get_bytes, time.monotonic()
            report = controller.restore(self.prefix, plan)
            seconds = time.monotonic() - started
        self._found.within(label, limit_seconds, lookup.seconds + seconds)
        self._check(label, Request(lookup, report), host_pools, self.store.stats.get_bytes - bytes_before)
        return Request(lookup, report)

    def request_whole(self, label: str, *, limit_seconds: float = 10.0) -> None:
        """A request that must restore everything, with ``dense`` and with ``selective``."""
        for policy in (TransferPolicy.DENSE, TransferPolicy.SELECTIVE):
            name = f"{label}, {policy.value}"
            request = self.request(name, limit_seconds=limit_seconds, policy=policy)
            self._found.equal(f"{name}: tokens used", self.num_tokens, request.used_tokens)

    def _check(
        self, label: str, request: Request, host_pools: Mapping[str, HostPool], store_bytes: int
    ) -> None:
        found, ledger, arrived = self._found, request.report.ledger, request.report.arrived
        ordered = ledger.used_tokens <= ledger.fulfilled_tokens <= ledger.hit_tokens
        numbers = f"{ledger.used_tokens}, {ledger.fulfilled_tokens}, {ledger.hit_tokens}"
        found.check(Check(f"{label}: used ≤ fulfilled ≤ hit", "in this order", numbers, ordered))
        found.equal(
            f"{label}: used, resolved again from what arrived",
            whole_tokens(self.layout.pools, {name: set(units.tolist()) for name, units in arrived.items()}),
            ledger.used_tokens,
        )
        found.equal(
            f"{label}: hit tokens with a reason for their loss",
            ledger.hit_tokens - ledger.used_tokens,
            sum(ledger.unused_tokens.values()),
        )
        stored = {pool.name: int(request.lookup.presence[pool.name].sum()) for pool in self.layout.pools}
        pools = {pool.name: pool for pool in self.layout.pools}
        found.none_of(
            f"{label}: pools whose account does not balance",
            [
                account.pool
                for account in ledger.pools
                if account.total != volume(pools[account.pool], stored[account.pool])
            ],
        )
        found.equal(f"{label}: bytes read, by the store's own count", store_bytes, ledger.read.num_bytes)
        found.none_of(
            f"{label}: wrong bytes counted as restored", self._fixture.mismatched(host_pools, arrived)
        )
        planned = {item.pool.name: item.units for item in request.report.plan.pools}
        # A read that failed may leave anything in its own destination, and nothing elsewhere.
        found.none_of(
            f"{label}: pages touched that no plan named", self._fixture.disturbed(host_pools, planned)
        )
        found.none_of(
            f"{label}: guard zones written to",
            [name for name, host_pool in host_pools.items() if not host_pool.guards_intact()],
        )

    def _controller(self, host_pools: dict[str, HostPool]) -> HybridKVController:
        return HybridKVController(self.registry, host_pools, self._keys, self.store)


def whole_tokens(pools: tuple[KVPoolDescriptor, ...], arrived: Mapping[str, set[int]]) -> int:
    """Largest endpoint of which every pool has what its attention needs, token by token.

    Shares nothing with the resolver: it is what the resolver's answer is compared with. For pools whose unit
    is one page.
    """
    page_tokens = pools[0].page_tokens
    return max(
        end * page_tokens
        for end in range(NUM_PAGES + 1)
        if all(_needed(pool, end) <= arrived[pool.name] for pool in pools)
    )


def _needed(pool: KVPoolDescriptor, end: int) -> set[int]:
    if not end or pool.hit_policy is HitPolicy.ALL_PAGES:
        return set(range(end))
    if pool.attention is AttentionType.RECURRENT:
        return {end - 1}
    num_tokens, window = end * pool.page_tokens, pool.window_tokens or 0
    return {token // pool.page_tokens for token in range(max(0, num_tokens - window + 1), num_tokens)}


def freeze(pid: int) -> None:
    """Stop a process: all of its threads, before this returns.

    A thread takes the signal when it is next scheduled, not when ``kill`` returns.
    """
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    while any((task / "stat").read_text().rpartition(")")[2].split()[0] != "T" for task in tasks.iterdir()):
        time.sleep(_POLL_SECONDS / 5)


def wait_for(happened: Callable[[], bool]) -> float:
    """Seconds until it happened; endless if it did not within :data:`WAIT_SECONDS`."""
    started = time.monotonic()
    while not happened():
        if time.monotonic() - started > WAIT_SECONDS:
            return float("inf")
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - started
