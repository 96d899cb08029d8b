"""What BoTorch changes in GPyTorch's and linear_operator's settings when it is imported."""

from __future__ import annotations

from typing import Any

import gpytorch
import linear_operator

_CHANGED = [
    (linear_operator.settings._fast_covar_root_decomposition, "_default"),
    (linear_operator.settings._fast_log_prob, "_default"),
    (linear_operator.settings._fast_solves, "_default"),
    (linear_operator.settings.cholesky_max_tries, "_global_value"),
    (linear_operator.settings.max_cholesky_size, "_global_value"),
    (gpytorch.settings.max_eager_kernel_size, "_global_value"),
]


def current() -> list[Any]:
    """The values now."""
    return [getattr(setting, name) for setting, name in _CHANGED]


def change(values: list[Any]) -> None:
    """Set all of them."""
    for (setting, name), value in zip(_CHANGED, values, strict=True):
        setattr(setting, name, value)
