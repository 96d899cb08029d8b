"""First step: the weights of the parts and the noise, by the predictive density of held-out rows."""

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
from gpytorch_partition.presets.parts import ENSEMBLE, ROUGH, PartInputs, new_parts
from gpytorch_partition.presets.rough_field import Candidate, rough_field
from gpytorch_partition.tables import cross_fitted
from gpytorch_partition.training.predictive_density import (
    Fold,
    PredictiveFit,
    dense_covariances,
    held_out_predictions,
    maximize_predictive_density,
)


@dataclass(frozen=True, eq=False)
class Choice:
    r"""
    What was chosen from the data, in units of standardized columns and targets.

    :param outputscales: Weights of the parts that the model has, by name.
    :param lengthscales: Lengthscales of the smooth part, one for each column that it sees.
    :param noise: The level of the noise.
    :param exponent: Exponent of the variation of the noise with x; 0 where it is constant.
    :param noise_forest: Predicts the log squared residuals; None where the noise is constant.
    :param log_density: Mean log predictive density of held-out rows, those of patches included, in nats.
    :param rows: Numbers of the training rows that this was chosen by.
    :param threshold: Share of the smooth part's variance that inducing points may leave unspanned before it is added
        to the noise; None where it is never added.
    """

    outputscales: dict[str, float]
    lengthscales: Tensor
    noise: float
    exponent: float
    noise_forest: RandomForestRegressor | None
    log_density: float
    rows: Tensor
    threshold: float | None = None

    @property
    def is_rough(self) -> bool:
        """Whether this is a rough field, whose weights random rows and patches of neighbors chose."""
        return not self.outputscales.keys().isdisjoint(ROUGH)


def choose(data: TrainingData, setup: Setup) -> Choice:
    """
    Weights and noise by cross-validation, on all rows or on 700 to 1,500 random ones.

    Where there are many more rows than that, a rough field
    (:func:`~gpytorch_partition.presets.rough_field.rough_field`) replaces all other parts if that gains more than 20
    nats, with as many trees as the model will have. The noise varies with x where that gains more than 3 nats.

    :param data: Rows, in the units of the points that the noise's forest will be given, and targets.
    :param setup: Source of the draws, and the options.
    """
    # Rounded, so that units of the data, which change the last digits only, do not change the choice.
    x, y = data.x.float().double(), data.y.float().double()
    candidate = _best_candidate if setup.refit is None else _of_ensemble
    names, folds, rows, constant, lengthscales = candidate(replace(PartInputs.of(data, setup), x=x, y=y))
    means, variances = held_out_predictions(folds, y[rows], constant)
    residuals = (y[rows] - means) / (variances + constant.noise).sqrt()
    # Without patches, which overlap: a row that is out of a tree's bag must not be in it under another number.
    seen = rows[: num_rows_for(len(y), setup.options)]
    num_trees = setup.options.num_noise_trees
    forest = grow_residual_forest(data.rows[seen], residuals[: len(seen)], num_trees=num_trees, **setup.growing)
    log_ratios = _out_of_sample(forest, data.rows, seen, rows)
    varying = maximize_predictive_density(folds, y[rows], log_ratios=log_ratios, start=constant)
    varies = (varying.log_density - constant.log_density) * len(rows) > setup.options.least_noise_gain
    fit = varying if varies else constant
    weights = _those_that_count(names, fit, setup.options)
    return Choice(weights, lengthscales, fit.noise, fit.exponent, forest if varies else None, fit.log_density, rows)


def _best_candidate(inputs: PartInputs) -> Candidate:
    """
    Trees, smooth and linear parts, or a rough field where that is better.

    The rough field draws from a copy of the random state, so that a trial that fails leaves the model as it would be.
    """
    x, y, setup, options = inputs.x, inputs.y, inputs.setup, inputs.setup.options
    rows = torch.from_numpy(setup.random.permutation(len(y))[: num_rows_for(len(y), options)])
    names, folds, of_folds = _folds(replace(inputs, x=x[rows], y=y[rows]))
    lengthscales = _lengthscales(replace(inputs, x=x[rows], y=y[rows]))
    found = Candidate(names, folds, rows, maximize_predictive_density(folds, y[rows]), lengthscales)
    if not inputs.has_view and needs_calibration(len(y), options) and x.shape[1] <= options.most_rough_columns:
        return rough_field(found, of_folds, x, y, replace(setup, random=deepcopy(setup.random)))
    return found


