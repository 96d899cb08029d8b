"""Second step, for many rows: scale of all variances and noise, from predictions of held-out rows."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.inputs.row_weights import noise_factors
from gpytorch_partition.likelihoods import grow_residual_forest
from gpytorch_partition.linalg.minimum import minimize_lbfgsb
from gpytorch_partition.linalg.random import drawn_from
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.presets.assembly import assemble
from gpytorch_partition.presets.choice import Choice
from gpytorch_partition.presets.data import TrainingData
from gpytorch_partition.presets.options import Options, Setup
from gpytorch_partition.presets.parts import SMOOTH, num_inducing_points, smooth_part
from gpytorch_partition.stages import step
from gpytorch_partition.tables import NumberView
from gpytorch_partition.training.predictive_density import EXPONENTS


def calibrate(choice: Choice, data: TrainingData, setup: Setup) -> Choice:
    r"""
    The choice with variances that suit models of all rows.

    The mean variance of the smooth part that inducing points do not span is added to the noise. Where they leave more
    unspanned than at 95 % of new rows, the rest is added at prediction (the threshold). Models of four fifths of the
    rows predict the held-out rows, without those that chose. A forest of their residuals models
    how the noise varies. Then a factor of all variances, one of the noise alone, and the noise's exponent maximize the
    predictive density of held-out rows, whose variances come from 32 samples: of 1,000 rows of a fold at most, and of
    so many folds that there are 300.

    :param choice: What few rows have chosen.
    :param data: Rows and targets that the choice was made by.
    :param setup: Source of the draws, and the options.
    """
    options = setup.options
    with step("inducing points"):
        choice = replace(choice, noise=choice.noise + _unspanned_variance(choice, data, setup))
    folds = list(KFold(options.num_calibration_folds, shuffle=True, random_state=setup.random).split(data.x))
    found: list[_HeldOut] = []
    for fold in folds:
        if sum(len(each.rows) for each in found) < options.enough_residuals:
            is_enough = sum(int(each.has_variance.sum()) for each in found) >= options.enough_variances
            wanted = 0 if is_enough else options.most_variances
            found.append(_held_out(choice, fold, data, setup, num_variances=wanted))
    seen = _HeldOut(*map(torch.cat, zip(*found)))
    num_trees = options.num_calibrated_noise_trees
    with step("noise"):
        residuals = _comparable(seen, choice.noise)
        forest = grow_residual_forest(data.rows[seen.rows], residuals, num_trees=num_trees, **setup.growing)
        factored = _with_factors(choice, seen, forest, options)
    with step("inducing points"):
        return replace(factored, threshold=_threshold(choice, folds[0], data, setup))


_Split: TypeAlias = tuple[np.ndarray, np.ndarray]  # numbers of the rows kept and held out


def widened(choice: Choice, data: TrainingData, setup: Setup) -> Choice:
    """
    The choice of few rows with the threshold above which the variance that inducing points lack is added.

    Without it all variance would vanish far from the rows, unless a linear part has a weight. It draws from a copy of
    the random state, so that the model is otherwise as it would be.
    """
    setup = replace(setup, random=deepcopy(setup.random))
    fold = next(KFold(setup.options.num_calibration_folds, shuffle=True, random_state=setup.random).split(data.x))
    return replace(choice, threshold=_threshold(choice, fold, data, setup))


class _HeldOut(NamedTuple):
    """Rows that a model has not seen."""

    rows: Tensor  # (n,) their numbers
    residuals: Tensor  # (n,)
    variances: Tensor  # (n,) without the noise; NaN where they were not computed
    noise_factors: Tensor  # (n,) of the noise at them, by their weights

    @property
    def has_variance(self) -> Tensor:
        """Which of them have one (`n`, bool)."""
        return ~self.variances.isnan()


def _unspanned_variance(choice: Choice, data: TrainingData, setup: Setup) -> float:
    """Mean variance of the smooth part that inducing points do not span; those among few rows are denser."""
    if SMOOTH.name not in choice.outputscales:
        return 0.0
    everything = np.arange(len(data.x))
    return choice.outputscales[SMOOTH.name] * float(_unspanned(choice, (everything, everything), data, setup).mean())


def _threshold(choice: Choice, fold: _Split, data: TrainingData, setup: Setup) -> float | None:
    """The share of the smooth part's variance that is unspanned, at most, at 95 % of the held-out rows."""
    if SMOOTH.name not in choice.outputscales:
        return None
    return float(_unspanned(choice, fold, data, setup).quantile(setup.options.threshold_share))


def _unspanned(choice: Choice, fold: _Split, data: TrainingData, setup: Setup) -> Tensor:
    """Shares of the smooth part's variance at some held-out rows that inducing points of the others do not span."""
    some = setup.random.permutation(fold[1])[: setup.options.most_variances]
    rows, points = data.x[fold[0]], data.x[some]
    if data.has_view:
        weights = None if data.weights is None else data.weights.of_rows(fold[0]).capped
        view = NumberView(rows, data.categories, data.y[fold[0]], weights=weights)
        rows, points = view(rows), view(points)
    with torch.no_grad():
        return 1 - smooth_part(rows, choice.lengthscales, setup)(points, diag=True)


