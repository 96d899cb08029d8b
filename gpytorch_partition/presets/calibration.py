"""Scale and noise for all rows: weights chosen on a few rows are calibrated by how well all others are predicted."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import gpytorch
import numpy as np
import torch
from scipy.optimize import minimize
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.inference.predictive_fit import EXPONENTS
from gpytorch_partition.kernels.standardized_kernel import standardized_columns
from gpytorch_partition.likelihoods import UnspannedNoise, grow_residual_forest
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.presets.assembly import LEAST_NOISE, assemble
from gpytorch_partition.presets.choice import LEAST_GAIN, Choice
from gpytorch_partition.presets.parts import smooth_part

# Rows whose variances are looked at, and the samples that these come from.
_MOST_VARIANCES, _NUM_SAMPLES = 1_000, 32
# Folds, of which only so many are left out that there are enough residuals.
_NUM_FOLDS, _ENOUGH_RESIDUALS = 5, 10_000
# Nats per row that it may cost to be unsure away from all rows, of which rows left out at random say little.
_CAUTION = 0.01
# Bounds of the logarithms of the two factors. The noise moves little beside the weights, which means depend on.
_FACTORS, _RATIOS = (math.log(0.01), math.log(100.0)), (math.log(0.2), math.log(5.0))


def calibrate(choice: Choice, x: Tensor, y: Tensor, random: np.random.RandomState, n_jobs: int | None) -> Choice:
    r"""
    The choice with variances that suit models of all rows.

    Models of four fifths of the rows predict the others, but those that chose. A forest of their residuals says where
    the noise is; a factor of all variances, weights and noise alike, one of the noise beside the weights, and the
    noise's exponent maximize the predictive density of at most 1,000 random rows of one fold, whose variances come from
    32 samples. By these rows it is also chosen whether what landmarks leave out is counted point by point.

    :param choice: What few rows say.
    :param x: `N x D` rows, in the units that the choice was made in.
    :param y: `N` standardized targets.
    :param random: Source of the draws.
    :param n_jobs: Trees grown at a time.
    """
    folds = list(KFold(_NUM_FOLDS, shuffle=True, random_state=random).split(x))
    # All candidates with the same trees, landmarks, samples and rows to predict.
    leave_out = partial(_left_out, x=x, y=y, seed=random.randint(2**31), n_jobs=n_jobs)
    candidates = _candidates(choice, x, random)
    firsts = [leave_out(candidate, *folds[0], with_variances=True) for candidate in candidates]
    best = _best(candidates, firsts)
    choice, found = candidates[best], [firsts[best]]
    for fold in folds[1:]:
        if sum(len(each.rows) for each in found) < _ENOUGH_RESIDUALS:
            found.append(leave_out(choice, *fold, with_variances=False))
    rows, residuals = (torch.cat([getattr(each, name) for each in found]) for name in ("rows", "residuals"))
    forest = grow_residual_forest(x[rows], residuals, random_state=random, n_jobs=n_jobs)
    return _with_factors(choice, found[0], forest)


class _LeftOut(NamedTuple):
    """Rows that a model has not seen."""

    rows: Tensor  # (n,) their numbers
    residuals: Tensor  # (n,)
    variances: Tensor  # (t,) of the first of them, without the noise


def _candidates(choice: Choice, x: Tensor, random: np.random.RandomState) -> list[Choice]:
    """What landmarks leave out of the smooth part, counted point by point or as a noise that is the same everywhere."""
    weight, points = choice.outputscales.get("smooth", 0.0), standardized_columns(x)
    if not weight or choice.length_scales is None:
        return [choice]
    some = points[torch.from_numpy(random.permutation(len(points))[:_MOST_VARIANCES])]
    with torch.no_grad():
        spanned = smooth_part(points, choice.length_scales, random)(some, diag=True)
    return [replace(choice, fitc=True), replace(choice, noise=choice.noise + weight * float((1 - spanned).mean()))]


def _best(candidates: list[Choice], firsts: list[_LeftOut]) -> int:
    """The number of the candidate to take: the first, unless the second is better by more than caution is worth."""
    losses = [
        _fit(first.residuals, first.variances, torch.zeros_like(first.variances), candidate.noise, (0.0, 0.0))[1]
        for candidate, first in zip(candidates, firsts)
    ]
    return int(len(losses) > 1 and losses[0] - losses[1] > _CAUTION * len(firsts[0].variances))


def _left_out(
    choice: Choice,
    kept: np.ndarray,
    left_out: np.ndarray,
    *,
    x: Tensor,
    y: Tensor,
    seed: int,
    n_jobs: int | None,
    with_variances: bool,
) -> _LeftOut:
    """
    What a model of the rows kept says about the others.

    Rows that weights and length scales were chosen by are learned from, but not predicted.
    """
    random = np.random.RandomState(seed)
    points = torch.from_numpy(random.permutation(np.setdiff1d(left_out, choice.rows.numpy())))
    model = assemble(choice, x[kept], y[kept], random, n_jobs).eval()
    with torch.no_grad(), settings.iterative(), gpytorch.settings.debug(False):
        residuals = y[points] - model(x[points]).mean.to(y)
        some = x[points[:_MOST_VARIANCES]] if with_variances else x[:0]
        return _LeftOut(points, residuals, _variances(model, some, random).to(y) if len(some) else torch.empty(0))


def _with_factors(choice: Choice, first: _LeftOut, forest: RandomForestRegressor) -> Choice:
    """The choice with the factors and the noise that suit the residuals best."""
    ratios = torch.from_numpy(forest.oob_prediction_)[: len(first.variances)]
    constant = _fit(first.residuals, first.variances, torch.zeros_like(ratios), choice.noise, (0.0, 0.0))
    varying = _fit(first.residuals, first.variances, ratios, choice.noise, EXPONENTS)
    varies = constant[1] - varying[1] > LEAST_GAIN
    (log_factor, log_ratio, exponent), loss = varying if varies else constant
    factor, ratio = math.exp(log_factor), math.exp(log_ratio)
    return replace(
        choice,
        outputscales={name: factor * weight for name, weight in choice.outputscales.items()},
        noise=max(factor * ratio * choice.noise, LEAST_NOISE),
        exponent=float(exponent),
        noise_forest=forest if varies else None,
        log_density=-loss / len(first.variances),
    )


def _variances(model: PartitionGP, x: Tensor, random: np.random.RandomState) -> Tensor:
    """Of the function, from samples, with what landmarks leave out."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.randint(2**31))
        variances = model(x).sample(torch.Size([_NUM_SAMPLES])).var(0)
    noise = model.likelihood.noise_covar
    return variances + noise.unspanned(x) if isinstance(noise, UnspannedNoise) else variances


def _fit(
    residuals: Tensor, variances: Tensor, ratios: Tensor, noise: float, exponents: tuple[float, float]
) -> tuple[np.ndarray, float]:
    """Log factors of all variances and of the noise, and its exponent; and minus the log density of the residuals."""
    residuals = residuals[: len(variances)]

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        position = torch.tensor(values, requires_grad=True)
        variance = position[0].exp() * (variances + noise * (position[1] + position[2] * ratios).exp())
        total = 0.5 * ((2 * math.pi * variance).log() + residuals.square() / variance).sum()
        total.backward()
        assert position.grad is not None
        return total.item(), position.grad.numpy()

    start = np.array([0.0, 0.0, min(0.5, exponents[1])])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[_FACTORS, _RATIOS, exponents])
    return found.x, float(found.fun)
