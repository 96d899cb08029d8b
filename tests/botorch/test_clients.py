"""
BoTorch's models with this package's kernels: exact, or refused with a remedy, never silently wrong.

BoTorch changes settings of GPyTorch and linear_operator where it is imported. Here they are put back, and hold inside
these tests only.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import cycle

import gpytorch.settings
import linear_operator.settings
import pytest

from tests.clients.cases import BOTORCH_CLIENTS
from tests.clients.client import MODES
from tests.clients.measure import deviations
from tests.clients.problems import KERNELS

_FLAGS = ("_fast_covar_root_decomposition", "_fast_log_prob", "_fast_solves")
_CHANGED = [(getattr(linear_operator.settings, flag), "_default") for flag in _FLAGS]
_CHANGED += [(linear_operator.settings.cholesky_max_tries, "_global_value")]
_CHANGED += [(linear_operator.settings.max_cholesky_size, "_global_value")]
_CHANGED += [(gpytorch.settings.max_eager_kernel_size, "_global_value")]


@pytest.fixture(scope="module")
def clients():
    saved = [(setting, name, getattr(setting, name)) for setting, name in _CHANGED]
    try:
        pytest.importorskip("botorch")
        from tests.botorch.clients import BOTORCH
    finally:
        for setting, name, value in saved:
            setattr(setting, name, value)
    return BOTORCH


@pytest.fixture(autouse=True)
def _settings_of_botorch():
    with ExitStack() as stack:
        stack.enter_context(linear_operator.settings.fast_computations(False, False, False))
        stack.enter_context(linear_operator.settings.cholesky_max_tries(6))
        stack.enter_context(linear_operator.settings.max_cholesky_size(4096))
        stack.enter_context(gpytorch.settings.max_eager_kernel_size(4096))
        yield


def test_the_names_are_those_of_the_page(clients):
    assert set(clients) == set(BOTORCH_CLIENTS)


@pytest.mark.parametrize("client", BOTORCH_CLIENTS)
def test_300_rows(clients, client):
    assert not deviations(clients[client], "forest", 300, "default")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("client", "kernel"), list(zip(BOTORCH_CLIENTS, cycle(KERNELS))))
def test_1500_rows(clients, client, kernel, mode):
    assert not deviations(clients[client], kernel, 1500, mode)
