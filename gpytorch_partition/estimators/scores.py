"""Scores of Gaussian predictions that scikit-learn and SciPy do not have: the coverage of intervals."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm


def coverage(y: np.ndarray, mean: np.ndarray, std: np.ndarray, level: float | np.ndarray = 0.9) -> np.ndarray:
    """
    The share of targets (`N`) in the central intervals of their Gaussians, for one nominal share or several.

    :param y: `N` targets.
    :param mean: `N` means.
    :param std: `N` positive standard deviations, in the same units.
    :param level: Nominal shares between 0 and 1, one or `L`. (Default: 0.9.)
    :return: Shares between 0 and 1, of the shape of `level`; :math:`O(N L)` time and memory.

    Example:
        >>> coverage(np.array([0.0, 1.0, 2.0]), np.zeros(3), np.ones(3), np.array([0.5, 0.9, 0.99]))
        array([0.33333333, 0.66666667, 1.        ])
    """
    distance, half_width = np.abs(y - mean) / std, norm.ppf(0.5 + np.asarray(level) / 2)
    return np.mean(distance[:, None] <= np.atleast_1d(half_width), axis=0).reshape(np.shape(level))
