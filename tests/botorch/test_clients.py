"""BoTorch's models with this package's kernels: exact, or refused with a remedy, never silently wrong."""

from __future__ import annotations

from itertools import cycle, product

import pytest
import torch
from botorch.models import SingleTaskGP

from gpytorch_partition import MondrianKernel
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


def test_batches_of_two_outcomes_are_the_models_of_each():
    generator = torch.Generator().manual_seed(0)
    x, new = (torch.rand(2, n, 3, generator=generator, dtype=torch.float64) for n in (30, 8))
    y = torch.stack([x.sum(-1), x[..., 0].sin()], -1)

    def posterior(rows, targets, points):
        kernel = MondrianKernel(x.flatten(0, 1), num_trees=10, random_state=0)
        model = SingleTaskGP(rows, targets, covar_module=kernel, outcome_transform=None)
        model.likelihood.noise = 0.1
        return model.posterior(points)

    found = posterior(x, y, new)
    for b, k in product(range(2), range(2)):
        expected = posterior(x[b], y[b, :, k : k + 1], new[b])
        assert torch.allclose(found.mean[b, :, k : k + 1], expected.mean, rtol=1e-10)
        assert torch.allclose(found.variance[b, :, k : k + 1], expected.variance, rtol=1e-10)
