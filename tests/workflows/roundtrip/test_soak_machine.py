"""The steps of the soak, driven by hypothesis, which looks for the worlds that seeds do not reach."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from xxhash import xxh3_64_intdigest

from hicache_bench.store.local import LocalKVStore
from hicache_bench.units import MIB
from hicache_bench.workflows.roundtrip.soak_world import NUM_REQUESTS, Step, StepKind, World

REQUESTS = st.integers(0, NUM_REQUESTS - 1)
SEEDS = st.integers(0, (1 << 32) - 1)


class SoakMachine(RuleBasedStateMachine):
    """One world on one store."""

    world: World | None = None

    def __init__(self) -> None:
        super().__init__()
        self.store = LocalKVStore(8 * MIB)

    @initialize(seed=SEEDS, digests=st.booleans())
    def open(self, seed: int, digests: bool) -> None:
        self.world = World(self.store, seed, digest=xxh3_64_intdigest if digests else None, max_seconds=10)

    @rule(kind=st.sampled_from(StepKind), request=REQUESTS, seed=SEEDS)
    def step(self, kind: StepKind, request: int, seed: int) -> None:
        self._do(Step(kind, request, seed))

    @rule(request=REQUESTS, seed=SEEDS)
    def save_and_restore(self, request: int, seed: int) -> None:
        self._do(Step(StepKind.SAVE, request, seed))
        self._do(Step(StepKind.RESTORE, request, seed + 1))

    def teardown(self) -> None:
        if self.world is not None:
            self.world.close()
            assert 0 == len(self.store)
        self.store.close()

    def _do(self, step: Step) -> None:
        assert self.world is not None
        assert [] == self.world.step(step)


TestSoakMachine = SoakMachine.TestCase
TestSoakMachine.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
