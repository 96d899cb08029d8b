"""Scale and noise for all rows: weights chosen on a few rows are calibrated by how well all others are predicted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import gpytorch
import numpy as np
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.inputs.standardization import standardized_columns
from gpytorch_partition.likelihoods import grow_residual_forest
from gpytorch_partition.linalg.minimum import minimum_of
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.presets.assembly import LEAST_NOISE, assemble
from gpytorch_partition.presets.choice import LEAST_GAIN, Choice
from gpytorch_partition.presets.parts import smooth_part
from gpytorch_partition.training.predictive_density import EXPONENTS

# Rows of a fold whose variances are looked at, at most; how many of all folds are enough; and their samples.
_MOST_VARIANCES, _ENOUGH_VARIANCES, _NUM_SAMPLES = 1_000, 300, 32
# Folds, of which only so many are held out that there are enough residuals.
_NUM_FOLDS, _ENOUGH_RESIDUALS = 5, 10_000
# The share of new rows at which landmarks leave out less than the threshold.
_ALMOST_ALL = 0.95
# Bounds of the logarithms of the two factors. The noise moves little beside the weights, which means depend on.
_FACTORS, _RATIOS = (math.log(0.01), math.log(100.0)), (math.log(0.2), math.log(5.0))


def calibrate(choice: Choice, x: Tensor, y: Tensor, random: np.random.RandomState, n_jobs: int | None) -> Choice:
    r"""
    The choice with variances that suit models of all rows.

    What landmarks among all rows do not span of the smooth part counts as noise, the same everywhere, from here on;
    what they leave out beyond what they do at 95 % of new rows will be added where it is. Models of four fifths of the
    rows predict the others, but those that chose. A forest of their residuals says where the noise is; a factor of all
    variances, weights and noise alike, one of the noise beside the weights, and the noise's exponent maximize the
    predictive density of random rows, whose variances come from 32 samples: 1,000 of a fold at most, of as many folds
    as have 300 together.

    :param choice: What few rows say.
    :param x: `N x D` rows, in the units that the choice was made in.
    :param y: `N` standardized targets.
    :param random: Source of the draws.
    :param n_jobs: Trees grown at a time.
    """
    choice = replace(choice, noise=choice.noise + _variance_without_landmarks(choice, x, random))
    folds = list(KFold(_NUM_FOLDS, shuffle=True, random_state=random).split(x))
    found: list[_HeldOut] = []
    for kept, held_out in folds:
        if sum(len(each.rows) for each in found) < _ENOUGH_RESIDUALS:
            is_enough = sum(int(each.has_variance.sum()) for each in found) >= _ENOUGH_VARIANCES
            wanted = 0 if is_enough else _MOST_VARIANCES
            found.append(_held_out(choice, kept, held_out, x, y, random, n_jobs, num_variances=wanted))
    seen = _HeldOut(*map(torch.cat, zip(*found)))
    forest = grow_residual_forest(x[seen.rows], seen.residuals, random_state=random, n_jobs=n_jobs)
    kept, held_out = folds[0]
    return replace(_with_factors(choice, seen, forest), threshold=_threshold(choice, x, kept, held_out, random))


class _HeldOut(NamedTuple):
    """Rows that a model has not seen."""

    rows: Tensor  # (n,) their numbers
    residuals: Tensor  # (n,)
    variances: Tensor  # (n,) without the noise; NaN where nobody asked

    @property
    def has_variance(self) -> Tensor:
        """Which of them have one (`n`, bool)."""
        return ~self.variances.isnan()


def _variance_without_landmarks(choice: Choice, x: Tensor, random: np.random.RandomState) -> float:
    """The mean variance of the smooth part that is missing; among the few rows that chose, landmarks were dense."""
    if "smooth" not in choice.outputscales:
        return 0.0
    some = random.permutation(len(x))[:_MOST_VARIANCES]
    return choice.outputscales["smooth"] * float(_unspanned(choice, x, np.arange(len(x)), some, random).mean())


def _threshold(
    choice: Choice, x: Tensor, kept: np.ndarray, held_out: np.ndarray, random: np.random.RandomState
) -> float | None:
    """What landmarks among the rows kept leave out of the smooth part, of unit scale, at almost all of the others."""
    if "smooth" not in choice.outputscales:
        return None
    some = random.permutation(held_out)[:_MOST_VARIANCES]
    return float(_unspanned(choice, x, kept, some, random).quantile(_ALMOST_ALL))


def _unspanned(choice: Choice, x: Tensor, kept: np.ndarray, rows: np.ndarray, random: np.random.RandomState) -> Tensor:
    """Shares of the smooth part's variance at some rows that landmarks among the rows kept do not span."""
    assert choice.lengthscales is not None
    points = standardized_columns(x)
    with torch.no_grad():
        return 1 - smooth_part(points[kept], choice.lengthscales, random)(points[rows], diag=True)


