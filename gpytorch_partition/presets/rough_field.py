"""The alternative model for functions that vary on many lengthscales, such as measurements on a map."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from sklearn.model_selection import KFold
from torch import Tensor

from gpytorch_partition.inputs.row_weights import RowWeights, noise_factors
from gpytorch_partition.presets.data import PartInputs
from gpytorch_partition.presets.options import Setup
from gpytorch_partition.presets.parts import PARTS, ROUGH_FIELD, new_parts
from gpytorch_partition.training.predictive_density import (
    Fold,
    PredictiveFit,
    dense_covariances,
    maximize_predictive_density,
)


class Candidate(NamedTuple):
    """Parts, the folds that chose their weights, and the best weights with a constant noise."""

    names: list[str]
    folds: list[Fold]
    rows: Tensor  # numbers of the folds' rows, in their order: random rows, then those of patches
    fit: PredictiveFit
    lengthscales: Tensor  # (D,) of the Matern kernel, from the random rows


def rough_field(
    other: Candidate, lengthscales: list[Tensor], x: Tensor, y: Tensor, setup: Setup, weights: RowWeights | None = None
) -> Candidate:
    """
    Return a linear part with rough ones if they gain over 20 nats on the other candidate's folds, else the other one.

    The rough part is a mean of exponential kernels :math:`e^{-r / l}` with weights in proportion to l. Between the
    shortest and the longest l, its functions vary about as those of a single exponential kernel, but by many short
    cells of Mondrian trees. The part of the shortest l alone is nearly noise.

    They must gain that much twice: first in the cheap limit of infinitely many trees, with lengthscales that have not
    seen the fold; then with the model's own lengthscales and number of trees, whose error acts as noise.

    A few random rows are too far apart to distinguish short lengthscales from noise, and neighbors alone cannot
    determine long ones. Weights are therefore chosen by both, on the folds of the other candidate and those of 12
    patches of 150 neighbors. They are not calibrated.

    :param lengthscales: `D` lengthscales of the Matern kernel for each fold.
    :param x: `N x D` standardized rows.
    :param y: `N` standardized targets.
    """
    rows, pairs, factors = other.rows, zip(other.folds, lengthscales), noise_factors(weights, len(y))
    limits = [Fold.of(rough_covariances(x[rows], each), fold.kept, fold.held_out) for fold, each in pairs]
    enough = other.fit.log_density + setup.options.least_rough_gain / len(rows)
    fit = maximize_predictive_density(limits, y[rows], noise_factors=factors[rows], enough=enough)
    if not fit.log_density > enough:
        return other
    parts = new_parts(PartInputs(x, y, other.lengthscales, setup), names=ROUGH_FIELD)
    covariances = dense_covariances(parts.values(), x[rows])
    folds = [Fold.of(covariances, fold.kept, fold.held_out) for fold in other.folds]
    fit = maximize_predictive_density(folds, y[rows], noise_factors=factors[rows], start=fit, enough=enough)
    if not fit.log_density > enough:
        return other
    for patch in _patches(x, other.lengthscales, setup):
        folds += _folds_of_patch(dense_covariances(parts.values(), x[patch]), len(rows), setup)
        rows = torch.cat([rows, patch])
    fit = maximize_predictive_density(folds, y[rows], noise_factors=factors[rows], start=fit)
    return Candidate(list(parts), folds, rows, fit, other.lengthscales)


def rough_covariances(x: Tensor, lengthscales: Tensor) -> Tensor:
    """Return covariances of the linear part and of both rough ones for infinitely many trees (`3 x n x n`)."""
    return torch.stack([part.limit(x, lengthscales) for part in PARTS if part.limit is not None])


def _patches(x: Tensor, lengthscales: Tensor, setup: Setup) -> list[Tensor]:
    centers = setup.random.permutation(len(x))[: setup.options.num_patches]
    return [_nearest(x, int(center), lengthscales, setup.options.patch_rows) for center in centers]


def _nearest(x: Tensor, center: int, lengthscales: Tensor, num_rows: int) -> Tensor:
    """Return the nearest rows, in units of the lengthscales; of rows at the same distance, the first."""
    distances = ((x - x[center]) / lengthscales).square().sum(1)
    return distances.argsort(stable=True)[:num_rows]


def _folds_of_patch(covariances: Tensor, start: int, setup: Setup) -> list[Fold]:
    """Folds of a patch, from its covariances (`c x n x n`), with row numbers from `start` on."""
    splits = KFold(setup.options.num_patch_folds, shuffle=True, random_state=setup.random).split(covariances[0])
    folds = [Fold.of(covariances, *map(torch.from_numpy, split)) for split in splits]
    return [replace(fold, kept=fold.kept + start, held_out=fold.held_out + start) for fold in folds]