def _held_out(choice: Choice, fold: _Split, data: TrainingData, setup: Setup, *, num_variances: int) -> _HeldOut:
    """
    Residuals of a model of the rows kept at the held-out rows, and variances at so many of these at most.

    Rows that chose weights and lengthscales are among the rows learned from, but are not predicted.
    """
    points = torch.from_numpy(setup.random.permutation(np.setdiff1d(fold[1], choice.rows.numpy())))
    with step("growing trees without a fold"):
        model = assemble(choice, *_learned_from(fold[0], data, setup)).eval()
    x, y = data.rows[points], data.y[points]
    variances = y.new_full((len(points),), math.nan)
    with torch.no_grad(), settings.iterative(), settings.no_debug():
        with step("predicting the fold"):
            residuals = y - model(x).mean.to(y)
        if num_variances:
            with step("variances"):
                variances[:num_variances] = _variances(model, x[:num_variances], setup).to(y)
    return _HeldOut(points, residuals, variances, noise_factors(data.weights, len(data.y))[points])


def _comparable(seen: _HeldOut, noise: float) -> Tensor:
    """The residuals as large as they would be at rows of a usual weight (`n`)."""
    usual = float(seen.variances.nanmean()) + noise
    return seen.residuals * (usual / (usual + noise * (seen.noise_factors - 1))).sqrt()


def _learned_from(kept: np.ndarray, data: TrainingData, setup: Setup) -> tuple[TrainingData, Setup]:
    """The rows kept, or some of them, with no more inducing points than the model of all rows will have."""
    if len(kept) <= (most := setup.options.most_calibration_rows):
        return data.part(kept), setup
    options = replace(setup.options, most_inducing_points=num_inducing_points(len(data.x), setup.options))
    return data.part(np.sort(setup.random.permutation(kept)[: int(most)])), replace(setup, options=options)


def _with_factors(choice: Choice, seen: _HeldOut, forest: RandomForestRegressor, options: Options) -> Choice:
    """The choice with the factors and the noise of the largest predictive density."""
    residuals, variances = seen.residuals[seen.has_variance], seen.variances[seen.has_variance]
    ratios = torch.from_numpy(forest.oob_prediction_)[seen.has_variance]
    noise = choice.noise * seen.noise_factors[seen.has_variance]
    factors = [(math.log(1 / most), math.log(most)) for most in (options.most_rescaling, options.most_noise_rescaling)]
    constant = _fit(residuals, variances, torch.zeros_like(ratios), noise, [*factors, (0.0, 0.0)])
    varying = _fit(residuals, variances, ratios, noise, [*factors, EXPONENTS])
    varies = constant[1] - varying[1] > options.least_noise_gain
    (log_factor, log_ratio, exponent), loss = varying if varies else constant
    factor, ratio = math.exp(log_factor), math.exp(log_ratio)
    return replace(
        choice,
        outputscales={name: factor * weight for name, weight in choice.outputscales.items()},
        noise=max(factor * ratio * choice.noise, options.least_noise),
        exponent=float(exponent),
        noise_forest=forest if varies else None,
        log_density=-loss / len(variances),
    )


def scale_factors(residuals: Tensor, variances: Tensor, noise: float, options: Options) -> tuple[float, float]:
    """
    A factor of all variances and one of the noise beside it that maximize the density of held-out entries.

    :param residuals: `n` residuals; NaN where there is no entry.
    :param variances: `n` variances of the function.
    :param noise: The noise so far.
    :param options: Bounds of the factors.
    """
    known = ~residuals.isnan()
    bounds = [(math.log(1 / most), math.log(most)) for most in (options.most_rescaling, options.most_noise_rescaling)]
    ratios = torch.zeros_like(residuals[known])
    found, _ = _fit(residuals[known], variances[known], ratios, torch.full_like(ratios, noise), [*bounds, (0.0, 0.0)])
    return math.exp(found[0]), math.exp(found[1])


def _variances(model: PartitionGP, x: Tensor, setup: Setup) -> Tensor:
    """Posterior variances of the function, from samples."""
    with drawn_from(setup.random.randint(2**31)):
        return model(x).sample(torch.Size([setup.options.num_variance_samples])).var(0)


def _fit(
    residuals: Tensor, variances: Tensor, ratios: Tensor, noise: Tensor, bounds: list[tuple[float, float]]
) -> tuple[np.ndarray, float]:
    """Log factors of all variances and of the noise, and its exponent; and the negative log density they reach."""

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        position = torch.tensor(values, requires_grad=True)
        variance = position[0].exp() * (variances + noise * (position[1] + position[2] * ratios).exp())
        total = 0.5 * ((2 * math.pi * variance).log() + residuals.square() / variance).sum()
        total.backward()
        assert position.grad is not None
        return total.item(), position.grad.numpy()

    start = np.array([0.0, 0.0, min(0.5, bounds[-1][1])])
    found = minimize_lbfgsb(loss, start, bounds=bounds)
    return found.x, float(found.fun)