def _held_out(
    choice: Choice,
    kept: np.ndarray,
    held_out: np.ndarray,
    x: Tensor,
    y: Tensor,
    random: np.random.RandomState,
    n_jobs: int | None,
    *,
    num_variances: int,
) -> _HeldOut:
    """
    What a model of the rows kept says about the others, and how sure it is of so many of them at most.

    Rows that weights and lengthscales were chosen by are learned from, but not predicted.
    """
    points = torch.from_numpy(random.permutation(np.setdiff1d(held_out, choice.rows.numpy())))
    model = assemble(choice, x[kept], y[kept], random, n_jobs).eval()
    variances = y.new_full((len(points),), math.nan)
    with torch.no_grad(), settings.iterative(), gpytorch.settings.debug(False):
        residuals = y[points] - model(x[points]).mean.to(y)
        if num_variances:
            variances[:num_variances] = _variances(model, x[points[:num_variances]], random).to(y)
    return _HeldOut(points, residuals, variances)


def _with_factors(choice: Choice, seen: _HeldOut, forest: RandomForestRegressor) -> Choice:
    """The choice with the factors and the noise that suit the residuals best."""
    residuals, variances = seen.residuals[seen.has_variance], seen.variances[seen.has_variance]
    ratios = torch.from_numpy(forest.oob_prediction_)[seen.has_variance]
    constant = _fit(residuals, variances, torch.zeros_like(ratios), choice.noise, (0.0, 0.0))
    varying = _fit(residuals, variances, ratios, choice.noise, EXPONENTS)
    varies = constant[1] - varying[1] > LEAST_GAIN
    (log_factor, log_ratio, exponent), loss = varying if varies else constant
    factor, ratio = math.exp(log_factor), math.exp(log_ratio)
    return replace(
        choice,
        outputscales={name: factor * weight for name, weight in choice.outputscales.items()},
        noise=max(factor * ratio * choice.noise, LEAST_NOISE),
        exponent=float(exponent),
        noise_forest=forest if varies else None,
        log_density=-loss / len(variances),
    )


def _variances(model: PartitionGP, x: Tensor, random: np.random.RandomState) -> Tensor:
    """Of the function, from samples."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.randint(2**31))
        return model(x).sample(torch.Size([_NUM_SAMPLES])).var(0)


def _fit(
    residuals: Tensor, variances: Tensor, ratios: Tensor, noise: float, exponents: tuple[float, float]
) -> tuple[np.ndarray, float]:
    """Log factors of all variances and of the noise, and its exponent; and minus the log density of the residuals."""

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        position = torch.tensor(values, requires_grad=True)
        variance = position[0].exp() * (variances + noise * (position[1] + position[2] * ratios).exp())
        total = 0.5 * ((2 * math.pi * variance).log() + residuals.square() / variance).sum()
        total.backward()
        assert position.grad is not None
        return total.item(), position.grad.numpy()

    start = np.array([0.0, 0.0, min(0.5, exponents[1])])
    found = minimum_of(loss, start, bounds=[_FACTORS, _RATIOS, exponents])
    return found.x, float(found.fun)
