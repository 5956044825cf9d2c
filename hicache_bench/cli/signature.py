"""Options that several commands share: how a decorator adds parameters to the signature that Typer reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

_FILLED = {"VariantOptions": object, "MetricsSink": object}
"""Types of the parameters that a decorator fills. A command imports them for type checking only, and Typer
never sees them."""


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of ``function``, with types instead of the text of its module as annotations."""
    types = get_type_hints(function, {**function.__globals__, **_FILLED}, include_extras=True)
    return [
        parameter.replace(annotation=types[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(function).parameters.values()
    ]


def show_parameters(function: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> None:
    """Make ``function`` look as if it had these parameters."""
    shown = list(parameters)
    # Typer reads the signature, and for it the annotations must be types, not the text of this module.
    function.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
