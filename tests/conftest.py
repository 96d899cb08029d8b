"""Tests import helpers that lie beside them."""

from __future__ import annotations

import sys
from pathlib import Path

import gpytorch
import linear_operator
import torch

# The matrices of the tests are small: a second thread costs more than it brings, most of all on a busy machine.
torch.set_num_threads(1)

sys.path.insert(0, str(Path(__file__).parent / "operators"))

# What BoTorch changes when it is imported, as some tests and modules do while they are collected.
_CHANGED = [
    (linear_operator.settings._fast_covar_root_decomposition, "_default"),
    (linear_operator.settings._fast_log_prob, "_default"),
    (linear_operator.settings._fast_solves, "_default"),
    (linear_operator.settings.cholesky_max_tries, "_global_value"),
    (linear_operator.settings.max_cholesky_size, "_global_value"),
    (gpytorch.settings.max_eager_kernel_size, "_global_value"),
]
_BEFORE = [getattr(setting, name) for setting, name in _CHANGED]


def pytest_collection_finish():
    """Begin every test with GPyTorch's settings."""
    for (setting, name), value in zip(_CHANGED, _BEFORE, strict=True):
        setattr(setting, name, value)
