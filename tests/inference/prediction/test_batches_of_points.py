"""Predictions for batches of sets of points, above the Cholesky limit, indexed and permuted as BoTorch does."""

from __future__ import annotations

import gpytorch
import linear_operator
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_partition import FastClusterKernel

_generator = torch.Generator().manual_seed(0)
X = torch.rand(80, 3, generator=_generator, dtype=torch.float64)
Y = torch.sin(6 * X[:, 0]) + 0.1 * torch.randn(80, generator=_generator, dtype=torch.float64)
POINTS = torch.rand(5, 1, 4, 3, generator=_generator, dtype=torch.float64)
CHANGES = {
    "one element": lambda covariance: covariance[2],
    "some rows": lambda covariance: covariance[..., 1:3, :],
    "an element's row": lambda covariance: covariance[(1, *(0,) * (covariance.dim() - 3), slice(0, 1))],
    "unsqueezed": lambda covariance: covariance.unsqueeze(0),
    "permuted": lambda covariance: covariance.unsqueeze(-3).permute(-3, *range(covariance.dim() - 2), -2, -1),
    "expanded": lambda covariance: covariance.expand(2, *covariance.shape),
}


class Model(gpytorch.models.ExactGP):
    def __init__(self, kernel, batch_shape):
        likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=batch_shape)
        super().__init__(X.expand(*batch_shape, *X.shape), Y.expand(*batch_shape, *Y.shape), likelihood)
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch_shape)
        self.covar_module = ScaleKernel(kernel, batch_shape=batch_shape)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def covariance(kernel, batch_shape, max_cholesky_size):
    model = Model(kernel, batch_shape).double().eval()
    points = POINTS.expand(5, 2, 4, 3) if batch_shape else POINTS.squeeze(1)
    with linear_operator.settings.max_cholesky_size(max_cholesky_size), torch.no_grad():
        lazy = model(points).lazy_covariance_matrix
        return {name: change(lazy).to_dense() for name, change in CHANGES.items()} | {"diagonal": lazy[1].diagonal()}


@pytest.mark.parametrize("batch_shape", [torch.Size(), torch.Size([2])])
@pytest.mark.parametrize("is_sum", [False, True])
def test_batches_are_those_of_dense_algebra(is_sum, batch_shape):
    kernel = FastClusterKernel(X, 15, random_state=0)
    kernel = kernel + RBFKernel() if is_sum else kernel
    expected = covariance(kernel, batch_shape, 800)
    for name, value in covariance(kernel, batch_shape, 10).items():
        torch.testing.assert_close(value, expected[name], rtol=0.01, atol=1e-3, msg=lambda text, name=name: name + text)
