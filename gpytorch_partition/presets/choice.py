"""Which parts count how much, and how large the noise is where: chosen by the predictive density of rows left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold
from torch import Tensor

from gpytorch_partition.inference.length_scales import learn_length_scales
from gpytorch_partition.inference.predictive_fit import (
    Fold,
    PredictiveFit,
    left_out_predictions,
    maximize_predictive_density,
)
from gpytorch_partition.kernels.standardized_kernel import standardized_columns
from gpytorch_partition.likelihoods import grow_residual_forest
from gpytorch_partition.partitions.missing import decode_missing
from gpytorch_partition.presets.parts import ROUGH, new_parts, rough_covariance

# Rows that weights and length scales are chosen by: a quarter, but so many at least and at most.
_FEWEST_ROWS, _MOST_ROWS = 700, 1_500
# Of these, rows that the length scales of a fold are learned on, without the rows left out.
_LENGTH_SCALE_ROWS = 400
# Folds, one less above each of these numbers of rows.
_NUM_FOLDS, _FEWER_ABOVE = 5, (500, 1_000)
# How many times as many rows may have the noise that was chosen by a part of them, and no finer detail than these see.
_MOST_UNCALIBRATED = 1.5
# What a noise that varies must gain, and a rough part, in nats; the weight that the latter's search begins with, and
# its most columns, whose rotations cost their square.
LEAST_GAIN, LEAST_ROUGH_GAIN, _ROUGH_START, _MOST_ROUGH_COLUMNS = 3.0, 10.0, 0.1, 20
# The weights below which a part is left out, in variances of the targets and of the noise.
_LEAST_WEIGHT, _LEAST_SHARE = 2e-4, 1e-2


@dataclass(frozen=True, eq=False)
class Choice:
    r"""
    What the data say about a model of standardized columns and targets.

    :param outputscales: Weights of the parts that count, by name.
    :param length_scales: `D` length scales of the smooth part; None where rows miss values.
    :param noise: The level of the noise.
    :param exponent: How far the noise follows its forest; 0 where it is constant.
    :param noise_forest: Predicts the log squared residuals; None where the noise is constant.
    :param log_density: Mean log predictive density of rows left out, in nats.
    :param rows: Numbers of the training rows that this was chosen by.
    :param threshold: How much of the smooth part's variance landmarks may leave out before it counts; None for all.
    """

    outputscales: dict[str, float]
    length_scales: Tensor | None
    noise: float
    exponent: float
    noise_forest: RandomForestRegressor | None
    log_density: float
    rows: Tensor
    threshold: float | None = None


def choose(train_x: Tensor, y: Tensor, random: np.random.RandomState, n_jobs: int | None) -> Choice:
    """
    Weights and noise by folds of all rows, or of 700 to 1,500 random ones, each predicted by trees that have not seen
    it.

    Where these are not nearly all rows, what lies between them may vary as well: a rough part is taken where it gains
    10 nats or more. The noise varies with x where that gains 3 nats or more over a constant one.

    :param train_x: `N x D` rows, in the units in which the noise will see points; NaN is a missing value.
    :param y: `N` standardized targets (float64).
    :param random: Source of the draws.
    :param n_jobs: Trees grown at a time.
    """
    rows = torch.from_numpy(random.permutation(len(y))[: num_rows_for(len(y))])
    # Rounded, so that other units, whose last digits differ, end in the same choice.
    x, y = standardized_columns(train_x)[rows].float().double(), y[rows].float().double()
    is_complete = not bool(decode_missing(train_x).isnan().any())
    names, folds, constant = _searched(_folds(x, y, is_complete, random, n_jobs), x, y, leaves_rows_out(len(train_x)))
    means, variances = left_out_predictions(folds, y, constant)
    residuals = (y - means) / (variances + constant.noise).sqrt()
    forest = grow_residual_forest(train_x[rows], residuals, num_trees=200, random_state=random, n_jobs=n_jobs)
    varying = maximize_predictive_density(folds, y, log_ratios=torch.from_numpy(forest.oob_prediction_), start=constant)
    varies = (varying.log_density - constant.log_density) * len(y) > LEAST_GAIN
    best = varying if varies else constant
    weights = _those_that_count(names, best)
    length_scales = learn_length_scales(x, y) if is_complete else None
    return Choice(weights, length_scales, best.noise, best.exponent, forest if varies else None, best.log_density, rows)


def num_rows_for(num_rows: int) -> int:
    """How many of so many rows weights are chosen by."""
    return min(num_rows, max(_FEWEST_ROWS, min(num_rows // 4, _MOST_ROWS)))


def leaves_rows_out(num_rows: int) -> bool:
    """Whether these are so many rows that those that chose do not stand for them."""
    return num_rows > _MOST_UNCALIBRATED * num_rows_for(num_rows)


class _Folds(NamedTuple):
    """The names of the parts, and their covariances for each fold: length scales and forests that have not seen it."""

    names: list[str]
    folds: list[Fold]
    length_scales: list[Tensor | None]


def _folds(x: Tensor, y: Tensor, is_complete: bool, random: np.random.RandomState, n_jobs: int | None) -> _Folds:
    found = _Folds([], [], [])
    num_folds = _NUM_FOLDS - sum(len(x) > number for number in _FEWER_ABOVE)
    for kept, left_out in KFold(num_folds, shuffle=True, random_state=random).split(x):
        some = kept[:_LENGTH_SCALE_ROWS]
        length_scales = learn_length_scales(x[some], y[some]) if is_complete else None
        parts = new_parts(x[kept], y[kept], length_scales, random, n_jobs)
        covariances = torch.stack([_dense(part, x) for part in parts.values()])
        found.names[:] = parts
        found.folds.append(Fold.of(covariances, torch.from_numpy(kept), torch.from_numpy(left_out)))
        found.length_scales.append(length_scales)
    return found


def _searched(found: _Folds, x: Tensor, y: Tensor, is_sample: bool) -> tuple[list[str], list[Fold], PredictiveFit]:
    """Names, folds and the best weights with a constant noise: with a rough part where that tells."""
    without = maximize_predictive_density(found.folds, y)
    scales = [each for each in found.length_scales if each is not None]
    if is_sample and scales and x.shape[1] <= _MOST_ROUGH_COLUMNS:
        folds = [fold.beside(rough_covariance(x, each)[None]) for fold, each in zip(found.folds, scales)]
        weights = torch.cat([without.outputscales, without.outputscales.new_tensor([_ROUGH_START])])
        rough = maximize_predictive_density(folds, y, start=replace(without, outputscales=weights))
        if (rough.log_density - without.log_density) * len(y) > LEAST_ROUGH_GAIN:
            return [*found.names, ROUGH], folds, rough
    return found.names, found.folds, without


@torch.no_grad()
def _dense(part: Kernel, x: Tensor) -> Tensor:
    return part(x).to_dense()


def _those_that_count(names: list[str], fit: PredictiveFit) -> dict[str, float]:
    """
    The weights by name, without those at their bound and those that are lost in the noise.

    Weights are not compared with each other: a linear part may have a hundred times that of the others.
    """
    least = max(_LEAST_WEIGHT, _LEAST_SHARE * fit.noise)
    weights = {name: float(weight) for name, weight in zip(names, fit.outputscales)}
    return {name: weight for name, weight in weights.items() if weight >= least} or weights
