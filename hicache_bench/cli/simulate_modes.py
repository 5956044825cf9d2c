"""The three things that ``simulate`` models, and which options belong to which."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

import typer

from hicache_bench.errors import InputError

_OF_TRACES = frozenset(
    {
        "capacity", "eviction", "trace_block_tokens", "on_error", "measure", "hit_definition",
        "include_output", "threshold",
    }
)  # fmt: skip
_OF_PREFIXES = frozenset({"prefix", "suffix", "break_even"})
_OF_TIMES = frozenset(
    {"concurrency", "queue", "prefetch", "prefetch_profile", "hidden_size", "active_parameters"}
)
_OF_ANY_RECORD = frozenset(
    {
        "source", "link", "system", "prefix", "suffix", "policy", "prefetch", "prefetch_profile",
        "host_capacity", "concurrency", "queue", "break_even", "hidden_size", "active_parameters", "json",
        "out", "quiet",
    }
)  # fmt: skip
"""What a record of a run does not say already."""


class Mode(Enum):
    """Prefixes of a preset, those of a record, or the requests of a trace."""

    PRESET = "--preset"
    RECORD = "--from"
    TRACE = "--trace"


@dataclass(frozen=True, slots=True)
class Given:
    """The options that were typed: their names in Python, and as they are spelled, in order."""

    spelled: Mapping[str, str]

    @classmethod
    def of(cls, context: typer.Context) -> Given:
        """Those of a command that is being run."""
        typed = {
            name
            for name in context.params
            if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
        }
        return cls(
            {
                parameter.name: parameter.opts[0]
                for parameter in context.command.params
                if parameter.name in typed and parameter.name is not None
            }
        )

    def among(self, names: Collection[str]) -> list[str]:
        """The typed ones of these, as they are spelled."""
        return [spelled for name, spelled in self.spelled.items() if name in names]

    def __contains__(self, name: str) -> bool:
        return name in self.spelled

    @property
    def models_time(self) -> bool:
        """Whether a link or a system was asked for."""
        return "link" in self or "system" in self


def mode_of(given: Given) -> Mode:
    """What is asked for.

    Raises:
        InputError: no model or two, or an option of something else.
    """
    chosen = [mode for mode, name in ((Mode.RECORD, "source"), (Mode.TRACE, "trace")) if name in given]
    if len(chosen) == 2:
        raise InputError("--from is the record of one prefix at a time, and --trace has prompts; give one")
    mode = chosen[0] if chosen else Mode.PRESET
    if ("preset" in given) is (mode is Mode.RECORD):
        if mode is Mode.TRACE:
            raise InputError("--trace is replayed against the pools of a model; give it with --preset")
        raise InputError("give a model with --preset, or a record of a run with --from, and not both")
    if mode is Mode.TRACE:
        _refuse(given.among(_OF_PREFIXES), "the prompts are those of --trace; leave it out")
        if not given.models_time:
            _refuse(given.among(_OF_TIMES), "no seconds are modelled; ask for them with --link or --system")
    else:
        _refuse(given.among(_OF_TRACES), "what it changes is the replay of a trace; give one with --trace")
    if mode is Mode.RECORD:
        _refuse(
            given.among(given.spelled.keys() - _OF_ANY_RECORD),
            "the record of --from says how the model was deployed and saved; leave it out, or use --preset",
        )
    return mode


def _refuse(options: list[str], why: str) -> None:
    if options:
        raise InputError(f"{', '.join(options)}: {why}")
