"""The default model of several targets, with parts whose trees and weights all targets share, and their covariance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.inference.evidence.lengthscales import learn_lengthscales
from gpytorch_partition.inference.evidence.spectral_likelihood import dense_measure
from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.inputs.row_choice import Split
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.inputs.training_rows import checked_categories, decode_missing
from gpytorch_partition.kernels import IterativeKernel
from gpytorch_partition.models import CoregionalizedGP
from gpytorch_partition.partitions.grown_forest import grow_forest
from gpytorch_partition.presets.assembly import weighted_parts
from gpytorch_partition.presets.data import Blocks, PartInputs, as_new_rows, folds, has_far_values, random_rows
from gpytorch_partition.presets.options import DEFAULT, Options, Setup
from gpytorch_partition.presets.parts import new_parts
from gpytorch_partition.progress import stage
from gpytorch_partition.settings import num_variance_samples
from gpytorch_partition.tables import needs_view
from gpytorch_partition.training.coregionalization import (
    Coregionalization,
    DenseEvidence,
    Evidence,
    SpectralEvidence,
    maximize_evidence,
)
from gpytorch_partition.training.predictive_density import (
    FIXED,
    Fold,
    SharedFit,
    dense_covariances,
    fit_factors,
    maximize_shared_density,
)

_NUM_IMPUTING_TREES = 50
_CHEAP_TARGETS = 3  # with more targets fewer rows choose, so that all Cholesky factors together cost the same
_FEWEST_CHOOSING_ROWS = 300
_MOST_ENTRIES = 700  # entries that determine correlations where some are missing: their covariance is decomposed
_MOST_HELD_OUT = 1_000  # rows that calibrate
_HELD_OUT_SHARE = 0.2  # of all rows, at most


class _Chosen(NamedTuple):
    weights: dict[str, float]
    lengthscales: Tensor
    found: Coregionalization
    log_density: float
    rows: np.ndarray  # numbers of those that chose


def default_targets_model(
    x: Tensor,
    y: Tensor,
    *,
    categories: Mapping[int, int] | None = None,
    blocks: Blocks | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    options: Options = DEFAULT,
) -> CoregionalizedGP:
    """
    Return the model of :func:`~gpytorch_partition.presets.default_model` for T targets, whose parts all targets share.

    - Weights that all targets share, and scale and noise of each, maximize the predictive density of held-out entries,
      targets one by one. Folds have the rows that choose for one target (fewer above three targets).
    - The covariances of targets and of their noise then maximize the joint density of a fold's held-out rows given the
      others.
    - Above 1,200 rows, held-out rows predicted by a model of the others set scale and noise of each target anew.

    Noise is constant, and rough fields are not tried. Trees and lengthscales see predictions of a forest of the target
    alone for missing entries (in folds, of the rows kept). Rows (`N x D`) and targets (`N x T`) are standardized; NaN
    is missing. Other parameters are those of :func:`~gpytorch_partition.presets.default_model`.
    """
    setup, x, y = Setup(random_state_of(random_state), n_jobs, options), decode_missing(x).double(), y.double()
    categories = checked_categories(categories, x)
    units = Standardization.of_columns(x).without(categories)
    seen, has_view = units.apply(x), needs_view(x, categories)
    rows = PartInputs(seen, y, None, setup, categories, has_view, blocks=blocks)
    unseen, is_far = as_new_rows(seen, categories, blocks), has_far_values(seen, categories)
    rows = replace(rows, new_x=unseen, has_far_values=is_far)
    with stage("choosing weights and noise"):
        chosen = _choose(rows)
    if options.calibrates(len(x)):
        with stage("calibrating"):
            chosen = chosen._replace(found=_calibrated(chosen, rows, x, units))
    with stage("building the model of all rows"):
        return _assembled(chosen, rows, x, units)


def imputed(x: Tensor, y: Tensor, categories: Mapping[int, int], random: Any, n_jobs: int | None) -> Tensor:
    """Return standardized targets (`N x T`) for growing trees, missing ones predicted by a forest of their target."""
    random, filled = random_state_of(random), y.double().clone()
    growing: dict[str, Any] = {"num_trees": _NUM_IMPUTING_TREES, "categories": tuple(categories), "n_jobs": n_jobs}
    for number, target in enumerate(y.double().mT):
        known = ~target.isnan()
        if bool(known.all()):
            continue
        filled[~known, number] = 0.0
        if int(known.sum()) > 1:
            forest = grow_forest(x[known], target[known], random_state=random, **growing)
            predicted = forest.predict(decode_missing(x[~known]).double().numpy())
            filled[~known, number] = torch.from_numpy(predicted)
    return filled


def _num_choosing(num_rows: int, num_targets: int, options: Options) -> int:
    usual = options.num_choosing(num_rows)
    fewer = int(usual * min(1.0, _CHEAP_TARGETS / num_targets) ** (1 / 3))
    return min(usual, max(_FEWEST_CHOOSING_ROWS, fewer))


def _choose(rows: PartInputs) -> _Chosen:
    setup = rows.setup
    num_choosing = _num_choosing(len(rows.x), rows.y.shape[1], setup.options)
    numbers = random_rows(len(rows.x), num_choosing, setup.random, rows.blocks)
    some = rows.of_rows(numbers)
    names, covariances, splits = _folds(some)
    found = [Fold.of(covariance, kept, held_out) for covariance, (kept, held_out) in zip(covariances, splits)]
    fit = maximize_shared_density(found, some.y)
    weights = _those_that_count(names, fit, setup.options)
    places = [names.index(name) for name in weights]
    sums = [torch.tensordot(fit.outputscales[places], covariance[places], 1) for covariance in covariances]
    alone = Coregionalization(fit.scales.diag(), fit.noise, torch.zeros_like(fit.noise), fit.log_density)
    correlated = _correlated(alone, sums, splits, some.y)
    return _Chosen(weights, _lengthscales(_filled(some)), correlated, fit.log_density, numbers)


def _folds(rows: PartInputs) -> tuple[list[str], list[Tensor], list[tuple[Tensor, Tensor]]]:
    """Names of the parts, their covariances for each fold, built without its held-out rows, and the folds' rows."""
    options, names = rows.setup.options, list[str]()
    covariances, splits = [], []
    for kept, held_out in folds(len(rows.x), options.folds_of(len(rows.x)), rows.setup.random, rows.blocks):
        inputs = _filled(rows.of_rows(kept))
        lengthscales = _lengthscales(inputs.of_rows(slice(options.num_lengthscale_rows)))
        parts = new_parts(replace(inputs, lengthscales=lengthscales))
        parts = {name: part for name, part in parts.items() if name.removeprefix("far_") not in options.omitted_parts}
        names = list(parts)
        covariances.append(dense_covariances(parts.values(), rows.x_without(held_out)))
        splits.append((torch.from_numpy(kept), torch.from_numpy(held_out)))
    return names, covariances, splits


