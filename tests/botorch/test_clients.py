"""BoTorch's models with this package's kernels: exact, or refused with a remedy, never silently wrong."""

from __future__ import annotations

from itertools import cycle

import pytest

from tests.botorch.clients import BOTORCH
from tests.clients.cases import BOTORCH_CLIENTS
from tests.clients.client import MODES
from tests.clients.measure import deviations
from tests.clients.problems import KERNELS


def test_the_names_are_those_of_the_page():
    assert tuple(BOTORCH) == BOTORCH_CLIENTS


@pytest.mark.parametrize("client", BOTORCH)
def test_300_rows(client):
    assert not deviations(BOTORCH[client], "forest", 300, "default")


@pytest.mark.slow
@pytest.mark.parametrize(("client", "kernel", "mode"), list(zip(BOTORCH, cycle(KERNELS), cycle(MODES))))
def test_1000_rows(client, kernel, mode):
    assert not deviations(BOTORCH[client], kernel, 1000, mode)
