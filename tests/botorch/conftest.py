"""BoTorch changes settings of GPyTorch when it is imported: they hold in these tests, and nowhere else."""

from __future__ import annotations

from importlib.util import find_spec

import gpytorch
import linear_operator
import pytest

SETTINGS = [
    (linear_operator.settings._fast_covar_root_decomposition, "_default"),
    (linear_operator.settings._fast_log_prob, "_default"),
    (linear_operator.settings._fast_solves, "_default"),
    (linear_operator.settings.cholesky_max_tries, "_global_value"),
    (linear_operator.settings.max_cholesky_size, "_global_value"),
    (gpytorch.settings.max_eager_kernel_size, "_global_value"),
]

collect_ignore_glob = [] if find_spec("botorch") else ["*"]


def _values():
    return [getattr(setting, name) for setting, name in SETTINGS]


def _set(values):
    for (setting, name), value in zip(SETTINGS, values, strict=True):
        setattr(setting, name, value)


if find_spec("botorch"):
    import botorch  # noqa: F401
BOTORCHS = _values()  # `tests/conftest.py` sets GPyTorch's again once all tests are collected


@pytest.fixture(autouse=True)
def _botorchs_settings():
    before = _values()
    _set(BOTORCHS)
    yield
    _set(before)
