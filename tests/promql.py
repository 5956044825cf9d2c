"""What a PromQL expression selects: enough grammar to find each metric that it names."""

from __future__ import annotations

import re

_TEXT = r'"(?:\\.|[^"\\])*"'
_TOKEN = re.compile(rf'{_TEXT}|\{{(?:{_TEXT}|[^}}"])*\}}|\[[^\]]*\]|[A-Za-z_:][A-Za-z0-9_:]*|\d[\w.]*|\S')
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_OPERATORS = {"and", "or", "unless", "atan2", "bool", "offset", "inf", "nan"}


def selectors(expression: str) -> list[tuple[str, str]]:
    """Each metric that ``expression`` names, with the selector as it stands there (matchers included)."""
    tokens = _TOKEN.findall(expression)
    found = []
    position = 0
    while position < len(tokens):
        token, following = tokens[position], tokens[position + 1] if position + 1 < len(tokens) else ""
        position += 1
        if not _NAME.fullmatch(token) or token.lower() in _OPERATORS:
            continue
        if token in _GROUPING:
            if following == "(":
                position = tokens.index(")", position) + 1
        elif following != "(" and following not in _GROUPING:
            found.append((token, token + following if following.startswith("{") else token))
    return found
