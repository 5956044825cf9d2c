"""The golden file: what the classes of SGLang 0.5.23 print (data only)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

PRESET_OF = {
    "DeepSeek-V3/R1": "deepseek-v3",
    "DeepSeek-V3.2": "deepseek-v3.2",
    "DeepSeek-V4-Flash": "deepseek-v4-flash",
    "Gemma-3-27B (SGLang: one KV pool, all 62 layers)": "gemma-3-27b",
    "Kimi-K2": "kimi-k2",
    "Kimi-Linear-48B-A3B": "kimi-linear-48b-a3b",
    "Llama-3.1-8B": "llama-3.1-8b",
    "Llama-3.1-70B": "llama-3.1-70b",
    "Llama-4-Scout": "llama-4-scout",
    "MiniMax-M2": "minimax-m2",
    "Nemotron-H-8B": "nemotron-h-8b",
    "Qwen3-32B": "qwen3-32b",
    "Qwen3-Next-80B-A3B": "qwen3-next-80b-a3b",
    "Qwen3.5-35B-A3B": "qwen3.5-35b-a3b",
    "gpt-oss-120b": "gpt-oss-120b",
}
"""The preset of each model in the file."""


@cache
def golden() -> dict[str, Any]:
    path = Path(__file__).parent / "golden" / "sglang-0.5.23.json"
    data: dict[str, Any] = json.loads(path.read_text())
    return data
