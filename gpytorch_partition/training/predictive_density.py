"""Weights, noise and tails of a sum of kernels by the predictive density of held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from scipy.optimize import OptimizeResult
from torch import Tensor

from gpytorch_partition.likelihoods.scale_mixture import gaussian_log_densities, log_densities
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.linalg.parallel import idle_threads, minimize_lbfgsb
from gpytorch_partition.settings import eager_kernels

# Bounds of the exponent of the noise: inside those of its likelihood, 0 and 3, where its raw parameter is infinite.
EXPONENTS = (0.0, 2.9)
FIXED = (0.0, 0.0)  # of a logarithm or an exponent that is not searched
_LOG_WEIGHTS, _LOG_SCALES = (-9.0, 5.0), (-4.0, 4.0)  # bounds of the logarithms of weights, and of targets' scales
_LOG_NOISE = (math.log(1e-4), 1.0)  # bounds of the logarithm of the noise
_LEAST_START = 0.01  # least weight to start from: at the bound the logarithm has no gradient, and the weight would stay
_LEAST_VARIANCE = 1e-10  # least variance of standardized targets, where rounding leaves less
# Nats for every factor e of the noise. Where neighbors differ, held-out rows cannot distinguish noise from a function
# that varies as quickly; where points are measured again, an interval that mistook noise for it is too narrow.
_NOISE_BONUS = 1.0
_RELATIVE_TOLERANCE = 1e-8  # of the search: with 3e-6, rounding decided where it ended, .4 nats apart in 700 rows
_MOST_SHARED_ITERATIONS = 40  # of the search for the weights that targets share
_START, _START_NOISE = 0.5, 0.2  # sum of the weights, and noise, in variances of the targets
_DECIMALS = 9  # kept decimals of logarithms
DEGREES_OF_FREEDOM = (2.5, 3.0, 4.0, 6.0, 10.0)  # the variance is finite; above them, noise is nearly Gaussian
# Bounds of the squared scale over the variance of Gaussian noise, which a few outliers of 1e5 deviations make 1e8.
_LOG_FACTORS = (math.log(1e-12), math.log(4.0))


@dataclass(frozen=True, eq=False)
class Fold:
    """Hold a fold of N rows: c covariances of the n rows kept and the t rows held out."""

    within: Tensor  # c x n x n, of the rows kept
    cross: Tensor  # c x n x t, of rows kept and held out
    prior: Tensor  # c x t variances of the held-out rows
    kept: Tensor  # (n,) numbers of the rows to learn from (int64)
    held_out: Tensor  # (t,) numbers of the rows to predict (int64)

    @classmethod
    def of(cls, covariances: Tensor, kept: Tensor, held_out: Tensor) -> Fold:
        """Return the fold of covariances of all rows (`c x N x N`), which have not seen targets of held-out rows."""
        rows = covariances[:, kept]
        prior = covariances[:, held_out, held_out]
        return cls(rows[..., kept], rows[..., held_out], prior, kept, held_out)


@torch.no_grad()
def dense_covariances(kernels: Iterable[Kernel], x: Tensor) -> Tensor:
    """Return covariances of a few rows, `c x n x n`, summed in float64: float32 left no Cholesky factor."""
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
    r"""Hold the weights and noise of :math:`y \sim N(0, \sum_i s_i K_i + \sigma^2 \mathrm{diag}(e^{b z}))`."""

    outputscales: Tensor  # (c,) weights s
    noise: float  # the level sigma^2
    exponent: float  # b; 0 where no log ratios z were given
    log_density: float  # mean log predictive density of the held-out rows, in nats

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
    max_iterations: int = 300,
) -> PredictiveFit:
    """
    Return the weights and noise that maximize the mean log density of held-out rows, by L-BFGS-B.

    Every factor e of the noise counts as a nat, since held-out rows cannot distinguish noise from a function that
    varies as quickly. The density returned is without these nats.

    :param targets: `N` targets, of mean 0 (float64).
    :param log_ratios: `N` logarithms z of the noise's ratio to its level, with which the exponent is chosen as well.
        (Default: a constant noise.)
    :param noise_factors: `N` known factors of the noise at the rows. (Default: 1.)
    :param start: Values to start from, weights at least .01. (Default: weights that sum to .5, a noise of .2, an
        exponent of .5.)
    :param enough: Mean log density beyond which the search ends early. (Default: none.)
    """
    ratios = torch.zeros_like(targets) if log_ratios is None else log_ratios
    exponents = (0.0, 0.0) if log_ratios is None else EXPONENTS
    num_weights, num_held_out = len(folds[0].within), sum(len(fold.held_out) for fold in folds)
    start = start or PredictiveFit(torch.full((num_weights,), _START / num_weights), _START_NOISE, 0.0, -math.inf)
    exponent = start.exponent or (0.0 if log_ratios is None else 0.5)
    weights = start.outputscales.clamp_min(_LEAST_START)
    position = np.array([*weights.log().tolist(), math.log(start.noise), exponent])
    bounds = [_LOG_WEIGHTS] * num_weights + [_LOG_NOISE, exponents]

    def loss_at(fold: Fold, values: np.ndarray, found: Future[Any]) -> tuple[float, np.ndarray]:
        return _loss_of(fold, targets, ratios, values, *found.result())

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        total, gradient = 0.0, np.zeros_like(values)
        # In two steps, so that two threads share three folds evenly; the second waits for a first that has begun.
        predicted = [submit(_at, fold, targets, ratios, values, noise_factors) for fold in folds]
        for each in [submit(loss_at, fold, values, found) for fold, found in zip(folds, predicted)]:
            part, part_gradient = each.result()
            total, gradient = total + part / num_held_out, gradient + part_gradient / num_held_out
        gradient[-2] -= _NOISE_BONUS / num_held_out
        return total - _NOISE_BONUS * values[-2] / num_held_out, gradient

    def log_density(result: OptimizeResult) -> float:
        return -float(result.fun) - _NOISE_BONUS * float(result.x[-2]) / num_held_out

    def stop_beyond_enough(intermediate_result: OptimizeResult) -> None:
        if log_density(intermediate_result) > enough:
            raise StopIteration

    options = {"maxiter": max_iterations, "ftol": _RELATIVE_TOLERANCE}
    with idle_threads() as submit:
        found = minimize_lbfgsb(loss, position, bounds=bounds, callback=stop_beyond_enough, options=options)
    weights = torch.from_numpy(found.x[:num_weights]).exp()
    return PredictiveFit(weights, math.exp(found.x[-2]), float(found.x[-1]), log_density(found))


def held_out_predictions(
    folds: Sequence[Fold], targets: Tensor, fit: PredictiveFit, noise_factors: Tensor, log_ratios: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return means and variances without the noise (`N` each) of the rows held out, each once; NaN for others."""
    noise = fit.noise_at(torch.zeros_like(targets) if log_ratios is None else log_ratios) * noise_factors
    means, variances = torch.full_like(targets, math.nan), torch.full_like(targets, math.nan)
    for fold in folds:
        found = _predicted(fold, targets, fit.outputscales, noise)
        means[fold.held_out], variances[fold.held_out] = found.means, found.variances
    return means, variances


