"""Learned lengthscales, against GPyTorch's own likelihood."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel

from gpytorch_partition.inference.evidence import lengthscales as lengthscales
from gpytorch_partition.inference.evidence.lengthscales import learn_lengthscales

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(150, 3, generator=GENERATOR, dtype=torch.float64)
Y = (2 * X[:, 0]).sin() + 0.5 * X[:, 1] + 0.1 * torch.randn(150, generator=GENERATOR, dtype=torch.float64)
FACTORS = 0.5 + torch.rand(150, generator=torch.Generator().manual_seed(1), dtype=torch.float64)  # of the noise


def test_likelihood_and_gradient_are_gpytorchs():
    values = torch.tensor([0.5, 1.0, 2.0, 1.3, 0.2], dtype=torch.float64)
    covariance, derivatives = lengthscales._covariance(X, values, FACTORS)
    loss, sensitivity = lengthscales._negative_log_likelihood(covariance, Y)
    kernel = ScaleKernel(MaternKernel(1.5, ard_num_dims=3)).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = values[:3], 1.3
    noisy = kernel(X).to_dense() + 0.2 * torch.diag(FACTORS)
    inverse = torch.linalg.inv(noisy)
    mean = inverse.sum(0) @ Y / inverse.sum()
    expected = torch.distributions.MultivariateNormal(mean.expand(150), noisy).log_prob(Y)
    constant = 0.5 * torch.log(torch.tensor(2 * torch.pi))
    assert -loss - constant == pytest.approx(float(expected.detach()) / 150)
    gradient = derivatives(sensitivity) / values
    for number, step in enumerate(1e-6 * torch.eye(5, dtype=torch.float64)):
        above, below = (
            lengthscales._negative_log_likelihood(lengthscales._covariance(X, values + sign * step, FACTORS)[0], Y)[0]
            for sign in (1, -1)
        )
        assert float(gradient[number]) == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-8)


def test_lengthscales_of_a_sample_are_found():
    kernel = MaternKernel(1.5, ard_num_dims=2).double()
    x = torch.randn(500, 2, generator=GENERATOR, dtype=torch.float64)
    kernel.lengthscale = torch.tensor([0.5, 3.0])
    root = torch.linalg.cholesky(kernel(x).to_dense().detach() + 1e-2 * torch.eye(500))
    found = learn_lengthscales(x, root @ torch.randn(500, generator=GENERATOR, dtype=torch.float64))
    torch.testing.assert_close(found.log(), torch.tensor([0.5, 3.0]).double().log(), rtol=0, atol=0.35)


def test_units_change_nothing():
    units = torch.tensor([1e-3, 1.0, 1e4])
    found = learn_lengthscales(X, Y)
    torch.testing.assert_close(learn_lengthscales(units * X + 5, 1e5 * Y - 3e5), units * found, rtol=1e-2, atol=0)


def test_a_prior_keeps_lengthscales_near_its_median():
    x = torch.randn(60, 30, generator=GENERATOR, dtype=torch.float64)
    y = x[:, 0].sin() + 0.5 * torch.randn(60, generator=GENERATOR, dtype=torch.float64)
    alone, with_prior = learn_lengthscales(x, y), learn_lengthscales(x, y, has_prior=True)
    assert with_prior.log().std() < 0.6 * alone.log().std()
    expected = 30**0.5 * math.exp(2**0.5)  # of a column that tells nothing, the prior's median
    x[:, 1] = 7.0
    assert learn_lengthscales(x, y, has_prior=True)[1] == pytest.approx(expected, rel=0.05)


def test_constant_columns_and_targets_are_harmless():
    x = X.clone()
    x[:, 1] = 7.0
    assert torch.isfinite(learn_lengthscales(x, Y)).all()
    assert learn_lengthscales(x, Y)[1] == pytest.approx(3**0.5)
    assert torch.isfinite(learn_lengthscales(X, torch.ones(150))).all()


def test_noiseless_and_wild_targets_have_an_answer():
    """Where the search meets covariances that are almost singular."""
    for y in (X[:, 0].sin(), torch.randn(150, generator=GENERATOR), X[:, 0].exp() ** 6):
        found = learn_lengthscales(torch.cat([X, X[:30]]), torch.cat([y, y[:30]]))
        assert torch.isfinite(found).all()
        assert (found > 0).all()
