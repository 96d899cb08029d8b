"""Small fitted regressors that the tests of explanations share."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
from gpytorch.kernels import LinearKernel, RBFKernel

from gpytorch_partition import FastClusterKernel, LocalLinearKernel, MondrianKernel, RandomForestKernel
from gpytorch_partition.estimators import PartitionGPRegressor
from tests.few_trees import few_trees

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(120, 3) * [1.0, 20.0, 0.01] + [5.0, 0.0, 1.0]
Y = 40 * np.sin(X[:, 0]) + 2 * X[:, 1] + (2 + 5 * (X[:, 0] > 5)) * RANDOM.randn(120) + 300
NEW = X[:15] + 0.1 * RANDOM.randn(15, 3) * X.std(0)
FEW_TREES = few_trees(20, 10, num_folds=3, num_noise_trees=20)


def total(x, y):
    """A sum of all kinds of parts."""
    slopes = LocalLinearKernel(RandomForestKernel(x, y, 10, random_state=1), 3)
    return RandomForestKernel(x, y, 10, "leaf", random_state=0) + slopes + LinearKernel() + RBFKernel(ard_num_dims=3)


def forest(heights):
    return lambda x, y: RandomForestKernel(x, y, 20, heights, random_state=0)


def mondrian_and_clusters(x, y):
    return MondrianKernel(x, 20, random_state=0) + FastClusterKernel(x, 20, random_state=0)


@cache
def fitted(kernel="forest"):
    """A fitted regressor; `averaged` is the default model with a share of boosted trees."""
    options = {"options": FEW_TREES} if kernel in ("auto", "averaged") else {}
    if kernel == "averaged":
        kernel, options = "auto", {"options": replace(FEW_TREES, least_boosting_gain=-math.inf)}
    return PartitionGPRegressor(kernel, num_partitions=20, random_state=0, **options).fit(X, Y)


def dense(model, rows, columns=None):
    """The prior covariance of rows, in squared units of the targets."""
    kernel, points = model.model_.covar_module, model._fitted.points(np.asarray(rows))
    others = points if columns is None else model._fitted.points(np.asarray(columns))
    return kernel(points, others).to_dense().detach().double().numpy() * model._fitted.scale**2


def posterior(model, rows):
    """Mean and covariance of the function at rows, by dense float64 algebra."""
    noise = model.likelihood_(model.model_.forward(model.model_.train_inputs[0]), model.model_.train_inputs[0])
    prior = dense(model, X)
    noisy = noise.covariance_matrix.detach().double().numpy() * model._fitted.scale**2
    cross, constant = dense(model, rows, X), model.model_.mean_module.constant.item() * model._fitted.scale
    middle = float(model._fitted.unit.mean)
    mean = middle + constant + cross @ np.linalg.solve(noisy, Y - middle - constant)
    points, trees = model._fitted.points(np.asarray(rows)), getattr(model.model_, "boosted", None)
    if trees is not None:
        share = trees.share_at(points).numpy()
        mean = (1 - share) * mean + share * (middle + trees(points).numpy() * model._fitted.scale)
    if getattr(model.model_, "_offset", 0.0):
        mean = mean + model.model_._offsets(points).detach().numpy() * model._fitted.scale
    assert np.all(np.diag(noisy) > np.diag(prior))
    return mean, dense(model, rows) - cross @ np.linalg.solve(noisy, cross.T)
