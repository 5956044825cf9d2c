"""One line broken at a time: a prefix that goes on from a local one, and a lookup with few questions."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

_PREFIX = "engine/prefix.py"
_LOOKUP = "engine/lookup.py"

PREFIX_MUTANTS = (
    Mutant(
        "a continued prefix counted from its first hash",
        _PREFIX,
        "return self.first_page + len(self.hashes)",
        "return len(self.hashes)",
    ),
    Mutant(
        "the last local unit of a continued prefix keyed",
        _PREFIX,
        "unit_ends(pool, self.num_pages) > self.first_page",
        "unit_ends(pool, self.num_pages) >= self.first_page",
    ),
    Mutant(
        "the first unit of a continued prefix without a key",
        _PREFIX,
        "unit_ends(pool, self.num_pages) > self.first_page",
        "unit_ends(pool, self.num_pages) > self.first_page + (self.first_page > 0)",
    ),
    Mutant(
        "hashes of a continued prefix counted from page 0",
        _PREFIX,
        "hashes[int(ends[0]) - 1 - prefix.first_page : int(ends[-1]) - prefix.first_page]",
        "hashes[int(ends[0]) - 1 : int(ends[-1])]",
    ),
    Mutant(
        "a continued prefix read from its start",
        "engine/controller.py",
        "local_tokens = max(local_tokens, lookup.prefix.first_page * lookup.prefix.page_tokens)",
        "local_tokens = max(local_tokens, 0)",
    ),
)

LOOKUP_MUTANTS = (
    Mutant("a search that asks nothing", _LOOKUP, "if pool.constrains:\n", "if not pool.constrains:\n"),
    Mutant(
        "a search that asks for a window a page short",
        _LOOKUP,
        "units = self._unknown_units(pool, first_needed_at(pool, self._policy, end), end)",
        "units = self._unknown_units(pool, first_needed_at(pool, self._policy, end) + 1, end)",
    ),
    Mutant(
        "a search that believes the first answer",
        _LOOKUP,
        "self._missing[pool.name][units] = ~flags",
        "self._missing[pool.name][units] = ~flags & ~self._missing[pool.name].any()",
    ),
    Mutant(
        "a search that leaves out what a dense restore reads",
        _LOOKUP,
        "first = 0 if dense else first_needed_at(pool, self._policy, end)",
        "first = first_needed_at(pool, self._policy, end)",
    ),
    Mutant(
        "a search that gives up all that is not known",
        _LOOKUP,
        "possible = {name: ~missing for name, missing in self._missing.items()}",
        "possible = {name: ~missing & self._asked[name] for name, missing in self._missing.items()}",
    ),
)
