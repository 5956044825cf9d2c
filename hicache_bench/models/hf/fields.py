"""Fields of one ``config.json``: checked when they are read, and remembered.

A field that nobody read is how a wrong cache size hides, so every read is recorded: the importer ends by
asking which fields that look as if they decided the cache were never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hicache_bench.errors import ConfigError

MAX_DIMENSION = 2**24
"""Largest dimension, window or number of selected tokens that is believed."""
MAX_LAYERS = 10_000
MAX_SHOWN = 60
"""Characters of a value that an error repeats; a config may hold anything."""


class Fields:
    """Typed reads of one object of a config. ``null`` means absent, as it does to transformers.

    ``num_layers`` is the length that a per-layer list must have; ``per_layer`` replaces fields of one layer.
    ``defaults`` stands in for fields that are not there at all, and ``defaulted`` has those that were read:
    a class fills in what is left out, and not what is ``null``. Blocks share the trail of the object they
    came from.
    """

    def __init__(self, data: Mapping[str, Any], *, place: str = "", trail: list[str] | None = None) -> None:
        self._data = data
        self.defaults: Mapping[str, Any] = {}
        self.defaulted: dict[str, Any] = {}
        self._place = place
        self._trail: list[str] = [] if trail is None else trail
        self._read: set[str] = set()
        self._blocks: dict[str, Fields] = {}
        self.num_layers = 0
        self.per_layer: Mapping[int, Mapping[str, Any]] = {}

    def path(self, name: str) -> str:
        """``name`` with the blocks it lies in, as an error or a source names it."""
        return f"{self._place}{name}"

    def has(self, name: str) -> bool:
        """Whether the field is there and not ``null``; asking is not reading."""
        return self._data.get(name) is not None

    def switched_off(self, name: str) -> bool:
        """Whether the field is there and ``false``; asking is not reading."""
        return self._data.get(name) is False

    def given(self, *names: str) -> str:
        """The first of ``names`` that is there or that its class fills in, else the first of all."""
        there = [name for name in names if self.has(name)] or [name for name in names if self.known(name)]
        return there[0] if there else names[0]

    def known(self, name: str) -> bool:
        """As :meth:`has`, or the field is left out and its class has a default."""
        return self.has(name) or self._left_to_class(name)

    def _left_to_class(self, name: str) -> bool:
        return name in self.defaults and name not in self._data

    def set_aside(self, *names: str) -> None:
        """Count ``names`` as read: another field decides what they would have decided."""
        self._read.update(names)

    def value(self, name: str) -> Any:
        """The raw value of a field, that of its class where it is left out, else ``None``."""
        self._read.add(name)
        if self._left_to_class(name):
            self.defaulted[name] = self.defaults[name]
            return self.defaults[name]
        if self.has(name):
            self._trail.append(self.path(name))
        return self._data.get(name)

    def unread(self) -> Iterator[tuple[str, str, Any]]:
        """Fields that hold something and that nobody asked for: name, path, value, those of blocks too."""
        for name, value in self._data.items():
            if name not in self._read and value not in (None, "", [], {}):
                yield name, self.path(name), value
        for block in self._blocks.values():
            yield from block.unread()

    def mark(self) -> int:
        """A point in the trail of reads, for :meth:`since`."""
        return len(self._trail)

    def since(self, mark: int) -> str:
        """Paths of the fields read since ``mark``, each once."""
        return ", ".join(dict.fromkeys(self._trail[mark:]))

    def block(self, name: str) -> Fields | None:
        """The object that a field holds."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, "an object")
        if name not in self._blocks:
            self._blocks[name] = Fields(value, place=f"{self.path(name)}.", trail=self._trail)
        return self._blocks[name]

    def names(self) -> list[str]:
        """Every field that is there."""
        return [name for name in self._data if self.has(name)]

    def dimension(self, *names: str, layer: int | None = None) -> int:
        """The first of ``names`` that is there; a list holds one value for each layer.

        Raises:
            ConfigError: none of them is there, two of them disagree, or the value is no dimension.
        """
        value = self.optional(*names, layer=layer)
        if value is None:
            raise ConfigError(
                f"config has no {' or '.join(self.path(name) for name in names)}, and what is cached "
                "depends on it; add it, as the model's own code has it"
            )
        return value

    def optional(self, *names: str, layer: int | None = None) -> int | None:
        """As :meth:`dimension`, and ``None`` where no name is there."""
        found = [name for name in names if self.found(name, layer)]
        if not found:  # a default never contradicts what another name says
            found = [name for name in names if self._left_to_class(name)]
        values = {name: self._of_layer(name, layer) for name in found}
        for name, value in values.items():
            self._check_integer(name, value, minimum=1, maximum=MAX_DIMENSION)
        if len(set(values.values())) > 1:
            given = " and ".join(f"{self.path(name)} is {value}" for name, value in values.items())
            raise ConfigError(f"config contradicts itself: {given}; keep the right one")
        return next(iter(values.values()), None)

    def count(self, name: str, maximum: int = MAX_DIMENSION) -> int:
        """A number from 0 up; 0 where the field is absent."""
        value = self.value(name)
        return 0 if value is None else self._check_integer(name, value, minimum=0, maximum=maximum)

    def flag(self, name: str) -> bool | None:
        """A boolean, ``None`` where the field is absent."""
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def text(self, name: str) -> str | None:
        """A string, ``None`` where the field is absent or empty."""
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, value, "a string")
        return value or None

    def integers(self, name: str, *, minimum: int = 0, maximum: int = MAX_DIMENSION) -> list[int]:
        """A list of integers."""
        values = self.items(name)
        return [self._check_integer(name, value, minimum=minimum, maximum=maximum) for value in values]

    def items(self, name: str) -> Sequence[Any]:
        """A list or tuple of anything."""
        values = self.value(name)
        if not isinstance(values, (list, tuple)):
            raise self.wrong(name, values, "a list")
        return values

    def wrong(self, name: str, value: object, allowed: str) -> ConfigError:
        """The error for a value that a field cannot have."""
        return ConfigError(f"{self.path(name)} is {shown(value)}, and must be {allowed}")

    def found(self, name: str, layer: int | None) -> bool:
        """Whether the config gives the field, for all layers or for this one."""
        return self.has(name) or (layer is not None and name in self.per_layer.get(layer, {}))

    def _of_layer(self, name: str, layer: int | None) -> Any:
        value = self.value(name)
        if layer is None:
            return value
        if name in self.per_layer.get(layer, {}):
            self._trail.append(self.path("per_layer_config"))
            return self.per_layer[layer][name]
        if not isinstance(value, (list, tuple)):
            return value
        if len(value) != self.num_layers:
            raise ConfigError(
                f"{self.path(name)} has {len(value)} entries for {self.num_layers} layers; give one for each"
            )
        return value[layer]

    def _check_integer(self, name: str, value: object, *, minimum: int, maximum: int) -> int:
        # A bool is an int to Python, and never a dimension.
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise self.wrong(name, value, f"an integer from {minimum:,} to {maximum:,}")
        return value


def shown(value: object) -> str:
    """``value`` as an error repeats it: short, whatever a config holds."""
    if isinstance(value, (str, int, float)) or value is None:
        # Python refuses to print integers of more than 4,300 digits.
        huge = isinstance(value, int) and value.bit_length() > MAX_SHOWN * 3
        text = f"an integer of {value.bit_length()} bits" if huge and isinstance(value, int) else repr(value)
    else:
        text = f"a {'list' if isinstance(value, (list, tuple)) else 'JSON object'}"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
