"""A plugin of pytest for tests of others: imports what IMPORTED names first, and seeds every test by its name."""

from __future__ import annotations

import os
import random
from importlib import import_module
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch

if package := os.environ.get("IMPORTED"):
    import_module(package)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """Begin with random numbers that do not depend on the tests before."""
    seed = crc32(item.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the tests read the global state)
    torch.manual_seed(seed)
