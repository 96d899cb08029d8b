"""Degrees of freedom and scale of Student-t noise, by the density of held-out rows with or without outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.likelihoods.scale_mixture import log_densities
from gpytorch_partition.linalg.minimum import minimize_lbfgsb

DEGREES_OF_FREEDOM = (2.5, 3.0, 4.0, 6.0, 10.0)  # the variance is finite; above them, noise is nearly Gaussian
_LOG_FACTORS = (math.log(1e-3), math.log(4.0))  # bounds of the squared scale over the variance of Gaussian noise


@dataclass(frozen=True)
class HeavyTails:
    """
    Student-t noise in place of Gaussian noise.

    :param df: Degrees of freedom, above 2.
    :param factor: The squared scale over the variance of the Gaussian noise.
    :param log_density: Log density of all held-out rows together, in nats.
    :param gain: Gain in this log density over Gaussian noise, in nats.
    """

    df: float
    factor: float
    log_density: float
    gain: float


def fit_heavy_tails(errors: Tensor, variances: Tensor, noise: Tensor) -> HeavyTails:
    """
    Return degrees of freedom and scale of the largest density of held-out rows, and its gain over Gaussian noise.

    :param errors: `n` differences from the predicted means.
    :param variances: `n` variances of the function.
    :param noise: `n` variances of the Gaussian noise.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> errors, ones = torch.randn(300, generator=generator).double(), torch.ones(300).double()
        >>> errors[:15] *= 10
        >>> found = fit_heavy_tails(errors, 0 * ones, errors.var() * ones)
        >>> found.df, found.gain > 100
        (2.5, True)
    """
    total = variances + noise
    gaussian = -0.5 * float(((2 * math.pi * total).log() + errors.square() / total).sum())
    found = [(*_best_factor(errors, variances, noise, df), df) for df in DEGREES_OF_FREEDOM]
    density, factor, df = max(found)
    return HeavyTails(df, factor, density, density - gaussian)


def _best_factor(errors: Tensor, variances: Tensor, noise: Tensor, df: float) -> tuple[float, float]:
    """The log density of the best factor, and the factor."""

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        position = torch.tensor(values, requires_grad=True)
        with torch.enable_grad():
            total = -log_densities(errors, variances, position.exp() * noise, df).sum()
            total.backward()
        assert position.grad is not None
        return total.item(), position.grad.numpy()

    found = minimize_lbfgsb(loss, np.array([math.log(0.5)]), bounds=[_LOG_FACTORS])
    return -float(found.fun), math.exp(found.x[0])
