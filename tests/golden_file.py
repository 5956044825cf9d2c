"""The golden file: what the classes of SGLang 0.5.23 print (data only)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def golden() -> dict[str, Any]:
    path = Path(__file__).parent / "golden" / "sglang-0.5.23.json"
    data: dict[str, Any] = json.loads(path.read_text())
    return data
