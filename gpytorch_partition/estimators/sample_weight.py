"""The parameter `sample_weight` of estimators: rows that count, their weights, and a likelihood with weights."""

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
    Return the rows of a weight above 0; nothing is learned from the others, not even levels of columns.

    :param X: Rows, an array or a table.
    :param y: Their targets.
    :param weights: Their weights, from :func:`~gpytorch_partition.inputs.row_weights.checked_weights`.
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
    if isinstance(X, Mapping):
        return {name: _safe_indexing(values, numbers) for name, values in X.items()}
    return _safe_indexing(X, numbers)


def target_unit(y: np.ndarray, weights: RowWeights | None) -> Standardization:
    """Return the standardization of targets, with weights capped at 1 in the usual unit."""
    if weights is None:
        return Standardization.of_array(y, are_targets=True)
    return Standardization.of_weighted(torch.from_numpy(y), weights.capped)


def new_likelihood(weights: RowWeights | None) -> Likelihood:
    """Return Gaussian noise of one level, divided by the weights of the training rows, if any."""
    return GaussianLikelihood() if weights is None else WeightedGaussianLikelihood(weights.values, unit=weights.unit)
