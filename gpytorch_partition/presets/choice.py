"""Which parts count how much, and how large the noise is where: chosen by the predictive density of held-out rows."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold
from torch import Tensor

from gpytorch_partition.inference.evidence.lengthscales import learn_lengthscales
from gpytorch_partition.likelihoods import grow_residual_forest
from gpytorch_partition.presets.data import TrainingData
from gpytorch_partition.presets.options import Options, Setup
from gpytorch_partition.presets.parts import ROUGH, PartInputs, dense_covariances, new_parts
from gpytorch_partition.presets.rough_field import Candidate, rough_field
from gpytorch_partition.training.predictive_density import (
    Fold,
    PredictiveFit,
    held_out_predictions,
    maximize_predictive_density,
)


@dataclass(frozen=True, eq=False)
class Choice:
    r"""
    What the data say about a model of standardized columns and targets.

    :param outputscales: Weights of the parts that count, by name.
    :param lengthscales: `D` lengthscales of the smooth part; None where rows miss values.
    :param noise: The level of the noise.
    :param exponent: How far the noise follows its forest; 0 where it is constant.
    :param noise_forest: Predicts the log squared residuals; None where the noise is constant.
    :param log_density: Mean log predictive density of held-out rows, in nats; those of patches are among them.
    :param rows: Numbers of the training rows that this was chosen by.
    :param threshold: How much of the smooth part's variance inducing points may leave out before that counts; None for
        all.
    """

    outputscales: dict[str, float]
    lengthscales: Tensor | None
    noise: float
    exponent: float
    noise_forest: RandomForestRegressor | None
    log_density: float
    rows: Tensor
    threshold: float | None = None

    @property
    def is_rough(self) -> bool:
        """Whether this is a rough field, chosen at all distances."""
        return not self.outputscales.keys().isdisjoint(ROUGH)


def choose(data: TrainingData, setup: Setup) -> Choice:
    """
    Weights and noise by folds of all rows, or of 700 to 1,500 random ones, each predicted by trees that have not seen
    it.

    Where these are not nearly all rows, a rough field (:func:`~gpytorch_partition.presets.rough_field.rough_field`)
    takes the place of all other parts if that gains more than 20 nats, with as many trees as the model will have. The
    noise varies with x where that gains 3 nats or more over a constant one.

    :param data: Rows, in the units in which the noise will see points, and targets.
    :param setup: Source of the draws, and the options.
    """
    # Rounded, so that other units, whose last digits differ, end in the same choice.
    x, y = data.x.float().double(), data.y.float().double()
    names, folds, rows, constant, lengthscales = _best_candidate(x, y, setup)
    means, variances = held_out_predictions(folds, y[rows], constant)
    residuals = (y[rows] - means) / (variances + constant.noise).sqrt()
    # Patches overlap: a row must not be in a tree under another number when it is out of its bag.
    seen = rows[: num_rows_for(len(y), setup.options)]
    forest = grow_residual_forest(
        data.rows[seen],
        residuals[: len(seen)],
        num_trees=setup.options.num_noise_trees,
        random_state=setup.random,
        n_jobs=setup.n_jobs,
    )
    log_ratios = _out_of_sample(forest, data.rows, seen, rows)
    varying = maximize_predictive_density(folds, y[rows], log_ratios=log_ratios, start=constant)
    varies = (varying.log_density - constant.log_density) * len(rows) > setup.options.least_noise_gain
    fit = varying if varies else constant
    weights = _those_that_count(names, fit, setup.options)
    return Choice(weights, lengthscales, fit.noise, fit.exponent, forest if varies else None, fit.log_density, rows)


def _best_candidate(x: Tensor, y: Tensor, setup: Setup) -> Candidate:
    """
    Trees, smooth and linear parts, or a rough field where that is better.

    The latter draws from a copy of the source: data for which it is tried, and not better, have the model that they
    would have without it.
    """
    options = setup.options
    rows = torch.from_numpy(setup.random.permutation(len(y))[: num_rows_for(len(y), options)])
    is_complete = not bool(x.isnan().any())
    names, folds, of_folds = _folds(x[rows], y[rows], is_complete, setup)
    lengthscales = learn_lengthscales(x[rows], y[rows]) if is_complete else None
    found = Candidate(names, folds, rows, maximize_predictive_density(folds, y[rows]), lengthscales)
    if is_complete and leaves_rows_out(len(y), options) and x.shape[1] <= options.most_rough_columns:
        return rough_field(found, of_folds, x, y, replace(setup, random=deepcopy(setup.random)))
    return found


def _out_of_sample(forest: RandomForestRegressor, x: Tensor, seen: Tensor, rows: Tensor) -> Tensor:
    """What trees that have not seen it predict for each of some rows, given those that the forest was grown on."""
    predictions = torch.empty(len(x), dtype=torch.float64)
    predictions[rows] = torch.from_numpy(forest.predict(x[rows].cpu().numpy()))
    predictions[seen] = torch.from_numpy(forest.oob_prediction_)
    return predictions[rows]


def num_rows_for(num_rows: int, options: Options) -> int:
    """How many of so many rows weights are chosen by."""
    share = min(int(options.choosing_share * num_rows), options.most_choosing_rows)
    return min(num_rows, max(options.fewest_choosing_rows, share))


def leaves_rows_out(num_rows: int, options: Options) -> bool:
    """Whether these are so many rows that those that chose do not stand for them."""
    return num_rows > options.most_uncalibrated * num_rows_for(num_rows, options)


def _folds(x: Tensor, y: Tensor, is_complete: bool, setup: Setup) -> tuple[list[str], list[Fold], list[Tensor]]:
    """
    The names of the parts, and for each fold their covariances and the lengthscales, if any: these and forests have
    not seen the fold.
    """
    names, folds, all_lengthscales, options = [], [], [], setup.options
    num_folds = options.num_folds - sum(len(x) > number for number in options.fewer_folds_above)
    for kept, held_out in KFold(num_folds, shuffle=True, random_state=setup.random).split(x):
        some = kept[: options.num_lengthscale_rows]
        lengthscales = learn_lengthscales(x[some], y[some]) if is_complete else None
        parts = new_parts(PartInputs(x[kept], y[kept], lengthscales, setup))
        parts = {name: part for name, part in parts.items() if name not in options.omitted_parts}
        names = list(parts)
        folds.append(Fold.of(dense_covariances(parts, x), torch.from_numpy(kept), torch.from_numpy(held_out)))
        all_lengthscales += [] if lengthscales is None else [lengthscales]
    return names, folds, all_lengthscales


def _those_that_count(names: list[str], fit: PredictiveFit, options: Options) -> dict[str, float]:
    """
    The weights by name, without those at their bound and those that are lost in the noise.

    Weights are not compared with each other: a linear part may have a hundred times that of the others.
    """
    least = max(options.least_weight, options.least_noise_share * fit.noise)
    weights = {name: float(weight) for name, weight in zip(names, fit.outputscales)}
    return {name: weight for name, weight in weights.items() if weight >= least} or weights
