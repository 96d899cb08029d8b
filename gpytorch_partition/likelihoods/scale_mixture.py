r"""
Student-t observations of a Gaussian function, as a mixture of Gaussians of many scales.

A Student-t variable with :math:`\nu` degrees of freedom is Gaussian given its precision
:math:`\tau \sim \Gamma(\nu / 2, \nu / 2)`, with variance :math:`\sigma^2 / \tau` (Tipping & Lawrence 2005, Variational
inference for Student-t models, section 2). Hence an observation of :math:`f \sim N(m, v)` has the density
:math:`\int N(y; m, v + \sigma^2 / \tau)\, p(\tau)\, d\tau`. It is computed as a sum over a grid of :math:`\log \tau`,
where the trapezoidal rule is right to six digits.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from scipy.special import gammaln, ndtr
from scipy.stats import gamma
from torch import Tensor

_NUM_SCALES = 80  # of the grid
# Mass of tau left out below and above the grid. An outlier of 1e5 deviations has a precision of 1e-10, whose mass is
# 1e-13 with 2.5 degrees of freedom, 1e-20 with 4.
_LEFT_OUT = (1e-30, 1e-7)
_NUM_SHARES = 513  # shares of the function in the variance, between which quantiles are interpolated
_BISECTIONS = 60


@lru_cache
def scale_mixture(df: float) -> tuple[Tensor, Tensor]:
    r"""Return values of :math:`\tau` and their probabilities (`k` each, float64) for :math:`\nu` degrees of freedom."""
    ends = gamma.ppf([_LEFT_OUT[0], 1 - _LEFT_OUT[1]], df / 2, scale=2 / df)
    logs, half = np.linspace(math.log(ends[0]), math.log(ends[1]), _NUM_SCALES), df / 2
    density = half * math.log(half) - gammaln(half) + half * logs - half * np.exp(logs)
    shares = np.exp(density - density.max())
    return torch.from_numpy(np.exp(logs)), torch.from_numpy(shares / shares.sum())


def gaussian_log_densities(errors: Tensor, variances: Tensor) -> Tensor:
    """Return log densities of errors under Gaussians of mean 0 with these variances, broadcast, in nats."""
    return -0.5 * ((2 * math.pi * variances).log() + errors.square() / variances)


def log_densities(errors: Tensor, variances: Tensor, scales: Tensor, df: float | None) -> Tensor:
    """
    Return log densities (`*batch x n`) from errors, the function's variances and the noise's squared scales.

    :param df: Degrees of freedom of the noise; None for Gaussian noise, whose variances the squared scales are.
    """
    if df is None:
        return gaussian_log_densities(errors, variances + scales)
    return torch.logsumexp(_joint(errors, variances, scales, df)[0], -1)


def expected_precisions(errors: Tensor, variances: Tensor, scales: Tensor, df: float) -> Tensor:
    r"""Return the expected precision :math:`\tau` of each observation (`n`), its weight in EM: near 0 for outliers."""
    joint, precisions = _joint(errors, variances, scales, df)
    return torch.softmax(joint, -1) @ precisions


def student_quantiles(
    mean: np.ndarray, variances: np.ndarray, scales: np.ndarray, df: float, probabilities: np.ndarray
) -> np.ndarray:
    """Return quantiles of observations (`n x q`) at `q` probabilities, interpolated between shares of the function."""
    precisions, weights = (part.numpy() for part in scale_mixture(df))
    shares = np.linspace(0, 1, _NUM_SHARES)
    deviations = np.sqrt(shares[:, None] + (1 - shares[:, None]) / precisions)  # shares x k
    total = variances + scales
    units = [_quantiles_of(deviations, weights, probability) for probability in probabilities]
    columns = [np.interp(variances / total, shares, unit) for unit in units]
    return mean[:, None] + np.sqrt(total)[:, None] * np.stack(columns, 1)


def student_levels(errors: np.ndarray, variances: np.ndarray, scales: np.ndarray, df: float) -> np.ndarray:
    """Return the probability of the smallest central interval that holds each observation (`n`)."""
    precisions, weights = (part.numpy() for part in scale_mixture(df))
    below = np.zeros(len(errors))
    for precision, weight in zip(precisions, weights):
        below += weight * ndtr(-np.abs(errors) / np.sqrt(variances + scales / precision))
    return np.maximum(1 - 2 * below, 0.0) + 0.0


def student_crps(errors: np.ndarray, variances: np.ndarray, scales: np.ndarray, df: float) -> np.ndarray:
    """
    Return the continuous ranked probability scores of observations (`n`), in their unit, right to four digits.

    They are :math:`E|Y - y| - E|Y - Y'| / 2` (Gneiting & Raftery 2007, Strictly proper scoring rules, eq. 21).
    """
    precisions, weights = (part.numpy() for part in scale_mixture(df))
    distance = np.abs(errors) * student_levels(errors, variances, scales, df)
    for precision, weight in zip(precisions, weights):
        mixed = variances + scales / precision
        distance += weight * np.sqrt(2 * mixed / np.pi) * np.exp(-(errors**2) / (2 * mixed))
    shares, total = np.linspace(0, 1, _NUM_SHARES), variances + scales
    mixed = shares[:, None] + (1 - shares[:, None]) / precisions  # shares x k
    between = [weights @ np.sqrt(row[:, None] + row) @ weights for row in mixed]
    return distance - np.sqrt(total / (2 * np.pi)) * np.interp(variances / total, shares, between)


def _quantiles_of(deviations: np.ndarray, weights: np.ndarray, probability: float) -> np.ndarray:
    """Quantiles of mixtures of centred Gaussians (`n`), from their deviations (`n x k`) and weights (`k`)."""
    high = np.full(len(deviations), float(deviations.max()) * 40.0)
    low = -high
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        is_below = ndtr(middle[:, None] / deviations) @ weights < probability
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return 0.5 * (low + high)


def _joint(errors: Tensor, variances: Tensor, scales: Tensor, df: float) -> tuple[Tensor, Tensor]:
    """Log joint densities of observations and precisions (`*batch x n x k`), and the precisions."""
    precisions, shares = (part.to(errors) for part in scale_mixture(df))
    total = variances.unsqueeze(-1) + scales.unsqueeze(-1) / precisions
    return gaussian_log_densities(errors.unsqueeze(-1), total) + shares.log(), precisions
