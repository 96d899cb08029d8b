"""A clusterer that draws partitions of rows from a Pitman-Yor mixture of Gaussians by Gibbs sampling."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import validate_data

from gpytorch_partition.inputs.numbers import is_positive, is_whole, random_state_of

_LEAST = 1e-100  # scale and spread


@dataclass(eq=False, repr=False)
class PitmanYorMixture(ClusterMixin, BaseEstimator):
    r"""
    Cluster rows by one posterior draw of a Pitman-Yor mixture's partition; d = 0 gives a Chinese restaurant.

    Use it as the clusterer of a :class:`~gpytorch_partition.ClusteringKernel` if the number of clusters is unknown; a
    prior over partitions does not fix it (Davies & Ghahramani 2014, section 2.3). New points join the nearest row.

    A row joins a cluster of n rows with a prior weight of n - d, and a new one with :math:`\alpha + d C` for C clusters
    (Pitman & Yor 1997). Rows are Gaussian around the mean of their cluster, which is Gaussian around the rows' mean and
    integrated out (Neal 2000, algorithm 3).

    Costs :math:`O(N C D)` a sweep; intended for about a thousand rows.

    :param concentration: :math:`\alpha > -d`. (Default: 1.)
    :param discount: d, from 0 to below 1; larger values give more small clusters. (Default: 0.)
    :param scale: Standard deviation within a cluster, in units of the columns. (Default: 0.5.)
    :param spread: Standard deviation of the clusters' means. (Default: 1.)
    :param num_sweeps: Sweeps over all rows after the first, which seats them one by one. (Default: 5.)
    :param random_state: Seed or `RandomState`; `None` is a fresh one, never NumPy's global one.

    Example:
        >>> X = np.concatenate([np.zeros((10, 1)), np.full((10, 1), 5.0)])
        >>> PitmanYorMixture(scale=0.1, random_state=0).fit_predict(X)
        array([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    """

    concentration: float = 1.0
    discount: float = 0.0
    _: KW_ONLY
    scale: float = 0.5
    spread: float = 1.0
    num_sweeps: int = 5
    random_state: int | np.random.RandomState | None = None

    def fit(self, X: Any, y: Any = None) -> PitmanYorMixture:
        """Draw a partition of the rows (`N x D`); a `ValueError` says which parameter cannot be used."""
        X = validate_data(self, X, dtype=np.float64)
        self._check_parameters()
        random, rows = random_state_of(self.random_state), X - X.mean(0)
        labels, counts, sums = np.full(len(X), -1), np.zeros(0, dtype=int), np.zeros((0, X.shape[1]))
        for _ in range(1 + self.num_sweeps):
            for row in random.permutation(len(X)):
                counts, sums = _left(row, rows, labels, counts, sums)
                labels[row] = self._drawn(rows[row], counts, sums, random)
                if labels[row] == len(counts):
                    counts, sums = np.append(counts, 0), np.vstack([sums, np.zeros(X.shape[1])])
                counts[labels[row]] += 1
                sums[labels[row]] += rows[row]
        self.labels_ = np.unique(labels, return_inverse=True)[1]
        return self

    def _check_parameters(self) -> None:
        names = ("discount", "concentration", "scale", "spread")
        numbers = [getattr(self, name) for name in names]
        is_real = all(isinstance(number, Real) and math.isfinite(number) for number in numbers)
        if not is_real or not (0 <= self.discount < 1 and self.concentration > -self.discount):
            got = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            raise ValueError(
                "expected finite numbers, a discount from 0 to below 1 and a concentration above minus the discount, "
                f"got {got}"
            )
        if not all(is_positive(value) and _LEAST <= value <= 1 / _LEAST for value in (self.scale, self.spread)):
            raise ValueError(
                f"expected scale and spread above 0, whose squares are numbers, got {self.scale!r} and {self.spread!r}"
            )
        if not is_whole(self.num_sweeps, 0):
            raise ValueError(f"expected num_sweeps to be a whole number, 0 or more, got {self.num_sweeps!r}")

    def _drawn(self, row: np.ndarray, counts: np.ndarray, sums: np.ndarray, random: np.random.RandomState) -> int:
        weights = np.append(counts - self.discount, self.concentration + self.discount * len(counts))
        precisions = 1 / self.spread**2 + np.append(counts, 0) / self.scale**2
        means = np.vstack([sums, np.zeros(len(row))]) / self.scale**2 / precisions[:, None]
        variances = self.scale**2 + 1 / precisions
        densities = -0.5 * (((row - means) ** 2).sum(1) / variances + len(row) * np.log(variances))
        logits = densities + np.array([math.log(weight) if weight > 0 else -math.inf for weight in weights])
        return int((logits + random.gumbel(size=len(logits))).argmax())


def _left(
    row: int, rows: np.ndarray, labels: np.ndarray, counts: np.ndarray, sums: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    own = labels[row]
    if own < 0:
        return counts, sums
    counts[own] -= 1
    sums[own] -= rows[row]
    if counts[own]:
        return counts, sums
    labels[labels > own] -= 1
    return np.delete(counts, own), np.delete(sums, own, 0)
