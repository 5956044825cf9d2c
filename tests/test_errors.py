"""The exception tree, as its own docstring draws it."""

from __future__ import annotations

import re

import pytest

from hicache_bench import errors
from hicache_bench.errors import HicacheBenchError

TREE_LINE = re.compile(
    r"^    (?P<indent>[│ ├└─]*)(?P<name>\w+)(?: +exit (?P<exit>\d+))?(?: +\((?P<builtin>\w+)\))?"
)


def drawn_tree() -> dict[str, tuple[str | None, int | None, str | None]]:
    """Parent, own exit code and builtin base of each class in the docstring."""
    assert errors.__doc__ is not None
    drawing = errors.__doc__.split("::\n", 1)[1].split("\n\nA message", 1)[0]
    path: list[str] = []
    tree: dict[str, tuple[str | None, int | None, str | None]] = {}
    for line in drawing.strip("\n").splitlines():
        match = TREE_LINE.match(line)
        assert match is not None, line
        depth = len(match["indent"]) // 4
        del path[depth:]
        code = int(match["exit"]) if match["exit"] else None
        tree[match["name"]] = path[-1] if path else None, code, match["builtin"]
        path.append(match["name"])
    return tree


def classes() -> dict[str, type[HicacheBenchError]]:
    """Every exception class of the module."""
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, HicacheBenchError)
    }


def test_tree_names_every_class() -> None:
    assert set(classes()) == set(drawn_tree())


@pytest.mark.parametrize("name", list(drawn_tree()))
def test_parent_and_builtin_base_are_those_of_the_tree(name: str) -> None:
    parent, _, builtin = drawn_tree()[name]
    expected = [parent or "Exception", *([builtin] if builtin else [])]
    assert expected == [base.__name__ for base in classes()[name].__bases__]


@pytest.mark.parametrize("name", list(drawn_tree()))
def test_exit_code_is_that_of_the_nearest_class_which_draws_one(name: str) -> None:
    tree = drawn_tree()
    ancestor: str | None = name
    expected = None
    while ancestor is not None and expected is None:
        parent, expected, _ = tree[ancestor]
        ancestor = parent
    # The root draws none: 1, as for any failed check.
    assert (expected or 1) == classes()[name].exit_code


@pytest.mark.parametrize(
    ("name", "exit_code"),
    [("InputError", 2), ("StoreError", 3), ("VerificationError", 4), ("HicacheBenchError", 1)],
)
def test_exit_codes_of_the_command_line(name: str, exit_code: int) -> None:
    assert exit_code == classes()[name].exit_code


def test_builtin_handlers_catch_what_they_would_expect() -> None:
    message = "given x; allowed y"
    for builtin, kind in (
        (ValueError, errors.UnitError),
        (LookupError, errors.PresetNotFoundError),
        (MemoryError, errors.MemoryBudgetError),
        (OSError, errors.OutputError),
        (ConnectionError, errors.StoreUnavailableError),
    ):
        with pytest.raises(builtin) as failure:
            raise kind(message)
        assert message == str(failure.value)
