"""Scale and noise for all rows: weights chosen on a few rows are calibrated by how well all others are predicted."""

from __future__ import annotations

import math
from dataclasses import replace

import gpytorch
import numpy as np
import torch
from scipy.optimize import minimize
from sklearn.model_selection import KFold
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.inference.predictive_fit import EXPONENTS
from gpytorch_partition.likelihoods import UnspannedNoise, grow_residual_forest
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.presets.assembly import LEAST_NOISE, assemble
from gpytorch_partition.presets.choice import LEAST_GAIN, Choice

# Rows whose variances are looked at, and the samples that these come from.
_MOST_VARIANCES, _NUM_SAMPLES = 1_000, 32
# Folds, of which only so many are left out that there are enough residuals.
_NUM_FOLDS, _ENOUGH_RESIDUALS = 5, 10_000
# Bounds of the logarithms of the two factors. The noise moves little beside the weights, which means depend on.
_FACTORS, _RATIOS = (math.log(0.01), math.log(100.0)), (math.log(0.2), math.log(5.0))


def calibrate(choice: Choice, x: Tensor, y: Tensor, random: np.random.RandomState, n_jobs: int | None) -> Choice:
    r"""
    The choice with variances that suit models of all rows.

    Models of four fifths of the rows predict the others, but those that chose. A forest of their residuals says where
    the noise is; a factor of all variances, weights and noise alike, one of the noise beside the weights, and the
    noise's exponent maximize the predictive density of at most 1,000 random rows of one fold, whose variances come from
    32 samples.

    :param choice: What few rows say.
    :param x: `N x D` rows, in the units that the choice was made in.
    :param y: `N` standardized targets.
    :param random: Source of the draws.
    :param n_jobs: Trees grown at a time.
    """
    left_out, residuals, variances = _left_out(choice, x, y, random, n_jobs)
    forest = grow_residual_forest(x[left_out], residuals, random_state=random, n_jobs=n_jobs)
    residuals = residuals[: len(variances)]
    ratios = torch.from_numpy(forest.oob_prediction_)[: len(variances)]
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


def _left_out(
    choice: Choice, x: Tensor, y: Tensor, random: np.random.RandomState, n_jobs: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """
    Numbers of rows, their residuals by models that have not seen them, and the variances of the first of them.

    Rows that weights and length scales were chosen by are learned from, but not predicted.
    """
    rows, residuals, variances = [], [], torch.empty(0)
    for kept, left_out in KFold(_NUM_FOLDS, shuffle=True, random_state=random).split(x):
        points = torch.from_numpy(random.permutation(np.setdiff1d(left_out, choice.rows.numpy())))
        model = assemble(choice, x[kept], y[kept], random, n_jobs).eval()
        with torch.no_grad(), settings.iterative(), gpytorch.settings.debug(False):
            rows.append(points)
            residuals.append(y[points] - model(x[points]).mean.to(y))
            if not len(variances):
                variances = _variances(model, x[points[:_MOST_VARIANCES]], random).to(y)
        if sum(map(len, rows)) >= _ENOUGH_RESIDUALS:
            break
    return torch.cat(rows), torch.cat(residuals), variances


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
