"""Random features of the Laplace kernel exp(-lifetime |x - x'|_1), and ridge regression on them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix, issparse
from scipy.spatial.distance import cdist

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


def ridge(features: Features, y: np.ndarray, delta: float) -> np.ndarray:
    """Return the minimizer of |y - F w|^2 + delta |w|^2, by a factor of the smaller product of the features."""
    is_narrow = features.shape[1] <= features.shape[0]
    gram = (_inner if is_narrow else _outer)(features)
    gram.flat[:: len(gram) + 1] += delta
    factor = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    return cho_solve(factor, features.T @ y) if is_narrow else features.T @ cho_solve(factor, y)


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