def _at(
    fold: Fold, targets: Tensor, log_ratios: Tensor, values: np.ndarray, noise_factors: Tensor | float = 1.0
) -> tuple[_Prediction, Tensor]:
    """Return predictions of a fold by the values that are searched, and the variances of the noise (`N`)."""
    noise = (float(values[-2]) + float(values[-1]) * log_ratios).exp() * noise_factors
    return _predicted(fold, targets, torch.from_numpy(values[:-2]).exp(), noise), noise


def _loss_of(
    fold: Fold, targets: Tensor, log_ratios: Tensor, values: np.ndarray, found: _Prediction, noise: Tensor
) -> tuple[float, np.ndarray]:
    variances = found.variances + noise[fold.held_out]
    errors = targets[fold.held_out] - found.means
    loss = -gaussian_log_densities(errors, variances).sum()
    by_mean, by_variance = -errors / variances, 0.5 * (1 - errors.square() / variances) / variances
    by_weights, by_kept = _derivatives(fold, found, by_mean, by_variance)
    by_noise = torch.zeros_like(noise)
    by_noise[fold.kept], by_noise[fold.held_out] = by_kept, by_variance
    by_noise = by_noise * noise
    outputscales = torch.from_numpy(values[:-2]).exp()
    gradient = [*(by_weights * outputscales), by_noise.sum(), by_noise @ log_ratios]
    return loss.item(), np.array(gradient, dtype=float)


