"""How good predictions with standard deviations are: error, density and coverage of Gaussian predictions."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri


def root_mean_squared_error(y: np.ndarray, mean: np.ndarray) -> float:
    """
    The root mean squared error of means (`N`), in units of the targets (`N`).

    Example:
        >>> root_mean_squared_error(np.array([1.0, 2.0]), np.array([4.0, 6.0]))
        3.5355339059327378
    """
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def negative_log_density(y: np.ndarray, mean: np.ndarray, std: np.ndarray, unit: float = 1.0) -> float:
    r"""
    The mean negative log density of targets (`N`) under Gaussians with these means and standard deviations (`N`).

    :param y: `N` targets.
    :param mean: `N` means.
    :param std: `N` positive standard deviations, in the same units.
    :param unit: The unit in which targets are measured: dividing them by it subtracts :math:`\log` unit. With the
        standard deviation of the targets, always predicting their mean and standard deviation scores 1.42.
        (Default: 1.)
    :return: Nats per row; smaller is better.

    Example:
        >>> round(negative_log_density(np.array([1.0, -1.0]), np.zeros(2), np.ones(2)), 2)
        1.42
    """
    density = 0.5 * np.log(2 * np.pi * (std / unit) ** 2) + 0.5 * ((y - mean) / std) ** 2
    return float(density.mean())


def half_width(level: float | np.ndarray) -> np.ndarray:
    """
    Half the width of central intervals that hold a share `level` of a Gaussian, in standard deviations.

    :param level: Shares between 0 and 1, of any shape.
    :return: The same shape.

    Example:
        >>> round(float(half_width(0.9)), 3)
        1.645
    """
    return ndtri(0.5 + np.asarray(level) / 2)


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
    distance = np.abs(y - mean) / std
    return np.mean(distance[:, None] <= np.atleast_1d(half_width(level)), axis=0).reshape(np.shape(level))