def _of_ensemble(inputs: PartInputs) -> Candidate:
    """The kernel of a user's ensemble alone, by folds with ensembles that have not seen their held-out rows."""
    x, y, setup = inputs.x, inputs.y, inputs.setup
    assert inputs.original is not None
    rows = torch.from_numpy(setup.random.permutation(len(y))[: num_rows_for(len(y), setup.options)])
    folds = []
    for kept, held_out in _splits(len(rows), setup).split(rows):
        own = rows[kept]
        (part,) = new_parts(replace(inputs, x=x[own], y=y[own], original=inputs.original[own]), (ENSEMBLE,)).values()
        covariances = dense_covariances([part], x[rows])
        folds.append(Fold.of(covariances, torch.from_numpy(kept), torch.from_numpy(held_out)))
    fit = maximize_predictive_density(folds, y[rows])
    return Candidate([ENSEMBLE], folds, rows, fit, torch.ones(x.shape[1], dtype=torch.float64))


def _splits(num_rows: int, setup: Setup) -> KFold:
    """Folds of so many rows, of which many have fewer."""
    fewer = sum(num_rows > number for number in setup.options.fewer_folds_above)
    return KFold(max(2, setup.options.num_folds - fewer), shuffle=True, random_state=setup.random)


def _out_of_sample(forest: RandomForestRegressor, x: Tensor, seen: Tensor, rows: Tensor) -> Tensor:
    """For each of some rows the mean prediction of the trees that have not seen it (out of bag for the rows seen)."""
    predictions = torch.empty(len(x), dtype=torch.float64)
    predictions[rows] = torch.from_numpy(forest.predict(x[rows].cpu().numpy()))
    predictions[seen] = torch.from_numpy(forest.oob_prediction_)
    return predictions[rows]


def num_rows_for(num_rows: int, options: Options) -> int:
    """Number of rows that weights are chosen by."""
    share = min(int(options.choosing_share * num_rows), options.most_choosing_rows)
    return min(num_rows, max(options.fewest_choosing_rows, share))


def needs_calibration(num_rows: int, options: Options) -> bool:
    """Whether the rows that choose are so small a share of all that the others must calibrate what they chose."""
    return num_rows > options.most_uncalibrated * num_rows_for(num_rows, options)


def _lengthscales(inputs: PartInputs) -> Tensor:
    """Those of the columns that the smooth part sees, which may tell a row's own target only by other rows."""
    if not inputs.has_view:
        return learn_lengthscales(inputs.x, inputs.y)
    return learn_lengthscales(cross_fitted(inputs.x, inputs.categories, inputs.y, inputs.setup.random), inputs.y)


def _folds(inputs: PartInputs) -> tuple[list[str], list[Fold], list[Tensor]]:
    """
    The names of the parts, and for each fold their covariances and the lengthscales, all of them built without the
    fold's held-out rows.
    """
    x, y, setup, options = inputs.x, inputs.y, inputs.setup, inputs.setup.options
    names: list[str] = []
    folds, all_lengthscales = [], []
    for kept, held_out in _splits(len(x), setup).split(x):
        some = kept[: options.num_lengthscale_rows]
        lengthscales = _lengthscales(replace(inputs, x=x[some], y=y[some]))
        parts = new_parts(replace(inputs, x=x[kept], y=y[kept], lengthscales=lengthscales))
        parts = {name: part for name, part in parts.items() if name not in options.omitted_parts}
        names = list(parts)
        folds.append(Fold.of(dense_covariances(parts.values(), x), torch.from_numpy(kept), torch.from_numpy(held_out)))
        all_lengthscales.append(lengthscales)
    return names, folds, all_lengthscales


def _those_that_count(names: list[str], fit: PredictiveFit, options: Options) -> dict[str, float]:
    """
    The weights by name, without those at their bound and those that are negligible beside the noise.

    Weights are not compared with each other: a linear part may have a hundred times the weight of the others.
    """
    least = max(options.least_weight, options.least_noise_share * fit.noise)
    weights = {name: float(weight) for name, weight in zip(names, fit.outputscales)}
    return {name: weight for name, weight in weights.items() if weight >= least} or weights