class _Prediction(NamedTuple):
    means: Tensor  # (t,)
    variances: Tensor  # (t,) without the noise
    weights: Tensor  # (n,) A^-1 y
    solved: Tensor  # (n, t) W = A^-1 C, with C the covariances of rows kept and held out


def _predicted(fold: Fold, targets: Tensor, outputscales: Tensor, noise: Tensor) -> _Prediction:
    """Return the Gaussian conditional of the held-out rows (Rasmussen & Williams 2006, algorithm 2.1)."""
    within, cross, prior = (torch.tensordot(outputscales, part, 1) for part in (fold.within, fold.cross, fold.prior))
    root = stable_cholesky(within + torch.diag(noise[fold.kept]))
    solved = torch.cholesky_solve(torch.cat([targets[fold.kept, None], cross], 1), root)
    weights, solved = solved[:, 0], solved[:, 1:]
    variances = prior - (cross * solved).sum(0)
    return _Prediction(cross.mT @ weights, variances.clamp_min(_LEAST_VARIANCE), weights, solved)


def _derivatives(fold: Fold, found: _Prediction, by_mean: Tensor, by_variance: Tensor) -> tuple[Tensor, Tensor]:
    r"""
    Derivatives of a loss by the weights of the covariances and the noise of rows kept, by those of means, variances.

    With g and h the latter, :math:`\partial_C = \alpha g^\top - 2 W \mathrm{diag}(h)` and
    :math:`\partial_A = -\mathrm{sym}(\alpha (W g)^\top) + W \mathrm{diag}(h) W^\top`.
    """
    outer = torch.outer(found.weights, found.solved @ by_mean)
    by_within = (found.solved * by_variance) @ found.solved.mT - 0.5 * (outer + outer.mT)
    by_cross = torch.outer(found.weights, by_mean) - 2 * found.solved * by_variance
    by_weights = (
        torch.tensordot(fold.within, by_within, 2) + torch.tensordot(fold.cross, by_cross, 2) + fold.prior @ by_variance
    )
    return by_weights, by_within.diagonal()


@dataclass(frozen=True, eq=False)
class SharedFit:
    r"""Hold the values found, with target t as :math:`N(0, b_t \sum_i w_i K_i + d_t I)`."""

    outputscales: Tensor  # (c,) weights w
    scales: Tensor  # (T,) factors b with a geometric mean of 1
    noise: Tensor  # (T,) variances d
    log_density: float  # mean log predictive density of the held-out entries, in nats


def maximize_shared_density(folds: Sequence[Fold], targets: Tensor) -> SharedFit:
    """
    Return weights shared by all targets, and scale and noise of each, that predict held-out entries best.

    Targets (`N x T`, of mean 0; NaN is missing) are predicted one by one; their covariance is chosen afterwards. Noise
    counts as in :func:`maximize_predictive_density`, which does this for one target at a T-th of the cost.
    """
    num_parts, num_targets = len(folds[0].within), targets.shape[1]
    own = [(number, fold) for number in range(num_targets) for fold in of_target(folds, targets[:, number])]
    num_held_out = sum(len(fold.held_out) for _, fold in own)

    def loss(position: np.ndarray) -> tuple[float, np.ndarray]:
        weights, scales, noise = np.split(position, [num_parts, num_parts + num_targets])
        total, gradient = 0.0, np.zeros_like(position)
        for number, fold in own:
            values = np.array([*(weights + scales[number]), noise[number], 0.0])
            inputs = fold, targets[:, number], torch.zeros_like(targets[:, number]), values
            part, by = _loss_of(*inputs, *_at(*inputs))
            total += part
            gradient[:num_parts] += by[:num_parts]
            gradient[num_parts + number] += by[:num_parts].sum()
            gradient[num_parts + num_targets + number] += by[num_parts]
        # A common factor of all weights equals one of all scales, so scales are centred.
        total += 0.5 * float(scales.sum()) ** 2 - _NOISE_BONUS * float(noise.sum())
        gradient[num_parts : num_parts + num_targets] += scales.sum()
        gradient[num_parts + num_targets :] -= _NOISE_BONUS
        return total / num_held_out, gradient / num_held_out

    start = [math.log(_START / num_parts)] * num_parts + [0.0] * num_targets + [math.log(_START_NOISE)] * num_targets
    bounds = [_LOG_WEIGHTS] * num_parts + [_LOG_SCALES] * num_targets + [_LOG_NOISE] * num_targets
    options = {"maxiter": _MOST_SHARED_ITERATIONS, "ftol": _RELATIVE_TOLERANCE}
    found = minimize_lbfgsb(loss, start, bounds=bounds, options=options)
    # The last digits of the search depend on where arrays lie in memory.
    weights, scales, noise = torch.from_numpy(found.x.round(_DECIMALS)).split([num_parts, num_targets, num_targets])
    log_density = -float(found.fun) - _NOISE_BONUS * float(noise.sum()) / num_held_out
    level = scales.mean()
    return SharedFit((weights + level).exp(), (scales - level).exp(), noise.exp(), log_density)


