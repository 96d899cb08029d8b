"""The ready-made model against dense formulas."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood

from gpytorch_partition import FastClusterKernel, IterativeKernel
from gpytorch_partition.models import PartitionGP

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 3, generator=GENERATOR, dtype=torch.float64)
Y = X.sum(-1).sin()
NEW = torch.randn(7, 3, generator=GENERATOR, dtype=torch.float64)


def fast_cluster(x=X):
    return FastClusterKernel(x, 50, random_state=0)


def test_a_partition_kernel_is_scaled_but_not_wrapped():
    kernel = fast_cluster()
    assert PartitionGP(X, Y, GaussianLikelihood(), kernel).covar_module.base_kernel is kernel


def test_other_kernels_get_this_packages_solver():
    base = PartitionGP(X, Y, GaussianLikelihood(), RBFKernel()).covar_module.base_kernel
    assert isinstance(base, IterativeKernel)
    assert PartitionGP(X, Y, GaussianLikelihood(), base).covar_module.base_kernel is base


@pytest.mark.parametrize("new_kernel", [fast_cluster, lambda: RBFKernel() + fast_cluster()])
def test_likelihood_and_predictions_are_those_of_dense_algebra(new_kernel):
    kernel, likelihood = new_kernel(), GaussianLikelihood()
    model = PartitionGP(X, Y, likelihood, kernel)
    likelihood.noise, model.covar_module.outputscale, model.mean_module.constant = 0.3, 1.7, 0.2
    with torch.no_grad():
        gram = 1.7 * kernel.double()(torch.cat([X, NEW])).to_dense()
        noisy, cross, prior = gram[:60, :60] + 0.3 * torch.eye(60, dtype=X.dtype), gram[60:, :60], gram[60:, 60:]
        exact = torch.distributions.MultivariateNormal(torch.full_like(Y, 0.2), noisy).log_prob(Y)
        found = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)(model(X), Y) * 60
        torch.testing.assert_close(found, exact)
        posterior = model.eval()(NEW)
        torch.testing.assert_close(posterior.mean, 0.2 + cross @ torch.linalg.solve(noisy, Y - 0.2))
        covariance = prior - cross @ torch.linalg.solve(noisy, cross.mT)
        torch.testing.assert_close(posterior.covariance_matrix, covariance)
