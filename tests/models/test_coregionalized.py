"""A process of several targets against float64 Cholesky of the dense Kronecker product, with missing entries too."""

from __future__ import annotations

import linear_operator
import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel, ScaleKernel

from gpytorch_partition import FastClusterKernel, MondrianKernel
from gpytorch_partition.kernels import IterativeKernel
from gpytorch_partition.models import CoregionalizedGP
from gpytorch_partition.settings import variance_tolerance
from gpytorch_partition.training.coregionalization import Coregionalization

GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


X, NEW = normal(90, 2), normal(12, 2)
ROOT = normal(3, 3)
B, D, MU = ROOT @ ROOT.mT, torch.tensor([0.1, 0.4, 0.2]).double(), torch.tensor([1.0, 0.0, -3.0]).double()
C = torch.tensor([[1.0, 0.8, -0.5], [0.8, 1.0, -0.1], [-0.5, -0.1, 1.0]]).double()  # of errors that go together
S = C * D.sqrt() * D.sqrt().unsqueeze(-1)
Y = normal(90, 3) + X[:, :1] + MU
MISSING = Y.masked_fill(torch.rand(90, 3, generator=GENERATOR) < 0.4, torch.nan)
MONDRIAN = MondrianKernel(X, num_trees=30, lifetime=0.5, random_state=0)
KERNELS = {
    "one": MONDRIAN,
    "sum": IterativeKernel(ScaleKernel(MONDRIAN) + FastClusterKernel(X, 20, random_state=0) + LinearKernel()),
    "smooth": IterativeKernel(RBFKernel()),
}


def model_of(y, kernel, correlations=None):
    return CoregionalizedGP(X, y, kernel.double(), Coregionalization(B, D, MU, 0.0, correlations))


def dense_posterior(y, kernel, noise=None):
    """Means (`n x T`) and the covariance (`nT x nT`) at new points."""
    points = torch.cat([X, NEW])
    both = torch.kron(kernel.double()(points).to_dense().detach(), B)
    known = (~y.isnan()).flatten().nonzero()[:, 0]
    new = torch.arange(len(X) * 3, len(points) * 3)
    errors = torch.kron(torch.eye(len(X)).double(), D.diag() if noise is None else noise)
    noisy = both[known][:, known] + errors[known][:, known]
    cross, root = both[new][:, known], torch.linalg.cholesky(noisy)
    mean = cross @ torch.cholesky_solve((y - MU).flatten()[known].unsqueeze(-1), root)
    covariance = both[new][:, new] - cross @ torch.cholesky_solve(cross.mT, root)
    return MU + mean.view(-1, 3), covariance


@pytest.mark.parametrize("limit", [2000, 40], ids=["dense", "iterative"])
@pytest.mark.parametrize("y", [Y, MISSING], ids=["complete", "missing"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("correlations", [None, C], ids=["independent", "together"])
def test_it_is_the_dense_kronecker_process(correlations, kernel, y, limit, monkeypatch):
    if kernel == "smooth" and limit < 2000:
        pytest.skip("a smooth kernel is dense")
    # The limit of the model's own context, which it enters by itself.
    monkeypatch.setattr(linear_operator.settings, "max_cholesky_size", _limited(limit))
    mean, covariance = dense_posterior(y, KERNELS[kernel], None if correlations is None else S)
    model, each = model_of(y, KERNELS[kernel], correlations), covariance.view(12, 3, 12, 3)
    tolerance = 1e-7 if limit == 2000 else 1e-3
    with variance_tolerance(1e-6):
        torch.testing.assert_close(model.means(NEW), mean, atol=tolerance, rtol=tolerance)
        variances = covariance.diagonal().view(12, 3)
        torch.testing.assert_close(model.variances(NEW), variances, atol=tolerance, rtol=10 * tolerance)
        own = each.diagonal(dim1=1, dim2=3)
        torch.testing.assert_close(model.covariances(NEW), own, atol=tolerance, rtol=10 * tolerance)
    torch.manual_seed(0)
    samples = model.samples(NEW, 4000, include_noise=False).flatten(1)
    found = samples.mT.cov()
    scale = covariance.diagonal().sqrt()
    torch.testing.assert_close(found / scale / scale[:, None], covariance / scale / scale[:, None], atol=0.12, rtol=0)
    assert ((samples.mean(0).view(12, 3) - mean).abs() < 5 * scale.view(12, 3) / 4000**0.5).all()


@pytest.mark.parametrize("correlations", [None, C], ids=["independent", "together"])
@pytest.mark.parametrize("y", [Y, MISSING], ids=["complete", "missing"])
def test_noise_of_samples_is_that_of_an_observation(y, correlations):
    model, found = model_of(y, MONDRIAN, correlations), []
    for flag in (True, False):
        torch.manual_seed(0)
        found.append(model.samples(NEW, 4000, include_noise=flag))
    errors = (found[0] - found[1]).flatten(0, 1)
    torch.testing.assert_close(errors.mT.cov(), D.diag() if correlations is None else S, rtol=0.05, atol=0.02)


def test_a_target_without_signal_is_its_mean():
    covariance = B.clone()
    covariance[2], covariance[:, 2] = 0.0, 0.0
    model = CoregionalizedGP(X, Y, MONDRIAN.double(), Coregionalization(covariance, D, MU, 0.0))
    torch.testing.assert_close(model.means(NEW)[:, 2], MU[2].expand(12), atol=1e-5, rtol=0)
    assert (model.variances(NEW)[:, 2] < 1e-6).all()


def _limited(limit):
    """linear_operator's setting, which no context can raise above a limit."""

    class Limited(linear_operator.settings.max_cholesky_size):
        @classmethod
        def value(cls):
            return min(limit, super().value())

    return Limited
