"""Criteria for subsets of columns: of linear regression from moments, and scores of any estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.linalg import solve_triangular
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv, cross_val_score

from gpytorch_partition.linalg.factors import stable_cholesky

# Numbers in the matrices solved at once (32 MiB).
_BLOCK_NUMEL = 2**22
# Added to the diagonal of the correlations: columns may be copies of each other.
_JITTER = 1e-9
# Relative residual sums of squares below are rounding.
_LEAST_RESIDUAL = 1e-8

# Functions of the mean squared residual, the number of rows n and of coefficients k (the intercept is one).
_FORMULAS: dict[str, Callable[..., np.ndarray]] = {
    "aic": lambda residual, n, k: n * np.log(residual) + 2 * k,
    "bic": lambda residual, n, k: n * np.log(residual) + np.log(n) * k,
    "gcv": lambda residual, n, k: residual / (1 - k / n) ** 2,
}
CRITERIA = (*_FORMULAS, "loo")


class LinearCriterion:
    r"""
    A criterion of ordinary linear regression, with an intercept, on any subsets of the columns; less is better.

    With the residual sum of squares RSS of n rows and k coefficients, intercept included: `"aic"` is :math:`n \log(RSS
    / n) + 2 k`, `"bic"` :math:`n \log(RSS / n) + k \log n`, `"gcv"` the generalized cross-validation :math:`n\,RSS /
    (n - k)^2`, and `"loo"` the mean squared leave-one-out error. y is standardized, which adds a constant to the first
    two and divides the others by the variance.

    RSS comes from the correlations of the columns (`D x D`), which take :math:`O(N D^2)` once. A subset then costs
    :math:`O(k^3)`, with the largest k of those in one call, for any number of rows; with `"loo"` it costs
    :math:`O(N k^2)`. Subsets with :math:`k \ge n` have the value infinity.

    :param X: `N x D` rows, finite.
    :param y: `N` targets.
    :param name: One of :data:`CRITERIA`.

    Example:
        >>> X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, -1.0], [3.0, 2.0]])
        >>> criterion = LinearCriterion(X, np.array([0.1, 0.9, 2.1, 2.9]), "aic")
        >>> criterion(np.array([[False, False], [True, False], [True, True]])).round(1)
        array([  2. , -15.9, -16.9])
    """

    def __init__(self, X: np.ndarray, y: np.ndarray, name: str) -> None:
        self.name = name
        x, targets = standardized(X), standardized(y)
        self.num_rows = len(X)
        self.variance = float(np.mean(targets**2))
        self.correlations = x.T @ x / len(X)
        self.covariances = x.T @ targets / len(X)
        self.rows = (x, targets) if name == "loo" else None

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        """Return the values (`m`) of subsets (`m x D` booleans)."""
        n, k = self.num_rows, 1 + masks.sum(1)
        values = np.full(len(masks), np.inf)
        few = k < n
        if self.rows is not None:
            values[few] = [self._leave_one_out(*self.rows, mask) for mask in masks[few]]
        else:
            residual = np.maximum(self._residuals(masks[few]), _LEAST_RESIDUAL)
            values[few] = _FORMULAS[self.name](residual, n, k[few])
        return values

    def _residuals(self, masks: np.ndarray) -> np.ndarray:
        """Return RSS / n of each subset."""
        size = max(1, _BLOCK_NUMEL // max(1, int(masks.sum(1).max(initial=0))) ** 2)
        parts = [self._residual_block(masks[i : i + size]) for i in range(0, len(masks), size)]
        return np.concatenate([*parts, np.empty(0)])

    def _residual_block(self, masks: np.ndarray) -> np.ndarray:
        """Return RSS / n; subsets are padded to the size of the largest by columns with coefficient 0."""
        columns = np.argsort(~masks, axis=1, kind="stable")[:, : masks.sum(1).max()]
        inside = np.take_along_axis(masks, columns, 1).astype(float)
        matrices = self.correlations[columns[:, :, None], columns[:, None, :]]
        matrices *= inside[:, :, None] * inside[:, None, :]
        diagonal = np.arange(columns.shape[1])
        matrices[:, diagonal, diagonal] += 1 - inside + _JITTER
        covariances = self.covariances[columns] * inside
        coefficients = np.linalg.solve(matrices, covariances[:, :, None])[:, :, 0]
        return self.variance - (covariances * coefficients).sum(1)

    def _leave_one_out(self, x: np.ndarray, y: np.ndarray, mask: np.ndarray) -> float:
        """Return the mean square of the residuals over (1 - leverages)."""
        correlations = self.correlations[np.ix_(mask, mask)] + _JITTER * np.eye(mask.sum())
        factor = stable_cholesky(torch.from_numpy(correlations)).numpy()
        scaled = solve_triangular(factor, x[:, mask].T, lower=True)
        residuals = y - scaled.T @ (scaled @ y) / len(x)
        leverages = (1 + np.square(scaled).sum(0)) / len(x)
        return float(np.mean(np.square(residuals / np.maximum(1 - leverages, _LEAST_RESIDUAL))))


class EstimatorCriterion:
    """
    A criterion by an estimator: minus its mean cross-validated score on subsets of the columns; less is better.

    Repeated subsets are scored once; the empty one has the value infinity. The cost is that of the fits.

    :param X: `N x D` rows.
    :param y: `N` targets.
    :param estimator: An estimator of scikit-learn; clones are fitted.
    :param scoring: A scorer's name or function, of which more is better. (None: the estimator's `score`.)
    :param cv: Folds, as for :func:`sklearn.model_selection.cross_val_score`. They are split once, so that all subsets
        are compared on the same ones.

    Example:
        >>> from sklearn.linear_model import LinearRegression
        >>> X = np.random.RandomState(0).randn(60, 2)
        >>> criterion = EstimatorCriterion(X, X[:, 1], LinearRegression(), "neg_mean_squared_error", 3)
        >>> values = criterion(np.array([[True, False], [False, True]]))
        >>> bool(values[1] < 1e-20 < values[0])
        True
    """

    def __init__(self, X: np.ndarray, y: np.ndarray, estimator: Any, scoring: Any, cv: Any) -> None:
        self.x, self.y = X, y
        self.estimator, self.scoring = clone(estimator), scoring
        self.folds = list(check_cv(cv, y, classifier=is_classifier(estimator)).split(X, y))
        self._known: dict[bytes, float] = {}

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        """Return the values (`m`) of subsets (`m x D` booleans)."""
        return np.array([self._value(mask) for mask in masks])

    def _value(self, mask: np.ndarray) -> float:
        key = mask.tobytes()
        if key not in self._known:
            self._known[key] = -self._score(mask) if mask.any() else np.inf
        return self._known[key]

    def _score(self, mask: np.ndarray) -> float:
        options = {"scoring": self.scoring, "cv": self.folds, "error_score": "raise"}
        return float(cross_val_score(self.estimator, self.x[:, mask], self.y, **options).mean())


def standardized(values: np.ndarray) -> np.ndarray:
    """
    Return columns with mean 0 and standard deviation 1; those that are constant up to rounding become 0.

    :param values: `N`, or `N x D` columns.

    Example:
        >>> standardized(np.array([[0.0, 0.1], [2.0, 0.1]]))
        array([[-1.,  0.],
               [ 1.,  0.]])
    """
    centered = values - values.mean(0)
    scale = centered.std(0)
    constant = scale <= 1e-12 * np.abs(values).max(0)
    return np.where(constant, 0.0, centered / np.where(constant, 1.0, scale))
