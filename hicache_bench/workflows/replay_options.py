"""What a replay is asked for, read from text; no terminal needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product
from typing import Protocol, TypeVar

from hicache_bench.config.explain import suggest
from hicache_bench.errors import InputError, UnitError
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.records.replay import Timing, TimingBasis
from hicache_bench.trace.columns import Counts
from hicache_bench.trace.format import OnError, Trace
from hicache_bench.trace.metrics import TtftModel
from hicache_bench.trace.paths import HitDefinition, OutputSave
from hicache_bench.trace.replay import Limits
from hicache_bench.trace.tier import Eviction
from hicache_bench.units import parse_size
from hicache_bench.workflows.traces import open_trace
from hicache_bench.workflows.variant import Variant

UNBOUNDED = "inf"

_MEASURE = re.compile(r"last:([0-9]{1,3})%")
_Choice = TypeVar("_Choice", bound=Enum)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayArguments:
    """The options of ``simulate --trace`` that a whole sweep shares, as typed; lists are separated by commas.

    ``save_policy`` None compares the default with one that keeps windows as short as a trace allows.
    Alternatives in it are separated by ``|``, and all of their products are run.
    """

    trace: str
    trace_block_tokens: int | None = None
    on_error: str = OnError.REFUSE.value
    capacity: str = "64GiB,256GiB,1TiB,inf"
    eviction: str = Eviction.LRU.value
    policy: str = ",".join(policy.value for policy in TransferPolicy)
    save_policy: str | None = None
    measure: str = "all"
    hit_definition: str = HitDefinition.ENGINE.value
    include_output: str = OutputSave.NONE.value


class TimeModel(Protocol):
    """Models the seconds of a replay's requests, and says by what."""

    @property
    def timing(self) -> Timing:
        """What was asked for."""

    @property
    def threshold_tokens(self) -> int:
        """The least that its prefetch reads."""

    def ttft(self, policy: TransferPolicy) -> TtftModel:
        """Times to first token of requests that read under ``policy``."""

    def basis(self, prompt_tokens: Counts, local_tokens: Counts) -> TimingBasis:
        """What the seconds rest on, and those of computing all prompts but their local tokens."""

    def notes(self, prompt_tokens: Counts) -> tuple[str, ...]:
        """What to know before the times of these prompts are believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """A replay. ``capacities`` are bytes, None has no bound.

    ``save_policies`` may be empty, as in :class:`ReplayArguments`. The last ``measured_percent`` % of the
    requests are measured; those before them fill the tier. Without ``times`` no seconds are modelled.
    """

    variant: Variant
    trace: Trace = field(repr=False)
    capacities: tuple[int | None, ...]
    evictions: tuple[Eviction, ...] = (Eviction.LRU,)
    policies: tuple[TransferPolicy, ...] = tuple(TransferPolicy)
    save_policies: tuple[SavePolicy, ...] = ()
    measured_percent: int = 100
    definition: HitDefinition = HitDefinition.ENGINE
    outputs: OutputSave = OutputSave.NONE
    limits: Limits = field(default_factory=Limits)
    times: TimeModel | None = None
    command: tuple[str, ...] = ()


def parse_replay(
    variant: Variant, arguments: ReplayArguments, *, command: Sequence[str] = ()
) -> ReplayOptions:
    """Check every option, then read the trace.

    Raises:
        InputError: an option that is not among those allowed, or a trace that cannot be used.
    """
    options = {
        "capacities": parse_capacities(arguments.capacity),
        "evictions": parse_choices("--eviction", arguments.eviction, Eviction),
        "policies": parse_choices("--policy", arguments.policy, TransferPolicy),
        "save_policies": () if arguments.save_policy is None else parse_saves(arguments.save_policy),
        "measured_percent": parse_measured(arguments.measure),
        "definition": parse_choice("--hit-definition", arguments.hit_definition, HitDefinition),
        "outputs": parse_choice("--include-output", arguments.include_output, OutputSave),
    }
    trace = open_trace(
        arguments.trace,
        block_tokens=parse_block_tokens(arguments.trace_block_tokens),
        on_error=parse_choice("--on-error", arguments.on_error, OnError),
    )
    return ReplayOptions(
        variant=variant,
        trace=trace,
        command=tuple(command),
        **options,  # type: ignore[arg-type]
    )


def parse_capacities(text: str) -> tuple[int | None, ...]:
    """``64GiB,1TiB,inf`` in the order given, each once.

    Raises:
        InputError: not a size above zero, nor ``inf``.
    """
    found: dict[int | None, None] = {}
    for part in _parts(text, "--capacity"):
        if part.casefold() == UNBOUNDED:
            found[None] = None
            continue
        try:
            size = parse_size(part)
        except UnitError as error:
            raise InputError(f"--capacity {part!r} is no size: {error}, or inf for no bound") from error
        if size < 1:
            raise InputError("--capacity 0 holds nothing; give a size above zero, or inf for no bound")
        found[size] = None
    return tuple(found)


def parse_saves(text: str) -> tuple[SavePolicy, ...]:
    """Save policies; ``state=every:1k|4k|last,window=trailing:+0|+2|all`` gives the product of both lists.

    An alternative that is a number alone belongs to ``every``, one that begins with ``+`` to ``trailing``.

    Raises:
        InputError: anything else.
    """
    fields = []
    for part in _parts(text, "--save-policy"):
        kind, _, values = part.partition("=")
        fields.append([f"{kind}={_completed(value.strip())}" for value in values.split("|")])
    return tuple(dict.fromkeys(SavePolicy.parse(",".join(chosen)) for chosen in product(*fields)))


def _completed(value: str) -> str:
    if value.startswith("+"):
        return f"trailing:{value}"
    return f"every:{value}" if value[:1].isdecimal() else value


def parse_measured(text: str) -> int:
    """Percent of the requests that are measured: 100 for ``all``, 50 for ``last:50%``.

    Raises:
        InputError: anything else, or a percentage outside 1 to 100.
    """
    match = _MEASURE.fullmatch(text)
    percent = 100 if text == "all" else int(match.group(1)) if match else 0
    if not 1 <= percent <= 100:
        raise InputError(f"--measure {text!r} is unknown; allowed: all, or last:P% with P from 1 to 100")
    return percent


def parse_block_tokens(given: int | None) -> int | None:
    """Tokens of a trace's block, where the user says them.

    Raises:
        InputError: none or less.
    """
    if given is not None and given < 1:
        raise InputError(f"--trace-block-tokens {given} is no size of a block; allowed: 1 or more")
    return given


def parse_choice(option: str, text: str, kind: type[_Choice]) -> _Choice:
    """The member of ``kind`` of this value.

    Raises:
        InputError: there is none; the nearest is named.
    """
    members = {str(member): member for member in kind}
    wanted = text.strip().replace("-", "_")
    for name, member in members.items():
        if name.replace("-", "_") == wanted:
            return member
    raise InputError(f"{option} {text!r} is unknown{suggest(text, members)}; allowed: {', '.join(members)}")


def parse_choices(option: str, text: str, kind: type[_Choice]) -> tuple[_Choice, ...]:
    """Members of ``kind``, comma-separated, in the order given, each once.

    Raises:
        InputError: one that does not exist, or none.
    """
    return tuple(dict.fromkeys(parse_choice(option, part, kind) for part in _parts(text, option)))


def _parts(text: str, option: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InputError(f"{option} {text!r} names nothing; give one or more, separated by commas")
    return parts
