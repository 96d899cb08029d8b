"""Doctests, but for those of modules that need BoTorch, where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

_NEED_BOTORCH = ["gpytorch_partition/botorch", "tests/benchmarks/botorch_runs.py", "tests/benchmarks/mixed_problems.py"]
collect_ignore = [] if find_spec("botorch") else _NEED_BOTORCH