def of_target(folds: Sequence[Fold], target: Tensor) -> list[Fold]:
    """Return the folds on the rows where a target (`N`) is known, without folds that then keep or hold out no row."""
    known = ~target.isnan()
    found = []
    for fold in folds:
        kept, held_out = known[fold.kept], known[fold.held_out]
        if bool(kept.all()) and bool(held_out.all()):
            found.append(fold)
        elif bool(kept.any()) and bool(held_out.any()):
            within, cross = fold.within[:, kept][..., kept], fold.cross[:, kept][..., held_out]
            found.append(Fold(within, cross, fold.prior[:, held_out], fold.kept[kept], fold.held_out[held_out]))
    return found


@dataclass(frozen=True)
class HeavyTails:
    """Hold the values of Student-t noise that takes the place of Gaussian noise."""

    df: float  # degrees of freedom, above 2
    factor: float  # the squared scale over the variance of the Gaussian noise
    log_density: float  # of all held-out rows together, in nats
    gain: float  # in this log density over Gaussian noise, in nats


def fit_heavy_tails(errors: Tensor, variances: Tensor, noise: Tensor) -> HeavyTails:
    """Return the degrees of freedom and scale of the largest held-out density, and the gain over Gaussian noise."""
    gaussian = float(gaussian_log_densities(errors, variances + noise).sum())
    found = [(*_best_factor(errors, variances, noise, df), df) for df in DEGREES_OF_FREEDOM]
    density, factor, df = max(found)
    return HeavyTails(df, factor, density, density - gaussian)


def _best_factor(errors: Tensor, variances: Tensor, noise: Tensor, df: float) -> tuple[float, float]:
    def loss(position: Tensor) -> Tensor:
        return -log_densities(errors, variances, position.exp() * noise, df).sum()

    found = _minimum(loss, [math.log(0.5)], [_LOG_FACTORS])
    return -float(found.fun), math.exp(found.x[0])


def fit_factors(
    residuals: Tensor,
    variances: Tensor,
    noise: Tensor,
    bounds: list[tuple[float, float]],
    *,
    log_ratios: Tensor | None = None,
    df: float | None = None,
) -> tuple[tuple[float, float, float], float]:
    """
    Return factors of all variances and of the noise, the noise's exponent, and the negative log density reached.

    :param noise: `n` current variances of the noise, without the ratios.
    :param bounds: Least and largest logarithms of both factors, and exponents.
    :param log_ratios: `n` logarithms of the noise's ratio to its level. (Default: None, a constant noise.)
    :param df: Degrees of freedom of Student-t noise. (Default: None, Gaussian noise.)
    """
    ratios = torch.zeros_like(noise) if log_ratios is None else log_ratios

    def loss(position: Tensor) -> Tensor:
        noises = position[0].exp() * noise * (position[1] + position[2] * ratios).exp()
        return -log_densities(residuals, position[0].exp() * variances, noises, df).sum()

    found = _minimum(loss, [0.0, 0.0, min(0.5, bounds[-1][1])], bounds)
    return (math.exp(found.x[0]), math.exp(found.x[1]), float(found.x[2])), float(found.fun)


def _minimum(loss: Callable[[Tensor], Tensor], start: list[float], bounds: list[tuple[float, float]]) -> OptimizeResult:
    """Return the minimum of a function of a few numbers, by L-BFGS-B with PyTorch's gradient."""

    @torch.enable_grad()
    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        position = torch.tensor(values, requires_grad=True)
        total = loss(position)
        return total.item(), torch.autograd.grad(total, position)[0].numpy()

    return minimize_lbfgsb(objective, start, bounds=bounds)
