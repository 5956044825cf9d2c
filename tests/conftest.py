"""What all tests share."""

from __future__ import annotations

import os

# As the command line has it; read when numpy is first imported, which no import above may do.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import settings

# Nothing here asserts on the clock; a busy machine must not fail a property.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
