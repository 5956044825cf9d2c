"""Every error that this project raises on purpose.

::

    HicacheBenchError
    ├── InputError                    exit 2   (ValueError)
    │   ├── UnitError                          a size, rate or token count that cannot be read
    │   ├── ConfigError                        a model, pool or preset that cannot exist
    │   │   ├── LayoutError                    a host layout that the store cannot take
    │   │   └── PresetNotFoundError            (LookupError)
    │   ├── MemoryBudgetError                  (MemoryError) more memory asked for than there is
    │   └── OutputError                        (OSError) a result that cannot be written
    ├── StoreError                    exit 3
    │   ├── StoreUnavailableError              (ConnectionError) no wheel, no library, no master
    │   ├── StoreClosedError                   a call before set-up or after close
    │   └── StoreContractError                 a backend answered something it must never answer
    └── VerificationError             exit 4   restored bytes are not the saved ones

A message says what was given, what is allowed, and what to do next. The command line prints it without
a traceback and exits with :attr:`HicacheBenchError.exit_code`.
"""

from __future__ import annotations


class HicacheBenchError(Exception):
    """Root of the tree; ``exit_code`` is what the command line exits with."""

    exit_code = 1


class InputError(HicacheBenchError, ValueError):
    """The user gave something that cannot be used."""

    exit_code = 2


class UnitError(InputError):
    """A size, rate, duration or token count that cannot be read."""


class ConfigError(InputError):
    """A model, pool or preset whose geometry or fields are impossible."""


class LayoutError(ConfigError):
    """A host-pool layout that cannot be registered with a store."""


class PresetNotFoundError(ConfigError, LookupError):
    """No preset has this name."""


class MemoryBudgetError(InputError, MemoryError):
    """More memory was asked for than this machine or the given budget has."""


class OutputError(InputError, OSError):
    """A result that cannot be written where it was asked for."""


class StoreError(HicacheBenchError):
    """The store cannot do what was asked."""

    exit_code = 3


class StoreUnavailableError(StoreError, ConnectionError):
    """The store cannot be reached: no wheel, a missing system library, no master."""


class StoreClosedError(StoreError):
    """A store was called before it was set up or after it was closed."""


class StoreContractError(StoreError):
    """A backend returned something that its contract forbids."""


class VerificationError(HicacheBenchError):
    """Restored bytes are not the bytes that were saved."""

    exit_code = 4
