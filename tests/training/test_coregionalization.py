"""B and the noise of several targets against dense Kronecker algebra, complete and with missing entries."""

from __future__ import annotations

import pytest
import torch

from gpytorch_partition import MondrianKernel, settings
from gpytorch_partition.inference.evidence.spectral_likelihood import dense_measure
from gpytorch_partition.training import coregionalization
from gpytorch_partition.training.coregionalization import (
    DenseEvidence,
    SpectralEvidence,
    fit_coregionalization,
)

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(120, 2, generator=GENERATOR, dtype=torch.float64)
KERNEL = MondrianKernel(X, num_trees=40, lifetime=2.0, random_state=0)
K = KERNEL(X).evaluate_kernel().to_dense().detach().double()
LOADINGS = torch.tensor([[1.0, 0.0, 0.0], [0.9, 0.4, 0.0], [-0.7, 0.2, 0.6]], dtype=torch.float64)
B = LOADINGS @ LOADINGS.mT
D = torch.tensor([0.1, 0.3, 0.05], dtype=torch.float64)
S = D.diag() + 0.9 * torch.tensor([[0.0, 0.17, 0.0], [0.17, 0.0, -0.03], [0.0, -0.03, 0.0]], dtype=torch.float64)
Y = (
    torch.linalg.cholesky(K + 1e-9 * torch.eye(120))
    @ torch.randn(120, 3, generator=GENERATOR, dtype=torch.float64)
    @ LOADINGS.mT
    + D.sqrt() * torch.randn(120, 3, generator=GENERATOR, dtype=torch.float64)
    + torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
)
MISSING = Y.masked_fill(torch.rand(120, 3, generator=GENERATOR) < 0.4, torch.nan)


def kronecker_log_likelihood(y, covariance, noise, mean):
    known = ~y.isnan()
    noise = noise if noise.dim() == 2 else noise.diag()
    total = torch.kron(K, covariance) + torch.kron(torch.eye(len(y)).double(), noise)
    index = known.flatten().nonzero()[:, 0]
    residual = (y - mean).flatten()[index]
    return torch.distributions.MultivariateNormal(
        torch.zeros(len(index), dtype=torch.float64), total[index][:, index]
    ).log_prob(residual)


@pytest.mark.parametrize("noise", [D.diag(), S], ids=["independent", "together"])
@pytest.mark.parametrize("y", [Y, MISSING], ids=["complete", "missing"])
def test_likelihood_gradient_and_means_are_those_of_the_dense_kronecker_product(y, noise):
    evidence = SpectralEvidence(dense_measure(K, y)) if y is Y else DenseEvidence(K, y)
    found = evidence(B, noise)
    covariance, noise, mean = (part.clone().requires_grad_() for part in (B, noise, found.mean))
    value = kronecker_log_likelihood(y, covariance, noise, mean)
    by_covariance, by_noise, by_mean = torch.autograd.grad(value, [covariance, noise, mean])
    assert found.value == pytest.approx(value.item(), abs=1e-6)
    torch.testing.assert_close(found.by_covariance, 0.5 * (by_covariance + by_covariance.mT), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(found.by_noise, 0.5 * (by_noise + by_noise.mT), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(by_mean, torch.zeros(3, dtype=torch.float64), atol=1e-6, rtol=0)  # the best ones


@pytest.mark.parametrize("y", [Y, MISSING], ids=["complete", "missing"])
def test_the_fit_is_a_maximum(y):
    found = fit_coregionalization(KERNEL(X).evaluate_kernel(), y)
    best = kronecker_log_likelihood(y, found.covariance, found.noise, found.mean)
    assert found.log_likelihood == pytest.approx(best.item(), abs=1e-5)
    assert best > kronecker_log_likelihood(y, B, D, torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64))
    root = found.covariance.diagonal().sqrt()
    correlations = found.covariance / root / root[:, None]
    assert correlations[0, 1] > 0.6 > -0.4 > correlations[0, 2]
    assert found.noise_correlations is None  # as they were drawn


@pytest.mark.parametrize("share", [0.0, 0.3], ids=["complete", "missing"])
def test_errors_that_go_together_are_found(share):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(300, 2, generator=generator, dtype=torch.float64)
    covariance = MondrianKernel(x, num_trees=40, lifetime=2.0, random_state=0)(x).evaluate_kernel()
    function = torch.stack([x[:, 0], -x[:, 0], x[:, 1]], 1)
    y = function + torch.randn(300, 3, generator=generator, dtype=torch.float64) @ torch.linalg.cholesky(S).mT
    y[torch.rand(300, 3, generator=generator) < share] = torch.nan
    found = fit_coregionalization(covariance, y)
    root = found.noise.sqrt()
    torch.testing.assert_close(found.noise_correlations * root * root[:, None], S, rtol=0.25, atol=0.03)
    torch.testing.assert_close(found.noise_correlations.diagonal(), torch.ones(3, dtype=torch.float64))


def test_lanczos_above_the_dense_limit_agrees():
    import linear_operator

    covariance = KERNEL(X).evaluate_kernel()
    exact = fit_coregionalization(covariance, Y)
    with settings.iterative(), linear_operator.settings.max_cholesky_size(50):
        krylov = fit_coregionalization(covariance, Y)
    torch.testing.assert_close(krylov.covariance, exact.covariance, rtol=0.15, atol=0.1)
    torch.testing.assert_close(krylov.noise, exact.noise, rtol=0.15, atol=0.02)


def test_many_entries_with_holes_have_a_composite_likelihood_of_targets_and_blocks(monkeypatch):
    covariance = KERNEL(X).evaluate_kernel()
    exact = fit_coregionalization(covariance, MISSING)
    monkeypatch.setattr(coregionalization, "_MOST_ENTRIES", 100)
    found = fit_coregionalization(covariance, MISSING)
    assert not torch.equal(found.covariance, exact.covariance)
    roots = [each.covariance.diagonal().sqrt() for each in (found, exact)]
    own, true = (each.covariance / root / root[:, None] for each, root in zip((found, exact), roots))
    torch.testing.assert_close(own, true, atol=0.3, rtol=0)
    torch.testing.assert_close(found.noise, exact.noise, rtol=0.4, atol=0.03)
