"""Lengthscales of a Matern-3/2 kernel, learned on a few rows by the posterior density of an exact Gaussian process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.linalg.parallel import minimize_lbfgsb

_LENGTHSCALE_BOUNDS = (1e-2, 1e3)  # in standard deviations of a column
_OUTPUTSCALE_BOUNDS = (1e-2, 1e2)  # in variances of the targets
_NOISE_BOUNDS = (1e-4, 10.0)  # in variances of the targets: the covariance stays positive definite in float64
# Of the logarithm of a lengthscale, beside half the logarithm of the number of columns (Hvarfner et al. 2024, eq. 7).
_PRIOR_MEAN, _PRIOR_VARIANCE = 2**0.5, 3.0
_STOPPING_RULE = {"ftol": 1e-5, "maxiter": 100}  # of L-BFGS


def learn_lengthscales(x: Tensor, y: Tensor, noise_factors: Tensor | None = None, *, has_prior: bool = False) -> Tensor:
    r"""
    Return the lengthscales (`D`, float64, in units of x) of a Matern-3/2 kernel with the largest marginal likelihood.

    The model is an exact Gaussian process :math:`y \sim N(c, s K + \sigma^2 I)`, maximized over c, s and
    :math:`\sigma^2` as well, by L-BFGS from lengthscales of :math:`\sqrt{D}` standard deviations, where a constant
    column without a prior stays.

    The prior is log-normal, :math:`\log l \sim N(\sqrt 2 + \tfrac12 \log D, 3)` in standard deviations of the columns
    (Hvarfner, Hellsten & Nardi 2024, "Vanilla Bayesian optimization performs great in high dimensions", section 4).
    Without it, few rows choose some short lengthscales among many columns by chance.

    :param y: `n` targets, or `n x T` of several, with all hyperparameters but the mean in common.
    :param noise_factors: `n` factors of the noise at the rows. (Default: 1.)
    :param has_prior: Whether to maximize the posterior density instead. (Default: no.)
    """
    unit, num_columns = _deviation(x.double()), x.shape[1]
    points, targets = (x.double() - x.double().mean(0)) / unit, _standardized(y.double(), noise_factors)
    factors = torch.ones_like(points[:, 0]) if noise_factors is None else noise_factors

    def objective(logs: np.ndarray) -> tuple[float, np.ndarray]:
        covariance, derivatives = _covariance(points, torch.from_numpy(logs).to(points).exp(), factors)
        loss, sensitivity = _negative_log_likelihood(covariance, targets)
        gradient = derivatives(sensitivity).cpu().numpy()
        excess, by_prior = logs[:-2] - prior_mean, np.zeros_like(logs)
        by_prior[:-2] = has_prior * excess / (_PRIOR_VARIANCE * len(targets))
        return loss + 0.5 * float(excess @ by_prior[:-2]), gradient + by_prior

    prior_mean = _PRIOR_MEAN + 0.5 * np.log(num_columns)
    start = np.log([num_columns**0.5] * num_columns + [1.0, 0.1])
    bounds = np.log([_LENGTHSCALE_BOUNDS] * num_columns + [_OUTPUTSCALE_BOUNDS, _NOISE_BOUNDS])
    found = minimize_lbfgsb(objective, start, bounds=bounds, options=_STOPPING_RULE)
    return unit * torch.from_numpy(found.x[:num_columns]).exp().to(unit)


def _deviation(values: Tensor) -> Tensor:
    """Standard deviations of columns, 1 for those that are constant; `Standardization` rounds them differently."""
    deviation = values.std(0, correction=0)
    return torch.where(deviation > 0, deviation, 1)


def _standardized(y: Tensor, noise_factors: Tensor | None) -> Tensor:
    """Return targets of mean 0 and deviation 1; those of more noise than usual count less."""
    if noise_factors is None:
        return (y - y.mean(0)) / _deviation(y)
    return Standardization.of_weighted(y, (1 / noise_factors).clamp_max(1.0)).apply(y)


def _covariance(x: Tensor, values: Tensor, noise_factors: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    r"""
    Return the covariance, and the function from a loss's derivative G by it to those by the logarithms of the values.

    With :math:`z = x / l` and distance r, :math:`s k(r) = s (1 + \sqrt 3 r) e^{-\sqrt 3 r}` has the derivative
    :math:`3 s e^{-\sqrt 3 r} (z_d - z'_d)^2` by :math:`\log l_d`.
    """
    z, scale, noise = x / values[:-2], values[-2], values[-1] * noise_factors
    distance = 3**0.5 * torch.cdist(z, z)
    decay = torch.exp(-distance)
    signal = scale * torch.addcmul(decay, distance, decay)

    def derivatives(sensitivity: Tensor) -> Tensor:
        by_square = 3 * scale * sensitivity * decay  # symmetric, as G is
        by_lengthscales = 2 * (by_square.sum(1) @ z.square() - (z * (by_square @ z)).sum(0))
        others = torch.stack([(sensitivity * signal).sum(), sensitivity.diagonal() @ noise])
        return torch.cat([by_lengthscales, others])

    return signal + torch.diag(noise), derivatives


def _negative_log_likelihood(covariance: Tensor, y: Tensor) -> tuple[float, Tensor]:
    r"""
    Minus the log density of the targets per row, up to a constant, and its derivative by their covariance A.

    It is :math:`(A^{-1} - a a^\top) / 2n`, where :math:`a = A^{-1} (y - c)` for the best constant mean c.
    """
    root = stable_cholesky(covariance)
    if y.dim() == 2:
        return _of_several(root, y)
    data, ones = torch.cholesky_solve(torch.stack([y, torch.ones_like(y)], -1), root).unbind(-1)
    mean = data.sum() / ones.sum()
    weights = data - mean * ones
    loss = 0.5 * (y - mean) @ weights + root.diagonal().log().sum()
    sensitivity = 0.5 * (torch.cholesky_inverse(root) - torch.outer(weights, weights))
    return loss.item() / y.numel(), sensitivity / y.numel()


def _of_several(root: Tensor, y: Tensor) -> tuple[float, Tensor]:
    """Average over several targets (`n x T`) of the same covariance, each with a mean of its own."""
    solved = torch.cholesky_solve(torch.cat([y, torch.ones_like(y[:, :1])], 1), root)
    data, ones = solved[:, :-1], solved[:, -1:]
    mean = data.sum(0) / ones.sum()
    weights = data - mean * ones
    loss = 0.5 * ((y - mean) * weights).sum() / y.shape[1] + root.diagonal().log().sum()
    sensitivity = 0.5 * (torch.cholesky_inverse(root) - weights @ weights.mT / y.shape[1])
    return loss.item() / len(y), sensitivity / len(y)
