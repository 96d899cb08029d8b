r"""
Weights of a sum of covariances and the noise by maximum predictive density of held-out rows (K-fold).

A covariance that was built on targets (a forest's) fits these targets too well, and the marginal likelihood takes noise
for signal. Here each fold has covariances of its own, built without the held-out rows, which are then as new as test
rows (Rasmussen & Williams 2006, section 5.3, with folds).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from scipy.optimize import OptimizeResult
from torch import Tensor

from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.linalg.minimum import minimize_lbfgsb
from gpytorch_partition.settings import eager_kernels

_LOG_WEIGHTS = (-9.0, 5.0)  # bounds of the logarithms of the weights
_LOG_NOISE = (math.log(1e-4), 1.0)  # bounds of the logarithm of the noise
# Bounds of the exponent of the noise: inside those of its likelihood, 0 and 3, where its raw parameter is infinite.
EXPONENTS = (0.0, 2.9)
_LEAST_START = 0.01  # least weight to start from: at the bound the logarithm has no gradient, and the weight would stay
_LEAST_VARIANCE = 1e-10  # least variance of standardized targets, where rounding leaves less
# Nats for every factor e of the noise. Where neighbors differ, held-out rows cannot distinguish noise from a function
# that varies as quickly; where points are measured again, an interval that mistook noise for it is too narrow.
_NOISE_BONUS = 1.0
_RELATIVE_TOLERANCE = 3e-6  # of the search: a hundredth of a nat per thousand rows makes no difference


@dataclass(frozen=True, eq=False)
class Fold:
    r"""
    A fold: c covariances of n rows kept and t rows held out, of N.

    :param within: `c x n x n` covariances of the rows kept.
    :param cross: `c x n x t` covariances of rows kept and held out.
    :param prior: `c x t` variances of the held-out rows.
    :param kept: `n` numbers of the rows to learn from (int64).
    :param held_out: `t` numbers of the rows to predict (int64).
    """

    within: Tensor
    cross: Tensor
    prior: Tensor
    kept: Tensor
    held_out: Tensor

    @classmethod
    def of(cls, covariances: Tensor, kept: Tensor, held_out: Tensor) -> Fold:
        r"""
        Return the fold of covariances of all rows.

        :param covariances: `c x N x N` covariances of unit scale; none has seen targets of the held-out rows.
        :param kept: Numbers of the rows to learn from.
        :param held_out: Numbers of the rows to predict.
        """
        rows = covariances[:, kept]
        prior = covariances[:, held_out, held_out]
        return cls(rows[..., kept], rows[..., held_out], prior, kept, held_out)


@torch.no_grad()
def dense_covariances(kernels: Iterable[Kernel], x: Tensor) -> Tensor:
    """
    Return covariances of a few rows, `c x n x n` (float64), in :math:`O(n^2)` for each tree or column of a kernel.

    Sums over clusters are float64 for any `sum_dtype`, since rounding to float32 left no Cholesky factor with a noise
    of a ten-thousandth.

    :param kernels: The c kernels.
    :param x: `n x D` rows.
    """
    with eager_kernels():
        return torch.stack([_dense(kernel, x) for kernel in kernels])


def _dense(kernel: Kernel, x: Tensor) -> Tensor:
    rounded: list[Any] = [module for module in kernel.modules() if getattr(module, "sum_dtype", None) == torch.float32]
    for module in rounded:
        module.sum_dtype = torch.float64
    covariance = kernel(x).to_dense().double()
    for module in rounded:
        module.sum_dtype = torch.float32
    return covariance


@dataclass(frozen=True, eq=False)
class PredictiveFit:
    r"""
    The weights and noise of :math:`y \sim N(0, \sum_i s_i K_i + \sigma^2 \mathrm{diag}(e^{b z}))`.

    :param outputscales: `c` weights s.
    :param noise: The level :math:`\sigma^2`.
    :param exponent: The exponent b; 0 where no log ratios z were given.
    :param log_density: Mean log predictive density of the held-out rows, in nats.
    """

    outputscales: Tensor
    noise: float
    exponent: float
    log_density: float

    def noise_at(self, log_ratios: Tensor) -> Tensor:
        """Return the variances of the noise (`N`) at rows with these log ratios to its level (`N`)."""
        return self.noise * (self.exponent * log_ratios).exp()


def maximize_predictive_density(
    folds: Sequence[Fold],
    targets: Tensor,
    *,
    log_ratios: Tensor | None = None,
    noise_factors: Tensor | float = 1.0,
    start: PredictiveFit | None = None,
    enough: float = math.inf,
    max_iterations: int = 40,
) -> PredictiveFit:
    r"""
    Return weights and noise that predict held-out rows best, by L-BFGS-B on their mean log density.

    Every factor e of the noise counts as a nat, since held-out rows cannot distinguish noise from a function that
    varies as quickly. The density returned is without these nats.

    An evaluation costs a Cholesky factor for each fold and a few products, :math:`O(c N^2 + N^3)`; it holds the folds'
    covariances and a few matrices beside them. Meant for some hundred to two thousand rows.

    :param folds: The folds.
    :param targets: `N` targets, of mean 0 (float64).
    :param log_ratios: `N` logarithms z of the noise's ratio to its level, with which the exponent is chosen as well.
        (Default: a constant noise.)
    :param noise_factors: `N` known factors of the noise at the rows. (Default: 1.)
    :param start: Values to start from, weights at least .01. (Default: weights that sum to .5, a noise of .2, an
        exponent of .5.)
    :param enough: Mean log density beyond which the search ends early. (Default: none.)
    :param max_iterations: L-BFGS-B iterations at most. (Default: 40.)
    :return: The values found.

    Example:
        >>> x = torch.linspace(-3, 3, 60, dtype=torch.float64)
        >>> smooth = torch.exp(-(x[:, None] - x).square())
        >>> folds = [Fold.of(smooth[None], (torch.arange(60) % 3 != k).nonzero()[:, 0],
        ...               (torch.arange(60) % 3 == k).nonzero()[:, 0]) for k in range(3)]
        >>> noise = 0.1 * torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> fit = maximize_predictive_density(folds, x.sin() + noise)
        >>> 0.005 < fit.noise < 0.02
        True
    """
    ratios = torch.zeros_like(targets) if log_ratios is None else log_ratios
    exponents = (0.0, 0.0) if log_ratios is None else EXPONENTS
    num_weights, num_held_out = len(folds[0].within), sum(len(fold.held_out) for fold in folds)
    start = start or PredictiveFit(torch.full((num_weights,), 0.5 / num_weights), 0.2, 0.0, -math.inf)
    exponent = start.exponent or (0.0 if log_ratios is None else 0.5)
    weights = start.outputscales.clamp_min(_LEAST_START)
    position = np.array([*weights.log().tolist(), math.log(start.noise), exponent])
    bounds = [_LOG_WEIGHTS] * num_weights + [_LOG_NOISE, exponents]

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        total, gradient = 0.0, np.zeros_like(values)
        for fold in folds:
            part, part_gradient = _loss_of(fold, targets, ratios, values, noise_factors)
            total, gradient = total + part / num_held_out, gradient + part_gradient / num_held_out
        gradient[-2] -= _NOISE_BONUS / num_held_out
        return total - _NOISE_BONUS * values[-2] / num_held_out, gradient

    def log_density(result: OptimizeResult) -> float:
        return -float(result.fun) - _NOISE_BONUS * float(result.x[-2]) / num_held_out

    def stop_beyond_enough(intermediate_result: OptimizeResult) -> None:
        if log_density(intermediate_result) > enough:
            raise StopIteration

    options = {"maxiter": max_iterations, "ftol": _RELATIVE_TOLERANCE}
    found = minimize_lbfgsb(loss, position, bounds=bounds, callback=stop_beyond_enough, options=options)
    weights = torch.from_numpy(found.x[:num_weights]).exp()
    return PredictiveFit(weights, math.exp(found.x[-2]), float(found.x[-1]), log_density(found))


def held_out_predictions(
    folds: Sequence[Fold],
    targets: Tensor,
    fit: PredictiveFit,
    log_ratios: Tensor | None = None,
    noise_factors: Tensor | float = 1.0,
) -> tuple[Tensor, Tensor]:
    """
    Return each fold's predictions of its held-out rows.

    :param folds: The folds, which hold out no row twice.
    :param targets: `N` targets, of mean 0.
    :param fit: The values to predict with.
    :param log_ratios: `N` logarithms of the noise's ratio to its level. (Default: a constant noise.)
    :param noise_factors: `N` known factors of the noise at the rows. (Default: 1.)
    :return: `N` means, and `N` variances without the noise; NaN at rows that are never held out.
    """
    noise = fit.noise_at(torch.zeros_like(targets) if log_ratios is None else log_ratios) * noise_factors
    means, variances = torch.full_like(targets, math.nan), torch.full_like(targets, math.nan)
    for fold in folds:
        found = _predicted(fold, targets, fit.outputscales, noise)
        means[fold.held_out], variances[fold.held_out] = found.means, found.variances
    return means, variances


def _loss_of(
    fold: Fold, targets: Tensor, log_ratios: Tensor, values: np.ndarray, noise_factors: Tensor | float = 1.0
) -> tuple[float, np.ndarray]:
    """Minus the log predictive density of the held-out rows, and its gradient."""
    outputscales, exponent = torch.from_numpy(values[:-2]).exp(), float(values[-1])
    noise = (float(values[-2]) + exponent * log_ratios).exp() * noise_factors
    found = _predicted(fold, targets, outputscales, noise)
    variances = found.variances + noise[fold.held_out]
    errors = targets[fold.held_out] - found.means
    loss = 0.5 * ((2 * math.pi * variances).log() + errors.square() / variances).sum()
    by_mean, by_variance = -errors / variances, 0.5 * (1 - errors.square() / variances) / variances
    by_weights, by_kept = _derivatives(fold, found, by_mean, by_variance)
    by_noise = torch.zeros_like(noise)
    by_noise[fold.kept], by_noise[fold.held_out] = by_kept, by_variance
    by_noise = by_noise * noise
    gradient = [*(by_weights * outputscales), by_noise.sum(), by_noise @ log_ratios]
    return loss.item(), np.array(gradient, dtype=float)


class _Prediction(NamedTuple):
    means: Tensor  # (t,)
    variances: Tensor  # (t,) without the noise
    weights: Tensor  # (n,) A^-1 y
    solved: Tensor  # (n, t) W = A^-1 C, with C the covariances of rows kept and held out


def _predicted(fold: Fold, targets: Tensor, outputscales: Tensor, noise: Tensor) -> _Prediction:
    """The Gaussian conditional of the held-out rows (Rasmussen & Williams 2006, algorithm 2.1)."""
    within, cross, prior = (torch.tensordot(outputscales, part, 1) for part in (fold.within, fold.cross, fold.prior))
    root = stable_cholesky(within + torch.diag(noise[fold.kept]))
    solved = torch.cholesky_solve(torch.cat([targets[fold.kept, None], cross], 1), root)
    weights, solved = solved[:, 0], solved[:, 1:]
    variances = prior - (cross * solved).sum(0)
    return _Prediction(cross.mT @ weights, variances.clamp_min(_LEAST_VARIANCE), weights, solved)


def _derivatives(fold: Fold, found: _Prediction, by_mean: Tensor, by_variance: Tensor) -> tuple[Tensor, Tensor]:
    r"""
    Derivatives of a loss by the weights of the covariances (`c`) and the noise of rows kept (`n`), from those by the
    means and variances, :math:`g` and :math:`h`.

    The loss depends on the covariances through A, C and the prior variances:
    :math:`\partial_C = \alpha g^\top - 2 W \mathrm{diag}(h)`, :math:`\partial_A = -\mathrm{sym}(\alpha (W g)^\top) + W
    \mathrm{diag}(h) W^\top`.
    """
    outer = torch.outer(found.weights, found.solved @ by_mean)
    by_within = (found.solved * by_variance) @ found.solved.mT - 0.5 * (outer + outer.mT)
    by_cross = torch.outer(found.weights, by_mean) - 2 * found.solved * by_variance
    by_weights = (
        torch.tensordot(fold.within, by_within, 2) + torch.tensordot(fold.cross, by_cross, 2) + fold.prior @ by_variance
    )
    return by_weights, by_within.diagonal()
