"""What estimators make of `sample_weight`: rows that count, their weights, and the likelihood that has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from sklearn.utils import _safe_indexing, check_consistent_length

from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.likelihoods import WeightedGaussianLikelihood


class CountedRows(NamedTuple):
    """Rows of a weight above 0, as they were given."""

    X: Any
    y: Any
    weights: RowWeights | None  # None where all are 1
    numbers: np.ndarray | None  # N numbers of them among all rows; None where no row is left out


def counted_rows(X: Any, y: Any, weights: np.ndarray | None) -> CountedRows:
    """
    The rows that count; nothing is learned of the others, not even which levels a column has.

    :param X: Rows, an array or a table.
    :param y: Their targets.
    :param weights: Their weights, as :func:`~gpytorch_partition.inputs.row_weights.checked_weights` returns them.
    """
    if weights is None:
        return CountedRows(X, y, None, None)
    numbers = np.flatnonzero(weights)
    row_weights = None if (weights[numbers] == 1).all() else RowWeights.of(torch.from_numpy(weights[numbers]))
    if len(numbers) == len(weights):
        return CountedRows(X, y, row_weights, None)
    if not isinstance(X, Mapping):
        check_consistent_length(X, y)
    return CountedRows(_some(X, numbers), _safe_indexing(y, numbers), row_weights, numbers)


def _some(X: Any, numbers: np.ndarray) -> Any:
    """Some rows of an array, a data frame, lists or a mapping."""
    if isinstance(X, Mapping):
        return {name: _safe_indexing(values, numbers) for name, values in X.items()}
    return _safe_indexing(X, numbers)


def target_unit(y: np.ndarray, weights: RowWeights | None) -> Standardization:
    """Mean and deviation of targets, in which those of less weight than usual count less."""
    if weights is None:
        return Standardization.of_array(y, are_targets=True)
    return Standardization.of_weighted(torch.from_numpy(y), weights.capped)


def new_likelihood(weights: RowWeights | None) -> Likelihood:
    """Gaussian noise of one level, divided by the weights of the training rows where these have some."""
    return GaussianLikelihood() if weights is None else WeightedGaussianLikelihood(weights.values, unit=weights.unit)
