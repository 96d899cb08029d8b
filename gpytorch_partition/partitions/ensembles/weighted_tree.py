"""Extremely randomized trees of rows with weights, inside ensembles that draw subsamples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import ExtraTreeRegressor


def with_weights(targets: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """
    Append the weights of the rows (`N`) to targets (`N` or `N x k`) as their last column, for :class:`WeightedTree`.

    :raises ValueError: If there is not one finite weight of 0 or more for each row, or all are 0.
    """
    if weights.shape != targets.shape[:1] or not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
        raise ValueError(
            f"expected {len(targets)} weights of rows from 0, not all 0, got an array of shape {weights.shape}"
        )
    return np.column_stack([targets, weights])


def without_last(y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """
    Split off the last column (`N`) of targets (`N` or `N x k`), such as the weights of :func:`with_weights`.

    :param y: `N x (k + 1)`.
    """
    return (y[:, 0] if y.shape[1] == 2 else y[:, :-1]), y[:, -1]


class WeightedTree(ExtraTreeRegressor):
    """
    An extremely randomized tree whose rows' squared errors have weights, the last column of its targets.

    From scikit-learn 1.8 on, :class:`~sklearn.ensemble.BaggingRegressor` uses weights of rows as probabilities to draw
    them. A tree of most rows, sampled without replacement, would have nearly all rows for any weights.

    Parameters are those of scikit-learn's tree.

    Example:
        >>> x, y = np.array([[0.0], [1.0], [2.0]]), np.array([5.0, 7.0, 6.0])
        >>> tree = WeightedTree(max_depth=1, random_state=0).fit(x, with_weights(y, np.array([1.0, 1.0, 3.0])))
        >>> sorted(set(tree.predict(x).round(2).tolist()))
        [5.0, 6.25]
    """

    def fit(self, X: Any, y: Any, check_input: bool = True) -> WeightedTree:
        """Grow the tree on rows of a subsample."""
        targets, weights = without_last(np.asarray(y))
        if not weights.any():
            weights = np.ones_like(weights)  # a subsample of rows that do not count
        return super().fit(X, targets, sample_weight=weights, check_input=check_input)
