"""Random features of the Laplace kernel exp(-lifetime |x - x'|_1), and ridge regression on them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix, issparse
from scipy.spatial.distance import cdist
from sklearn.linear_model import SGDRegressor

from gpytorch_partition.clusters.co_occurrence import count_co_occurrences

Features: TypeAlias = np.ndarray | csr_matrix
_ROWS = 256
# Columns per nonzero of a row up to which a dense product is faster than counting pairs of partitions.
_DENSE = 5


class FourierFeatures:
    """
    Random Fourier features (Rahimi & Recht 2007, algorithm 1): cosines, whose frequencies are those of the kernel.

    The Laplace kernel is a product over the columns of characteristic functions of Cauchy variables of scale lifetime.
    """

    def __init__(self, num_columns: int, num_features: int, lifetime: float, seed: int) -> None:
        random = np.random.RandomState(seed)
        self.frequencies = lifetime * random.standard_cauchy((num_columns, num_features))
        self.phases = random.uniform(0, 2 * np.pi, num_features)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Features (`N x M`, all of them nonzero) of points (`N x D`)."""
        return (2 / len(self.phases)) ** 0.5 * np.cos(x @ self.frequencies + self.phases)


def laplace_kernel(x1: np.ndarray, x2: np.ndarray, lifetime: float) -> np.ndarray:
    """The kernel itself (`N1 x N2`)."""
    return np.exp(-lifetime * cdist(x1, x2, "cityblock"))


class Ridge(NamedTuple):
    """Minimizer of |y - F w|^2 + delta |w|^2, and what the likelihood of y ~ N(0, F F^T + delta I) takes."""

    weights: np.ndarray
    quadratic_form: float
    log_determinant: float

    def log_likelihood(self, num_rows: int) -> float:
        """Of the targets, with an outputscale of 1 and a noise of delta."""
        return -0.5 * (self.quadratic_form + self.log_determinant + num_rows * float(np.log(2 * np.pi)))


def ridge(features: Features, y: np.ndarray, delta: float) -> Ridge:
    """By a Cholesky factor of the smaller of the two products of the features (`N x p`)."""
    num_rows, num_features = features.shape
    if num_features <= num_rows:
        factor, log_determinant = _factored(_inner(features), delta)
        weights = cho_solve(factor, features.T @ y)
        form = float(y @ (y - features @ weights)) / delta
        return Ridge(weights, form, log_determinant + (num_rows - num_features) * float(np.log(delta)))
    factor, log_determinant = _factored(_outer(features), delta)
    dual = cho_solve(factor, y)
    return Ridge(features.T @ dual, float(y @ dual), log_determinant)


def descent(num_rows: int, delta: float, epochs: int) -> SGDRegressor:
    """Stochastic gradient descent on the objective of ridge regression, whose loss scikit-learn divides by the rows."""
    return SGDRegressor(alpha=delta / num_rows, eta0=0.5, max_iter=epochs, tol=None, random_state=0)


def _factored(gram: np.ndarray, delta: float) -> tuple[tuple[np.ndarray, bool], float]:
    gram.flat[:: len(gram) + 1] += delta
    factor = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    return factor, 2 * float(np.log(factor[0].diagonal()).sum())


def _inner(features: Features) -> np.ndarray:
    """The p x p products of columns."""
    if not issparse(features):
        return features.T @ features
    if features.shape[1] <= _DENSE * _codes(features).shape[1]:
        return _inner(features.toarray())
    counts = torch.zeros(features.shape[1], features.shape[1], dtype=torch.float64)
    count_co_occurrences(counts, torch.from_numpy(_codes(features)))
    return counts.numpy() / _codes(features).shape[1]


def _outer(features: Features) -> np.ndarray:
    """The N x N products of rows: of sparse ones, the share of partitions in which they have the same cluster."""
    if not issparse(features):
        return features @ features.T
    codes = _codes(features).T
    gram = np.empty((features.shape[0], features.shape[0]))
    for first in range(0, len(gram), _ROWS):
        block = slice(first, first + _ROWS)
        shared = np.zeros(gram[block].shape, dtype=np.int16)
        for column in codes:
            shared += column[block, None] == column
        np.divide(shared, len(codes), out=gram[block])
    return gram


def _codes(features: csr_matrix) -> np.ndarray:
    """The clusters of training rows (`N x m`)."""
    return features.indices.reshape(features.shape[0], -1)
