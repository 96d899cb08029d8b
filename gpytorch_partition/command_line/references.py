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
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, TargetEncoder
from sklearn.utils.fixes import parse_version
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.command_line.roles import Table
from gpytorch_partition.command_line.split import Split
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.estimators.scores import Judgement
from gpytorch_partition.tables import TableEncoder

MOST_ROWS_FOR_RBF = 3_000
_MOST_ONE_HOT = 10  # levels of a category with a column each


def random_forest(split: Split, num_trees: int, seed: int) -> Judgement:
    """
    A random forest of scikit-learn; its standard deviation is that of its out-of-bag errors, the same for every row, or
    divided by the root of the row's weight.

    :param split: The rows.
    :param num_trees: Number of trees.
    :param seed: Of everything random.
    """
    encoder, weights = _encoder(split.train_X, seed, split.categorical), split.train_weights
    forest = RandomForestRegressor(num_trees, oob_score=True, random_state=seed)
    forest.fit(encoder.fit_transform(split.train_X, split.train_y), split.train_y, weights)
    of_weight_1 = _deviation(split.train_y - forest.oob_prediction_, weights)
    std = of_weight_1 / np.sqrt(np.ones(len(split.test_y)) if split.test_weights is None else split.test_weights)
    return Judgement.gaussian(split.test_y, forest.predict(encoder.transform(split.test_X)), std)


def _deviation(errors: np.ndarray, weights: np.ndarray | None) -> float:
    """The standard deviation of errors at a weight of 1, if their variances are divided by weights."""
    return float(np.sqrt(np.mean(errors**2 if weights is None else weights * errors**2)))


def rbf_ard(split: Split, seed: int) -> Judgement:
    """
    An exact GP with a squared exponential kernel and a lengthscale per column, by Cholesky factorization.

    Missing numbers are the median of their column. Parameters as in :func:`random_forest`.
    """
    encoder = make_pipeline(_encoder(split.train_X, seed, split.categorical), SimpleImputer(strategy="median"))
    dense = linear_operator.settings.max_cholesky_size(MOST_ROWS_FOR_RBF)
    with settings.iterative(), dense, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*trained by L-BFGS")  # it has lengthscales: nothing to correct
        regressor = PartitionGPRegressor(_new_rbf, dtype="float64").fit(
            encoder.fit_transform(split.train_X, split.train_y), split.train_y, split.train_weights
        )
        return regressor.judge(encoder.transform(split.test_X), split.test_y, split.test_weights)


def _encoder(train_X: Table, seed: int, categorical: list[str] | None) -> Pipeline:
    """
    Tables as numbers: one-hot columns for few categories, means of the target (of other folds) for more.

    Missing cells are a category of their own, numbers NaN.
    """
    tables = TableEncoder(categorical).fit(train_X)
    few = [place for place, levels in tables.categories_.items() if len(levels) <= _MOST_ONE_HOT]
    many = [place for place, levels in tables.categories_.items() if len(levels) > _MOST_ONE_HOT]
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    means = TargetEncoder(target_type="continuous", **_folds(seed))
    steps: list[tuple[str, Any, list[int]]] = [("one_hot", one_hot, few), ("means", means, many)]
    return make_pipeline(TableEncoder(categorical), ColumnTransformer(steps, remainder="passthrough"))


def _folds(seed: int) -> dict[str, Any]:
    """How to draw the folds of a target encoder, by scikit-learn's version."""
    if parse_version(sklearn.__version__) < parse_version("1.9"):
        return {"random_state": seed}
    return {"cv": KFold(shuffle=True, random_state=seed)}


def _new_rbf(x: Tensor, y: Tensor) -> Kernel:
    kernel = RBFKernel(ard_num_dims=x.shape[1])
    kernel.lengthscale = math.sqrt(x.shape[1])  # the order of distances between standardized rows
    return kernel