def _filled(rows: PartInputs) -> PartInputs:
    return replace(rows, y=imputed(rows.x, rows.y, rows.categories, rows.setup.random, rows.setup.n_jobs))


def _lengthscales(inputs: PartInputs) -> Tensor:
    return learn_lengthscales(inputs.seen_in_folds(), inputs.y)


def _those_that_count(names: list[str], fit: SharedFit, options: Options) -> dict[str, float]:
    """Weights by name, without negligible ones for the target with the least noise for its scale."""
    noise = float((fit.noise / fit.scales).min())
    least = max(options.least_weight, options.least_noise_share * noise)
    weights = {name: float(weight) for name, weight in zip(names, fit.outputscales)}
    return {name: weight for name, weight in weights.items() if weight >= least} or weights


def _correlated(
    alone: Coregionalization, covariances: list[Tensor], splits: list[tuple[Tensor, Tensor]], y: Tensor
) -> Coregionalization:
    """Covariance and noise of the largest density of each fold's held-out rows, given the others."""
    terms: list[tuple[float, Evidence]] = []
    share = 1.0 if not bool(y.isnan().any()) else min(1.0, _MOST_ENTRIES / int((~y.isnan()).sum()))
    for covariance, (kept, held_out) in zip(covariances, splits):
        kept, held_out = kept[: math.ceil(share * len(kept))], held_out[: math.ceil(share * len(held_out))]
        for sign, rows in ((1.0, torch.cat([kept, held_out])), (-1.0, kept)):
            terms.append((sign, _evidence(covariance[rows][:, rows], y[rows])))
    return replace(maximize_evidence(terms, y.shape[1], start=alone), mean=alone.mean)


