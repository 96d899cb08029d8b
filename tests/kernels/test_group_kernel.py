"""Groups against one-hot matrices in float64, and models of them at GPyTorch's own settings."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import ScaleKernel

from gpytorch_partition import GroupKernel
from gpytorch_partition.operators import PartitionLinearOperator
from tests.kernels.zoo import Model


def places(num_rows, seed=0):
    """A column of numbers, and region, town and shop, numbered anew in every region and town."""
    random = np.random.RandomState(seed)
    codes = np.stack([random.randint(size, size=num_rows) for size in (4, 5, 6)], 1)
    return torch.from_numpy(np.concatenate([random.randn(num_rows, 1), codes], 1))


def same_groups(x1, x2, columns, nested):
    """For every level which pairs of rows agree, by comparison of values."""
    equal = [x1[:, None, column] == x2[None, :, column] for column in columns]
    levels = [torch.stack(equal[: i + 1]).all(0) if nested else equal[i] for i in range(len(columns))]
    return torch.stack(levels).double()


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("columns", "weights"), [((1, 2, 3), (5.0, 2.0, 1.0)), ((3, 1), (1.0, 1.0)), ((2,), (3.0,))])
def test_the_share_of_common_groups(nested, columns, weights):
    kernel = GroupKernel(columns, nested=nested, weights=weights).double()
    shares = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    new = places(40, seed=1)
    new[:5, 1:] += 7  # groups that no other row is in
    for x1, x2 in ((places(60), places(60)), (new, places(60)), (new, new)):
        operator = kernel(x1, x2).evaluate_kernel()
        assert isinstance(operator, PartitionLinearOperator)
        expected = torch.einsum("l,lij->ij", shares, same_groups(x1, x2, columns, nested))
        torch.testing.assert_close(operator.to_dense().detach(), expected)
        torch.testing.assert_close((operator @ torch.ones(len(x2)).double()).detach(), expected.sum(-1))


def log_likelihood(x, y, weights, outputscale, noise, mean):
    """The dense marginal likelihood of nested levels, per row."""
    covariance = torch.einsum("l,lij->ij", weights, same_groups(x, x, (1, 2, 3), True))
    covariance = outputscale * covariance + noise * torch.eye(len(x))
    prior = torch.distributions.MultivariateNormal(torch.full((len(x),), mean).double(), covariance)
    return prior.log_prob(y) / len(x)


def observed(num_rows, seed=0):
    """Targets with effects of towns and of shops, none of regions."""
    x, random = places(num_rows, seed), np.random.RandomState(seed)
    effects = random.randn(4, 5) * 1.5, random.randn(4, 5, 6) * 0.5
    region, town, shop = x[:, 1:].long().numpy().T
    y = effects[0][region, town] + effects[1][region, town, shop] + 0.3 * random.randn(num_rows)
    return x, torch.from_numpy(y)


def test_a_model_of_gpytorch_at_its_own_settings():
    """Likelihood, its gradient by the weights of levels, means and variances."""
    x, y = observed(300)
    new = places(50, seed=3)
    kernel = ScaleKernel(GroupKernel((1, 2, 3), nested=True, weights=(1.0, 4.0, 2.0)))
    model = Model(x, y, kernel).double()
    model.likelihood.noise = 0.2
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    found = mll(model.train()(x), y)
    found.backward()
    logits = torch.tensor([1.0, 4.0, 2.0]).double().log().requires_grad_(True)
    noise, outputscale = model.likelihood.noise.item(), kernel.outputscale.item()
    expected = log_likelihood(x, y, logits.softmax(0), outputscale, noise, model.mean_module.constant.item())
    expected.backward()
    tolerance = {"rtol": 1e-6, "atol": 1e-8}
    torch.testing.assert_close(found.detach(), expected.detach(), **tolerance)
    torch.testing.assert_close(kernel.base_kernel.raw_mixture_weights.grad.double(), logits.grad, **tolerance)

    with torch.no_grad():
        latent = model.eval()(new)
        dense = outputscale * torch.einsum("l,lij->ij", logits.softmax(0), same_groups(x, x, (1, 2, 3), True))
        cross = outputscale * torch.einsum("l,lij->ij", logits.softmax(0), same_groups(new, x, (1, 2, 3), True))
        root = torch.linalg.cholesky(dense + noise * torch.eye(300))
        mean = model.mean_module.constant
        torch.testing.assert_close(
            latent.mean, mean + cross @ torch.cholesky_solve((y - mean)[:, None], root)[:, 0], rtol=1e-3, atol=1e-3
        )
        variances = outputscale - (cross.mT * torch.cholesky_solve(cross.mT, root)).sum(0)
        torch.testing.assert_close(latent.variance, variances, rtol=0.011, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: GroupKernel((1, 1)), "distinct numbers of columns"),
        (lambda x: GroupKernel(None), "distinct numbers of columns"),
        (lambda x: GroupKernel((1,))(x.float() + 2.0**24), "below 16,777,216.*not told apart in torch.float32"),
        (lambda x: GroupKernel(()), "distinct numbers of columns"),
        (lambda x: GroupKernel((1, 2), weights=(1.0,)), "expected 2 positive weights"),
        (lambda x: GroupKernel((0, 1))(x), "expected whole numbers"),
        (lambda x: GroupKernel((1, 7))(x), "at least 8 columns, got 4"),
        (lambda x: GroupKernel((1,))(torch.where(x == 1, torch.nan, x)), "NaN or infinity"),
    ],
)
def test_clear_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make(places(10)).evaluate_kernel()
