"""The independent fit against ridge regressions of each tree, and against the kernel's joint fit."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from sklearn.ensemble import AdaBoostRegressor
from sklearn.linear_model import Ridge
from sklearn.preprocessing import OneHotEncoder

from gpytorch_partition import (
    FastClusterKernel,
    MondrianKernel,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomBinningKernel,
    RandomForestKernel,
)
from gpytorch_partition.lifetimes.mondrian_forest import MondrianForest, joint_weights

N, TREES = 150, 12
SCALE, NOISE = 1.7, 0.3
GENERATOR = torch.Generator().manual_seed(11)
X = torch.randn(N, 3, generator=GENERATOR).double()
Y = X[:, 0].sin() + X[:, 1].abs() + 0.3 * torch.randn(N, generator=GENERATOR)
Y = Y - Y.mean()
WEIGHTED_TREES = AdaBoostRegressor(n_estimators=3, random_state=0).fit(X.numpy(), Y.numpy())
# More points than training rows, the last of them far away in cells of their own.
TEST = torch.cat([torch.randn(2 * N, 3, generator=GENERATOR).double(), 50 + torch.arange(9).double().view(3, 3)])


def _callable(x):
    return torch.stack([(3 * x[..., r % 3]).floor() * 10 + r for r in range(TREES)], -1).long()


KERNELS = {
    "Mondrian": lambda m: MondrianKernel(X, m, lifetime=0.7, random_state=0),
    "random binning": lambda m: RandomBinningKernel(X, m, random_state=0),
    "fast cluster": lambda m: FastClusterKernel(X, m, height=4, random_state=0),
    "leaves": lambda m: RandomForestKernel(X, Y, m, "leaf", random_state=0),
    "sampled heights": lambda m: RandomForestKernel(X, Y, m, "sampled", random_state=0),
    "callable": lambda m: PartitionKernel(lambda x: _callable(x)[..., :m]),
    "active dims": lambda m: MondrianKernel(X, m, lifetime=0.7, random_state=0, active_dims=(2, 0)),
}


@pytest.fixture(params=KERNELS)
def make(request):
    return lambda trees: KERNELS[request.param](trees).double()


def _forest(kernel):
    return MondrianForest(kernel, X, Y, outputscale=SCALE, noise=NOISE)


def _codes(kernel):
    active = kernel.columns.select(X)
    return kernel.partition.incidences(active, active)[0].codes.long()


def _ridges(kernel):
    """For each partition scikit-learn's ridge regression on its clusters, and their encoder."""
    for labels in kernel.cluster_ids(X).unbind(-1):
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(labels[:, None])
        ridge = Ridge(alpha=NOISE / SCALE, fit_intercept=False).fit(encoder.transform(labels[:, None]), Y)
        yield ridge, encoder


def test_predicts_the_average_of_ridge_regressions(make):
    kernel = make(TREES)
    pairs = zip(_ridges(kernel), kernel.cluster_ids(TEST).unbind(-1), strict=True)
    predictions = [ridge.predict(encoder.transform(labels[:, None])) for (ridge, encoder), labels in pairs]
    torch.testing.assert_close(_forest(kernel).predict(TEST), torch.from_numpy(np.mean(predictions, 0)))


def test_the_variance_is_that_of_the_mixture_of_processes(make):
    kernel = make(TREES)
    labels, new = kernel.cluster_ids(X), kernel.cluster_ids(TEST)
    means, variances = [], []
    for own, other in zip(labels.unbind(-1), new.unbind(-1)):
        noisy = SCALE * (own[:, None] == own).double() + NOISE * torch.eye(N, dtype=torch.float64)
        cross = SCALE * (other[:, None] == own).double()
        means.append(cross @ torch.linalg.solve(noisy, Y))
        variances.append(SCALE - (cross * torch.linalg.solve(noisy, cross.mT).mT).sum(-1))
    exact = torch.stack(variances).mean(0) + torch.stack(means).var(0, correction=0)
    torch.testing.assert_close(_forest(kernel).variance(TEST), exact)