def _evidence(covariance: Tensor, y: Tensor) -> Evidence:
    if bool(y.isnan().any()):
        return DenseEvidence(covariance, y, centred=True)
    return SpectralEvidence(dense_measure(covariance, y), centred=True)


def _calibrated(chosen: _Chosen, rows: PartInputs, x: Tensor, units: Standardization) -> Coregionalization:
    """Scale and noise of each target with which a model of other rows predicts held-out ones best."""
    options, (kept, held_out) = rows.setup.options, _calibrating(chosen, rows)
    if not len(held_out):
        return chosen.found
    model = _assembled(chosen, rows.of_rows(kept), x[kept], units)
    points = units.undo(rows.x_without(held_out)[held_out])
    with num_variance_samples(options.num_variance_samples):
        means, variances = model.means(points), model.variances(points)
    columns = zip((rows.y[held_out] - means).mT, variances.mT, chosen.found.noise.tolist())
    scale, noise = torch.tensor([_factors(*each, options) for each in columns], dtype=torch.float64).unbind(-1)
    root = scale.sqrt()
    covariance = chosen.found.covariance * root * root.unsqueeze(-1)
    least = options.least_noise * scale.clamp_max(1)  # beside smaller covariances more would smooth the means
    return replace(chosen.found, covariance=covariance, noise=(scale * noise * chosen.found.noise).maximum(least))


def _factors(residuals: Tensor, variances: Tensor, noise: float, options: Options) -> tuple[float, float]:
    """A factor of all variances, and one of the noise, of the largest density of residuals (NaN: no entry)."""
    known = ~residuals.isnan()
    noises = torch.full_like(residuals[known], noise)
    (factor, ratio, _), _ = fit_factors(residuals[known], variances[known], noises, [*options.factor_bounds, FIXED])
    return factor, ratio


def _calibrating(chosen: _Chosen, rows: PartInputs) -> Split:
    """Rows to learn from, and rows that calibrate, which did not choose: of other groups or later times, if any."""
    everything, setup = np.arange(len(rows.x)), rows.setup
    if rows.blocks is not None:
        splits = folds(len(rows.x), setup.options.num_calibration_folds, setup.random, rows.blocks)
        splits = [(kept, np.setdiff1d(held_out, chosen.rows)) for kept, held_out in splits]
        kept, held_out = next((split for split in splits if len(split[1])), splits[0])
        return kept, setup.random.permutation(held_out)[:_MOST_HELD_OUT]
    others = np.setdiff1d(everything, chosen.rows)
    size = min(_MOST_HELD_OUT, int(_HELD_OUT_SHARE * len(rows.x)), len(others))
    held_out = setup.random.permutation(others)[:size]
    return np.setdiff1d(everything, held_out), held_out


def _assembled(chosen: _Chosen, rows: PartInputs, x: Tensor, units: Standardization) -> CoregionalizedGP:
    parts = new_parts(_filled(replace(rows, lengthscales=chosen.lengthscales)), names=chosen.weights)
    description = {
        "parts": list(chosen.weights),
        "noise": {"noise_varies": False, "threshold": None},
        "log_predictive_density": chosen.log_density,
        "view_columns": len(chosen.lengthscales) if rows.has_view else None,
    }
    kernel = IterativeKernel(weighted_parts(parts, chosen.weights, units))
    return CoregionalizedGP(x, rows.y, kernel, chosen.found, description)
