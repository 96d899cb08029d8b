"""The package's doctests, but for those of the folder that needs BoTorch, where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("botorch") else ["gpytorch_partition/botorch"]