def test_joint_weights_are_those_of_the_kernel(make):
    """The objective's minimum in the paper's own features, and the kernel's predictions."""
    kernel = make(TREES)
    weights = joint_weights(kernel, X, Y, outputscale=SCALE, noise=NOISE)
    features = torch.zeros(N, len(weights)).double().scatter_(1, _codes(kernel), TREES**-0.5)
    ridge = Ridge(alpha=NOISE / SCALE, fit_intercept=False).fit(features, Y)
    torch.testing.assert_close(weights, TREES**0.5 * torch.from_numpy(ridge.coef_))
    noisy = SCALE * kernel(X).to_dense() + NOISE * torch.eye(N, dtype=torch.float64)
    fitted = SCALE * kernel(X).to_dense() @ torch.linalg.solve(noisy, Y)
    torch.testing.assert_close(weights[_codes(kernel)].mean(-1), fitted)


def test_joint_weights_of_many_rows_are_solved_for():
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(1_500, 2, generator=generator).double()
    y = x.sum(-1) - 1 + 0.1 * torch.randn(1_500, generator=generator)
    kernel = MondrianKernel(x, 20, lifetime=3.0, random_state=0).double()
    with gpytorch.settings.eval_cg_tolerance(1e-8):
        weights = joint_weights(kernel, x, y, outputscale=1.0, noise=0.1)
    dense = kernel(x).to_dense() + 0.1 * torch.eye(1_500, dtype=torch.float64)
    exact = kernel.partition.incidences(x, x)[0].cluster_sums(torch.linalg.solve(dense, y).unsqueeze(-1)).squeeze(-1)
    assert 1e-12 * exact.norm() < (weights - exact).norm() < 1e-6 * exact.norm()  # not the dense solve


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": Y[:3]}, "as many targets"),
        ({"x": X[:0], "y": Y[:0]}, "rows"),
        ({"x": X[0], "y": Y[:3]}, "N x D"),
        ({"y": Y * torch.nan}, "finite targets"),
        ({"noise": 0.0}, "noise"),
        ({"outputscale": -1.0}, "outputscale"),
        ({"outputscale": float("inf")}, "outputscale"),
        ({"x": X[:, :2]}, "3 columns"),
        ({"kernel": RandomForestKernel(X, Y, 2, random_state=0)}, "flat partitions"),
        ({"kernel": RandomForestKernel.from_forest(WEIGHTED_TREES, "leaf")}, "flat partitions"),
        ({"kernel": PartitionMixtureKernel([MondrianKernel(X, 2), FastClusterKernel(X, 2)])}, "flat partitions"),
    ],
)
@pytest.mark.parametrize("fit", [MondrianForest, joint_weights])
def test_refuses_what_it_cannot_use(fit, changes, message):
    kernel = MondrianKernel(X, 2, random_state=0)
    with pytest.raises(ValueError, match=message):
        fit(**{"kernel": kernel, "x": X, "y": Y, "outputscale": 1.0, "noise": 1.0, **changes})


def test_another_lifetime_is_an_error():
    x = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = MondrianKernel(x, 5, lifetime=4.0, random_state=0)
    forest = MondrianForest(kernel, x, x[:, 0], outputscale=1.0, noise=0.1)
    kernel.lifetime = 1.0
    with pytest.raises(RuntimeError, match="lifetime"):
        forest.predict(x)


def test_variances_of_targets_far_from_zero_keep_their_digits():
    x = torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = MondrianKernel(x, 5, lifetime=4.0, random_state=0)
    options = {"outputscale": 1e12, "noise": 1e-3}  # clusters shrink next to nothing
    near = MondrianForest(kernel, x, x[:, 0], **options).variance(x)
    far = MondrianForest(kernel, x, x[:, 0] + 1e6, **options).variance(x)
    torch.testing.assert_close(far, near, rtol=1e-3, atol=1e-6)
