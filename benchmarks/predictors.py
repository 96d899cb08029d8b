"""Methods that predict with uncertainty, each as users have it: of training rows and points, means and deviations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel
from linear_operator.settings import max_cholesky_size
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import KFold, cross_val_predict
from torch import Tensor

from gpytorch_partition import FastClusterKernel, RandomForestKernel
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.presets import Options
from gpytorch_partition.training.marginal_likelihood import maximize_marginal_likelihood

from .competitors import SVGP
from .problems import ExactModel, ard_kernel


class Split(NamedTuple):
    """Training and test rows, standardized by the training rows; float64."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


class Moments(NamedTuple):
    """Predictive means and standard deviations, noise included."""

    mean: np.ndarray
    std: np.ndarray


Predict = Callable[[Split], Moments]

ROUGH = "rough field"
INGREDIENTS = ("forest", "random_trees", "boosted", "shallow_boosted", "slopes", "smooth", "linear", ROUGH)


def random_forest(split: Split, *, num_trees: int) -> Moments:
    """With the standard deviation of the out-of-bag residuals."""
    forest = RandomForestRegressor(num_trees, oob_score=True, random_state=0).fit(split.x, split.y)
    return _with_one_std(forest.predict(split.test_x), split.y - forest.oob_prediction_)


def histogram_boosting(split: Split) -> Moments:
    """With the standard deviation of the residuals of a cross-validation."""
    boosting = HistGradientBoostingRegressor(random_state=0)
    folds = KFold(5, shuffle=True, random_state=0)
    residuals = split.y - cross_val_predict(boosting, split.x, split.y, cv=folds)
    return _with_one_std(boosting.fit(split.x, split.y).predict(split.test_x), residuals)


def _with_one_std(mean: np.ndarray, residuals: np.ndarray) -> Moments:
    return Moments(mean, np.full_like(mean, np.sqrt(np.mean(residuals**2))))


def catboost(split: Split, *, iterations: int) -> Moments:
    """Boosting of mean and log variance, with CatBoost's defaults."""
    from catboost import CatBoostRegressor

    options = {"random_seed": 0, "verbose": False, "allow_writing_files": False}
    model = CatBoostRegressor(iterations=iterations, loss_function="RMSEWithUncertainty", **options)
    mean, variance = model.fit(split.x, split.y).predict(split.test_x).T
    return Moments(mean, np.sqrt(variance))


def exact_gp(split: Split, *, most: int, steps: int) -> Moments:
    """A Matern-3/2-ARD kernel, trained by L-BFGS with Cholesky factors on so many random rows at most."""
    rows = np.random.default_rng(0).permutation(len(split.y))[:most]
    model = ExactModel(torch.from_numpy(split.x[rows]), torch.from_numpy(split.y[rows]), _matern(split.x.shape[1]))
    with max_cholesky_size(most + 1):
        maximize_marginal_likelihood(model, model.likelihood, max_iterations=steps)
        model.eval()
        with torch.no_grad():
            blocks = [model.likelihood(model(block)) for block in torch.from_numpy(split.test_x).split(1_000)]
    means, deviations = zip(*((block.mean, block.stddev) for block in blocks))
    return Moments(torch.cat(means).numpy(), torch.cat(deviations).numpy())


def svgp(split: Split, *, num_inducing: int, steps: int) -> Moments:
    """A variational GP with a Matern-3/2-ARD kernel and inducing points that are learned."""
    x, y, points = (torch.from_numpy(values).float() for values in (split.x, split.y, split.test_x))
    method = SVGP(min(num_inducing, len(x)), steps, batch=512, kernel=_matern(x.shape[1]), learning_rate=0.02)
    method.train(x, y)
    mean, std = method.predict(points)
    return Moments(mean.double().numpy(), std.double().numpy())


def _matern(num_columns: int) -> Kernel:
    return ard_kernel(partial(MaternKernel, 1.5), num_columns)


def paper_forest(x: Tensor, y: Tensor, *, num_trees: int, random_state: int = 0) -> Kernel:
    """Davies & Ghahramani (2014), section 4.3.1: a random forest whose trees are cut at random heights."""
    forest = RandomForestRegressor(num_trees, random_state=random_state).fit(x.numpy(), y.numpy())
    return RandomForestKernel.from_forest(forest, heights="sampled", random_state=random_state)


def paper_clusters(x: Tensor, y: Tensor, *, num_partitions: int) -> Kernel:
    """Davies & Ghahramani (2014), section 4.3.2: random centers on random columns."""
    return FastClusterKernel(x, num_partitions, random_state=0)


def partition_gp(split: Split, *, kernel: Any, without: str | None = None) -> Moments:
    """The estimator, or the one from which an ingredient of the default was taken."""
    model = PartitionGPRegressor(kernel, random_state=0, options=_options(without)).fit(split.x, split.y)
    return Moments(*model.predict(split.test_x, return_std=True))


def _options(without: str | None) -> Options:
    """Leave out a part of the default kernel, its rough field, or noise that varies."""
    if without is None:
        return Options()
    if without == ROUGH:
        return Options(least_rough_gain=np.inf)
    return Options(omitted_parts=(without,)) if without in INGREDIENTS else Options(least_noise_gain=np.inf)
