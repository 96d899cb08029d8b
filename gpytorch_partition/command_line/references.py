"""The reference models of `compare`: a random forest, and an RBF-ARD Gaussian process."""

from __future__ import annotations

import math
import warnings

import linear_operator
import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.command_line.training_data import TrainingData
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.estimators.scores import Judgement
from gpytorch_partition.presets.folds import Blocks
from gpytorch_partition.tables import TableEncoder, view_in_folds

MOST_ROWS_FOR_RBF = 3_000


def random_forest(train: TrainingData, test: TrainingData, num_trees: int, seed: int) -> Judgement:
    """
    Return the scores of a random forest of scikit-learn.

    Its standard deviation is that of its out-of-bag errors, divided by the root of the row's weight.
    """
    encoder, weights = TableEncoder(train.categorical), train.weights
    x = torch.from_numpy(encoder.fit_transform(train.table))
    sizes = {place: len(levels) for place, levels in encoder.categories_.items()}
    blocks = Blocks.of(train.blocks.get("groups"), train.blocks.get("time"), len(train.y))
    groups = None if blocks is None else blocks.groups
    view, rows = view_in_folds(x, sizes, torch.from_numpy(train.y), np.random.RandomState(seed), groups=groups)
    forest = RandomForestRegressor(num_trees, oob_score=True, random_state=seed)
    forest.fit(view(rows).numpy(), train.y, weights)
    of_weight_1 = _deviation(train.y - forest.oob_prediction_, weights)
    std = of_weight_1 / np.sqrt(np.ones(len(test.y)) if test.weights is None else test.weights)
    new = view(torch.from_numpy(encoder.transform(test.table))).numpy()
    return Judgement.gaussian(test.y, forest.predict(new), std)


def _deviation(errors: np.ndarray, weights: np.ndarray | None) -> float:
    """Return the standard deviation of errors at weight 1; weights divide their variances."""
    return float(np.sqrt(np.mean(errors**2 if weights is None else weights * errors**2)))


def rbf_ard(train: TrainingData, test: TrainingData) -> Judgement:
    """Return the scores of an exact GP with an RBF kernel and a lengthscale per column, by Cholesky factorization."""
    dense = linear_operator.settings.max_cholesky_size(MOST_ROWS_FOR_RBF)
    with settings.iterative(), dense, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*trained by L-BFGS")  # it has lengthscales: nothing to correct
        regressor = PartitionGPRegressor(_new_rbf, dtype="float64", categorical_features=train.categorical)
        regressor.fit(train.table, train.y, train.weights)
        return regressor.judge(test.table, test.y, test.weights)


def _new_rbf(x: Tensor, y: Tensor) -> Kernel:
    kernel = RBFKernel(ard_num_dims=x.shape[1])
    kernel.lengthscale = math.sqrt(x.shape[1])  # the order of distances between standardized rows
    return kernel
