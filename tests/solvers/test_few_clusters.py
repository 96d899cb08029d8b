"""Likelihoods by the space of few clusters against dense matrices in float64."""

from __future__ import annotations

import math

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import ScaleKernel

from gpytorch_partition import FastClusterKernel, GroupKernel, MondrianKernel, PartitionMixtureKernel
from gpytorch_partition.solvers.factorizations import few_clusters

GENERATOR = torch.Generator().manual_seed(0)
CODES = torch.stack([torch.randint(size, (1_200,), generator=GENERATOR) for size in (3, 4, 5)], -1).double()
Y = CODES @ torch.tensor([1.0, 0.5, 0.2]).double() + 0.3 * torch.randn(1_200, generator=GENERATOR).double()


def groups(weights=(1.0, 4.0, 2.0), **options):
    return GroupKernel((0, 1, 2), nested=True, weights=weights, **options)


def clusters():
    parts = [FastClusterKernel(CODES, 3, height=2, random_state=0), FastClusterKernel(CODES, 4, height=4)]
    return PartitionMixtureKernel(parts, weights=(1.0, 3.0))


def noisy(kernel, noise, x):
    """The covariance plus noise, with leaves for its gradients."""
    scaled = ScaleKernel(kernel).to(x)
    scaled.outputscale = 2.5
    noise = torch.tensor(noise, dtype=x.dtype, requires_grad=True)
    leaves = [noise, *(p for p in scaled.parameters() if p.requires_grad)]
    return scaled(x).evaluate_kernel().add_diagonal(noise), leaves


def dense_log_prob(covariance, mean, y):
    root = torch.linalg.cholesky(covariance.double())
    residual = (y - mean).double()
    form = torch.cholesky_solve(residual.unsqueeze(-1), root).squeeze(-1) @ residual
    return -0.5 * (form + 2 * root.diagonal().log().sum() + len(y) * math.log(2 * math.pi))


@pytest.mark.parametrize("num_rows", [500, 1_200], ids=["below the Cholesky limit", "above"])
@pytest.mark.parametrize("noise", [0.3, 1e-4])
@pytest.mark.parametrize("make", [groups, clusters, lambda: groups((1e-30, 1.0, 1e-30))])
def test_log_likelihoods_and_gradients(make, noise, num_rows):
    """Exact ones, where estimates above the limit would be off by 1e-3."""
    x, y = CODES[:num_rows], Y[:num_rows]
    covariance, leaves = noisy(make(), noise, x)
    mean = torch.tensor(1.5).double().requires_grad_(True)
    found = MultivariateNormal(mean.expand(num_rows), covariance).log_prob(y)
    expected = dense_log_prob(covariance.to_dense(), mean, y)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
    gradients = [torch.autograd.grad(value, [*leaves, mean], retain_graph=True) for value in (found, expected)]
    for ours, theirs in zip(*gradients):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9 * expected.abs().item())


def applies(kernel, x=CODES, noise=None):
    covariance = ScaleKernel(kernel).double()(x).evaluate_kernel()
    noise = gpytorch.likelihoods.GaussianLikelihood().double().noise if noise is None else noise
    total = covariance.add_diagonal(noise)
    return few_clusters(total._linear_op, total._diag_tensor) is not None


def test_where_it_applies():
    assert applies(groups())
    assert not applies(groups(learn_weights=False))  # one pass fits these
    assert not applies(groups(batch_shape=(2,)))
    assert not applies(groups(), noise=torch.full((len(CODES),), 0.1).double())  # of each row its own
    assert not applies(groups(), x=CODES[:100])  # more than half as many groups
    trees = PartitionMixtureKernel([MondrianKernel(CODES, 2, random_state=0)])
    assert applies(trees)
    with gpytorch.settings.max_cholesky_size(50):
        assert not applies(groups())
