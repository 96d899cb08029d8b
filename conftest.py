"""
Doctests, but for those of modules that need BoTorch, where it is not installed; and one thread for each of several
workers, whose threads would else wait for each other on the same cores.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy and PyTorch are first imported

pytest_plugins = ["tests.rest"] if "RUN_THE_REST" in os.environ else []
collect_ignore = [] if find_spec("botorch") else ["gpytorch_partition/ax.py", "gpytorch_partition/botorch"]
