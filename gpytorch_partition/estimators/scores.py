"""Scores that scikit-learn and SciPy lack: of predictive distributions, and the hits of a ranking."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import norm

_END = norm.ppf(0.95)  # of 90 % intervals, in standard deviations


class Judgement(NamedTuple):
    """Hold predictive distributions of `N` targets, with scores of the targets (`N` numbers each)."""

    mean: np.ndarray
    std: np.ndarray
    lower: np.ndarray  #: The lower ends of central 90 % intervals.
    upper: np.ndarray  #: The upper ends.
    #: Log densities of the targets in their own unit, in nats. `summary()` and `compare` print NLPDs of targets in
    #: standard deviations: `-(log_density.mean() + log(std))`, std being that of the training targets.
    log_density: np.ndarray
    level: np.ndarray  #: The probabilities of the smallest central intervals that hold the targets.
    crps: np.ndarray  #: Continuous ranked probability scores of the targets, in their unit; 0 is best.
    interval_score: np.ndarray  #: Interval scores of the 90 % intervals, as :func:`interval_score`.
    joint_log_density: float | None = None  #: Log density of all targets together, in nats, if it was asked for.

    @classmethod
    def gaussian(cls, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> Judgement:
        """Return the distributions and scores of Gaussians."""
        distance, ends = np.abs(y - mean) / std, (mean - _END * std, mean + _END * std)
        level = 1 - 2 * norm.sf(distance)
        crps = std * (distance * level + 2 * norm.pdf(distance) - np.pi**-0.5)
        return cls(mean, std, *ends, norm.logpdf(y, mean, std), level, crps, interval_score(y, *ends))

    def coverage(self, level: float | np.ndarray = 0.9, sample_weight: np.ndarray | None = None) -> np.ndarray:
        """Return the share of targets (with weights) inside central intervals of each probability, one or `L`."""
        levels = np.asarray(level, dtype=np.float64)
        if not ((levels >= 0) & (levels <= 1)).all():
            raise ValueError(f"expected level between 0 and 1, such as 0.9 for intervals of 90 %, got {level!r}")
        inside = self.level[:, None] <= np.atleast_1d(levels)
        return np.average(inside, axis=0, weights=sample_weight).reshape(np.shape(level))


def interval_score(y: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return the width of 90 % intervals plus 20 times the miss (Gneiting & Raftery 2007, eq. 43); less is better."""
    return upper - lower + 20 * (np.maximum(lower - y, 0) + np.maximum(y - upper, 0))


def mean_and_error(values: np.ndarray, sample_weight: np.ndarray | None = None) -> tuple[float, float]:
    r"""
    Return the mean of a score over rows, and its standard error for independent rows.

    With weights the error is :math:`\sqrt{\sum_i w_i^2 (v_i - \bar v)^2} / \sum_i w_i`.
    """
    weights = np.ones(len(values)) if sample_weight is None else sample_weight
    mean = np.average(values, weights=weights)
    return float(mean), float(np.linalg.norm(weights * (values - mean)) / weights.sum())


def hit_curve(y: np.ndarray, scores: np.ndarray) -> np.ndarray:
    r"""
    Return the number of rows of a rare class among the first t of a ranking, for every t (Zhu, Su & Chipman 2006).

    Rows with the same score count as in a random order, on average. :math:`O(N \log N)` time.

    :param y: `N` booleans, or numbers of which those above zero are hits.
    :param scores: `N` scores; infinite ones are first or last.
    :raises ValueError: If the shapes differ, y is not numeric, or one of y or scores is NaN.

    Example:
        >>> hit_curve(np.array([0, 1, 1, 0, 1]), np.array([0.1, 0.9, 0.5, 0.5, 0.2]))
        array([1. , 1.5, 2. , 3. , 3. ])
    """
    try:
        y, scores = np.asarray(y), np.asarray(scores, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected scores that are numbers, got {scores!r}") from error
    if y.ndim != 1 or y.shape != scores.shape:
        raise ValueError(f"expected y and scores of one and the same length, got shapes {y.shape} and {scores.shape}")
    if y.dtype.kind not in "biuf" or np.isnan(y).any():
        raise ValueError(f"expected y of booleans or numbers, got {y[:3].tolist()!r}: give y == the rare class")
    if np.isnan(scores).any():
        raise ValueError("expected scores that are numbers, got NaN: drop these rows, or rank them last")
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(y[order] > 0)
    ranked = scores[order]  # compared, not subtracted: they may be infinite
    last_of_ties = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(y) - 1)[: len(y)]
    counts = np.arange(1, len(y) + 1)
    return np.interp(counts, np.append(0, counts[last_of_ties]), np.append(0, hits[last_of_ties]))
