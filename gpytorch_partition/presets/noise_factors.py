"""Factors of variances and noise that maximize the predictive density of held-out rows."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.likelihoods.scale_mixture import gaussian_log_densities, log_densities
from gpytorch_partition.linalg.parallel import minimize_lbfgsb
from gpytorch_partition.presets.options import Options


def scale_factors(residuals: Tensor, variances: Tensor, noise: float, options: Options) -> tuple[float, float]:
    """
    Return a factor of all variances, and one of the noise beside it, that maximize the density of held-out entries.

    :param residuals: `n` residuals; NaN where there is no entry.
    :param variances: `n` variances of the function.
    :param noise: The current noise.
    :param options: Bounds of the factors.
    """
    known = ~residuals.isnan()
    ratios, bounds = torch.zeros_like(residuals[known]), [*factor_bounds(options), (0.0, 0.0)]
    found, _ = fit_factors(residuals[known], variances[known], ratios, torch.full_like(ratios, noise), bounds)
    return math.exp(found[0]), math.exp(found[1])


def factor_bounds(options: Options) -> list[tuple[float, float]]:
    """Return bounds of the logarithms of the factors of all variances, and of the noise."""
    return [(-math.log(most), math.log(most)) for most in (options.most_rescaling, options.most_noise_rescaling)]


def fit_factors(
    residuals: Tensor,
    variances: Tensor,
    ratios: Tensor,
    noise: Tensor,
    bounds: list[tuple[float, float]],
    df: float | None = None,
) -> tuple[np.ndarray, float]:
    """
    Return the log factors of all variances and of the noise, and its exponent; and the negative log density that they
    reach.

    :param residuals: `n` errors of held-out rows.
    :param variances: `n` variances of the function.
    :param ratios: `n` logarithms of the noise's ratio to its level.
    :param noise: `n` current variances of the noise, without these ratios.
    :param bounds: Least and largest values of the three.
    :param df: Degrees of freedom of Student-t noise. (Default: None, Gaussian noise.)
    """

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        position = torch.tensor(values, requires_grad=True)
        noises = position[0].exp() * noise * (position[1] + position[2] * ratios).exp()
        total = -_log_densities(residuals, position[0].exp() * variances, noises, df).sum()
        total.backward()
        assert position.grad is not None
        return total.item(), position.grad.numpy()

    start = np.array([0.0, 0.0, min(0.5, bounds[-1][1])])
    found = minimize_lbfgsb(loss, start, bounds=bounds)
    return found.x, float(found.fun)


def _log_densities(errors: Tensor, variances: Tensor, noise: Tensor, df: float | None) -> Tensor:
    """Log densities under Gaussian noise, or Student-t noise of these squared scales."""
    if df is not None:
        return log_densities(errors, variances, noise, df)
    return gaussian_log_densities(errors, variances + noise)
