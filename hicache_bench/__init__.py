"""Benchmark and validate the KV-cache storage tier of hybrid and sparse language models."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
