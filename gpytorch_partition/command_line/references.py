"""The models that `compare` shows beside this package's: a random forest, and an RBF-ARD Gaussian process."""

from __future__ import annotations

import math
import warnings
from typing import Any

import linear_operator
import numpy as np
import sklearn
from gpytorch.kernels import Kernel, RBFKernel
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, TargetEncoder
from sklearn.utils.fixes import parse_version
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.command_line.roles import Table
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.tables import TableEncoder

MOST_ROWS_FOR_RBF = 3_000
_MOST_ONE_HOT = 10  # levels of a category with a column each

Moments = tuple[np.ndarray, np.ndarray]  # means and standard deviations of n rows


def random_forest(
    train_X: Table,
    train_y: np.ndarray,
    test_X: Table,
    num_trees: int,
    seed: int,
    weights: np.ndarray | None = None,
) -> Moments:
    """
    A random forest of scikit-learn; its standard deviation is that of its out-of-bag errors, the same for every row.

    :param train_X: Features of the training rows.
    :param train_y: Their targets.
    :param test_X: Features of the rows to predict.
    :param num_trees: Number of trees.
    :param seed: Of everything random.
    :param weights: Weights of the training rows. (Default: None, 1.)
    """
    encoder = _encoder(train_X, seed)
    forest = RandomForestRegressor(num_trees, oob_score=True, random_state=seed)
    forest.fit(encoder.fit_transform(train_X, train_y), train_y, weights)
    std = root_mean_squared_error(train_y, forest.oob_prediction_, sample_weight=weights)
    mean = forest.predict(encoder.transform(test_X))
    return mean, np.full(len(mean), std)


def rbf_ard(
    train_X: Table, train_y: np.ndarray, test_X: Table, seed: int, weights: np.ndarray | None = None
) -> Moments:
    """
    An exact GP with a squared exponential kernel and a lengthscale per column, by Cholesky factorization.

    Missing numbers are the median of their column. Parameters as in :func:`random_forest`.
    """
    encoder = make_pipeline(_encoder(train_X, seed), SimpleImputer(strategy="median"))
    dense = linear_operator.settings.max_cholesky_size(MOST_ROWS_FOR_RBF)
    with settings.iterative(), dense, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*trained by L-BFGS")  # it has lengthscales: nothing to correct
        regressor = PartitionGPRegressor(_new_rbf, dtype="float64").fit(
            encoder.fit_transform(train_X, train_y), train_y, weights
        )
        return regressor.predict(encoder.transform(test_X), return_std=True)


def _encoder(train_X: Table, seed: int) -> Pipeline:
    """
    Tables as numbers: one-hot columns for few categories, means of the target (of other folds) for more.

    Missing cells are a category of their own, numbers NaN.
    """
    tables = TableEncoder().fit(train_X)
    few = [place for place, levels in tables.categories_.items() if len(levels) <= _MOST_ONE_HOT]
    many = [place for place, levels in tables.categories_.items() if len(levels) > _MOST_ONE_HOT]
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    means = TargetEncoder(target_type="continuous", **_folds(seed))
    steps: list[tuple[str, Any, list[int]]] = [("one_hot", one_hot, few), ("means", means, many)]
    return make_pipeline(TableEncoder(), ColumnTransformer(steps, remainder="passthrough"))


def _folds(seed: int) -> dict[str, Any]:
    """How to draw the folds of a target encoder, by scikit-learn's version."""
    if parse_version(sklearn.__version__) < parse_version("1.9"):
        return {"random_state": seed}
    return {"cv": KFold(shuffle=True, random_state=seed)}


def _new_rbf(x: Tensor, y: Tensor) -> Kernel:
    kernel = RBFKernel(ard_num_dims=x.shape[1])
    kernel.lengthscale = math.sqrt(x.shape[1])  # the order of distances between standardized rows
    return kernel
