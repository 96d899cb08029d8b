"""Outliers among training targets: the default model with Gaussian noise, and with Student-t noise by folds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from scipy.stats import norm
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.likelihoods import student_t_noise
from gpytorch_partition.likelihoods.scale_mixture import log_densities
from gpytorch_partition.presets import Options as ModelOptions

from .measure import timed
from .predictors import Split
from .regression_sets import read_data, split_of
from .report import Options, Row, Table

_FRIEDMAN = {"friedman1": make_friedman1, "friedman2": make_friedman2, "friedman3": make_friedman3}
_SHARES = (0.0, 0.05)  # of the training targets that are moved by three to seven standard deviations
_FEW_TREES = ModelOptions(num_trees=30, num_slope_trees=15, num_boosted_trees=40, num_shallow_boosted_trees=50)
_FEWEST_TREES = replace(_FEW_TREES, num_trees=3, num_slope_trees=3, num_boosted_trees=3, num_shallow_boosted_trees=3)


def outliers(options: Options) -> Iterator[Table]:
    """Errors, densities and coverage at test rows without outliers, with and without some among the training rows."""
    names = [*options.pick(tuple(_FRIEDMAN), tuple(_FRIEDMAN), ("friedman1",)), "diabetes"]
    if options.data is not None:
        names = [*_FRIEDMAN, "autompg", "housing", "yacht", "energy"]
    rows = []
    for name in names[: options.pick(None, None, 1)]:
        for number in range(options.pick(3, 1, 1)):
            split = _split(options, name, number)
            for share in _SHARES:
                rows += [{"set": name, "outliers (%)": 100 * share, **row} for row in _rows(split, share, options)]
    yield Table("outliers", "Outliers among training targets: Gaussian noise, or Student-t noise by folds", rows)


def _split(options: Options, name: str, number: int) -> Split:
    """A set of 300 training rows or less, standardized."""
    most = options.pick(300, 300, 40)
    if name not in _FRIEDMAN:
        return split_of(read_data(options, name), number, most)
    x, y = _FRIEDMAN[name](most + 500, noise=0.0, random_state=number)
    y = (y - y.mean()) / y.std()
    y = y + 0.25 * np.random.RandomState(number).randn(len(y))
    return Split(x[:most], y[:most], x[most:], y[most:])


def _rows(split: Split, share: float, options: Options) -> Iterator[Row]:
    random = np.random.RandomState(0)
    sizes = random.choice([-1, 1], len(split.y)) * random.uniform(3, 7, len(split.y))
    y = split.y + np.where(random.rand(len(split.y)) < share, sizes, 0.0) * split.y.std()
    usual = options.pick(ModelOptions(), _FEW_TREES, _FEWEST_TREES)
    for name, settings in (("Gaussian", replace(usual, least_tail_gain=1e9)), ("by folds", usual)):
        model = PartitionGPRegressor(random_state=0, options=settings)
        _, seconds = timed(partial(model.fit, split.x, y))
        yield {"noise": name, **_scores(model, split), "seconds": seconds}


def _scores(model: PartitionGPRegressor, split: Split) -> Row:
    mean, std, ends = model.predict(split.test_x, return_std=True, quantiles=(0.05, 0.95))
    _, function = model.predict(split.test_x, return_std=True, include_noise=False)
    tails, errors = student_t_noise(model.likelihood_), split.test_y - mean
    densities = norm.logpdf(errors, scale=std)
    if tails is not None:
        variances = torch.from_numpy(std**2 - function**2)
        parts = torch.from_numpy(errors), torch.from_numpy(function**2), tails.squared_scales(variances)
        densities = log_densities(*parts, float(tails.df)).numpy()
    inside = (split.test_y > ends[:, 0]) & (split.test_y < ends[:, 1])
    return {
        "taken": "Gaussian" if tails is None else f"Student-t, {float(tails.df):g}",
        "RMSE": float(np.sqrt(np.mean(errors**2))),
        "NLPD": -float(densities.mean()),
        "coverage of 90 % (%)": 100 * float(inside.mean()),
    }
