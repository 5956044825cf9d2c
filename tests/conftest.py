"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# Nothing here asserts on the clock; a busy machine must not fail a property.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
