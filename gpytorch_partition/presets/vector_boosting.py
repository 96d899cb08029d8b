"""Boosted trees of several targets at once, which scikit-learn's gradient boosting does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import BaseEnsemble
from sklearn.tree import DecisionTreeRegressor

_LEARNING_RATE = 0.1


class VectorBoosting(BaseEnsemble):
    """
    An ensemble by stochastic gradient boosting (Friedman 2002) of the sum of squared errors of `T` targets.

    Every tree splits for all targets, and has a mean of each in its leaves.

    :param n_estimators: Number of trees.
    :param max_depth: Largest depth of a tree.
    :param subsample: Share of the rows on which a tree is grown.
    :param max_features: Share of the columns tried at each split.
    :param random: Source of the draws.

    Example:
        >>> x = np.random.RandomState(0).rand(200, 2)
        >>> y = np.stack([x[:, 0], x[:, 0] - x[:, 1]], 1)
        >>> boosting = VectorBoosting(50, 3, 0.5, 0.5, np.random.RandomState(0)).fit(x, y)
        >>> len(boosting.estimators_), boosting.estimators_[0].n_outputs_
        (50, 2)
    """

    def __init__(self, n_estimators: int, max_depth: int, subsample: float, max_features: float, random: Any) -> None:
        super().__init__(DecisionTreeRegressor(), n_estimators=n_estimators)
        self.max_depth, self.subsample, self.max_features, self.random = max_depth, subsample, max_features, random

    def fit(self, x: NDArray[np.float32], y: NDArray[np.float64]) -> VectorBoosting:
        """
        Grow the trees.

        :param x: `N x D` rows.
        :param y: `N x T` targets.
        """
        self.n_features_in_, self.estimators_ = x.shape[1], []
        residuals, size = y - y.mean(0), max(1, int(self.subsample * len(x)))
        for _ in range(self.n_estimators):
            rows = self.random.choice(len(x), size, replace=False)
            tree = DecisionTreeRegressor(
                max_depth=self.max_depth, max_features=self.max_features, random_state=self.random
            )
            residuals = residuals - _LEARNING_RATE * tree.fit(x[rows], residuals[rows]).predict(x)
            self.estimators_.append(tree)
        return self
