"""An engine that breaks while something is proved of it: a failed check, and what follows is proved still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hicache_bench.errors import MemoryBudgetError, StoreError
from hicache_bench.records.schema import Check

BREAKDOWNS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""How broken code ends. The errors of a user are ValueErrors: they are refused before anything is proved."""


def breakdown(error: Exception) -> Check:
    """The failed check that ``error`` is."""
    return Check("errors that it ends with", "none", f"{type(error).__name__}: {error}", passed=False)


@contextmanager
def findings(checks: list[Check], *, own_store: bool = False) -> Iterator[None]:
    """End what is inside at a breakdown, and put it among ``checks``.

    With ``own_store`` the store is one that nobody asked for, and its errors are breakdowns too.

    Raises:
        StoreError: the store that was asked for cannot be reached, does not keep what is saved, or does not
            deliver it.
        MemoryBudgetError: memory that this machine does not give.
    """
    try:
        yield
    except MemoryBudgetError:
        raise
    except StoreError as error:
        if not own_store:
            raise
        checks.append(breakdown(error))
    except BREAKDOWNS as error:
        checks.append(breakdown(error))
