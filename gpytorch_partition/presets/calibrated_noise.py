"""The scale of all variances, and how the noise varies, by all held-out rows where few rows have chosen for many."""

from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.composition.distributions import marginal_variances
from gpytorch_partition.inputs.row_weights import RowWeights, noise_factors
from gpytorch_partition.linalg.parallel import idle_threads
from gpytorch_partition.presets.assembly import assembled
from gpytorch_partition.presets.data import PartInputs, Split, TrainingData, folds
from gpytorch_partition.presets.mean_error import deviations_of, mean_error_of
from gpytorch_partition.presets.options import Options, Setup
from gpytorch_partition.presets.parts import SMOOTH, new_parts, smooth_part
from gpytorch_partition.presets.weights_and_noise import Choice, HeldOutRows, is_worse, residual_forest
from gpytorch_partition.progress import stage
from gpytorch_partition.training.predictive_density import EXPONENTS, FIXED, fit_factors

_NUM_FACTORS = 2  # chosen by the judging rows, which they fit better than new rows
_ENOUGH_SQUARES = 1_000  # squared errors that suffice to compare two choices


class Calibration:
    """
    Hold predictions of rows that did not choose by models of four fifths of the rows, to calibrate variances by them.

    At first some 1,000 rows are predicted, which suffice to compare two choices. If constant noise has clearly smaller
    squared errors at these rows, and no clearly larger ones at the rows that chose, noise varies for new observations
    only.

    A factor of all variances, one of the noise, and its exponent maximize the density of these rows. The models predict
    again with that noise, and both factors are chosen again: the noise's second one for new observations alone, so that
    the stated density is that of models with these means and variances.

    `own` data have no weights of outliers, since a row must count fully where it judges. Variances are of at
    most 1,000 rows, of a fold and in all: exact where a factor takes less time than solves, else from 32 samples.
    """

    def __init__(self, choice: Choice, data: TrainingData, setup: Setup, own: TrainingData) -> None:
        self._data, self._setup, self._own = data, setup, own
        with stage("inducing points", level=2):
            self._choice = replace(choice, noise=choice.noise + _unspanned_variance(choice, data, setup))
        splits = folds(len(data.x), setup.options.num_calibration_folds, setup.random, data.blocks)
        # Whole groups may have chosen.
        self._splits = [split for split in splits if len(np.setdiff1d(split[1], choice.rows))]
        self._models, self._found = list[_FoldModel](), list[_HeldOut]()
        self._predict_folds(min(_ENOUGH_SQUARES, setup.options.enough_residuals))
        even = _smoothing_evenly(self._choice, data, setup)
        if even is not None and self._is_predicted_better(even):
            self._choice, self._found = even, [_predicted(even, self._models, setup)]

    def errors(self) -> tuple[Tensor, Tensor]:
        """Return the numbers of some 1,000 rows, and their errors (`n` each) before noise is calibrated."""
        seen = _together(self._found)
        return seen.rows, self._data.unit.scale * seen.residuals

    def calibrated(self) -> Choice:
        """Return the choice with variances that suit models of all rows."""
        data, setup, options = self._data, self._setup, self._setup.options
        self._predict_folds(options.enough_residuals)
        seen = _together(self._found)
        with stage("noise", level=2):
            forest, ratios = _residual_forest(self._choice, seen, data, setup)
            choice = _with_noise(self._choice, seen, forest, options)
            judging = [model.judging() for model in self._models if model.num_variances]
            judged = _predicted(choice, judging, setup)
            choice = _with_factors(choice, judged, ratios[judged.rows], options)
        if self._own.has_equal_rows:
            mean_error = mean_error_of(seen.residuals, deviations_of(choice, ratios[seen.rows]))
            choice = replace(choice, offset=mean_error, deviations=deviations_of(choice, ratios[judged.rows]))
        unit = float((data.unit.scale / self._own.unit.scale).log())
        with stage("inducing points", level=2):
            threshold = _threshold(choice, self._splits[0], data, setup)
        return replace(choice, log_density=choice.log_density - unit, threshold=threshold)

    def _predict_folds(self, enough_residuals: int) -> None:
        found, options = list[Future[_HeldOut]](), self._setup.options
        with idle_threads() as submit:
            for split in self._splits[len(self._models) :]:
                if sum(len(model.points) for model in self._models) < enough_residuals:
                    is_enough = sum(model.num_variances for model in self._models) >= options.enough_variances
                    inputs = self._choice, split, self._data, self._setup, self._own.weights
                    model = _fold_model(*inputs, num_variances=0 if is_enough else options.most_variances)
                    self._models.append(model)
                    found.append(submit(_held_out, self._choice, model, options))
        self._found += [each.result() for each in found]

    def _is_predicted_better(self, choice: Choice) -> bool:
        only_means = [model._replace(num_variances=0) for model in self._models]
        errors = _predicted(choice, only_means, self._setup).residuals
        return is_worse(_together(self._found).residuals.square(), errors.square())


def _smoothing_evenly(choice: Choice, data: TrainingData, setup: Setup) -> Choice | None:
    """
    Return the choice of constant noise, which varies for new observations only.

    None where noise does not vary, or where the rows that chose have clearly larger squared errors by constant noise.
    """
    constant = choice.constant
    if constant is None or choice.smooths_evenly:
        return None
    if is_worse(constant.held_out.errors.square(), choice.held_out.errors.square()):
        return None
    noise = constant.noise + _unspanned_variance(constant, data, setup.again())
    even = replace(constant, noise=noise, smooths_evenly=True)
    return replace(even, exponent=choice.exponent, noise_forest=choice.noise_forest)


def _predicted(choice: Choice, models: list[_FoldModel], setup: Setup) -> _HeldOut:
    with idle_threads() as submit:
        found = [submit(_held_out, choice, model, setup.options) for model in models]
    return _together([each.result() for each in found])


def _residual_forest(
    choice: Choice, seen: _HeldOut, data: TrainingData, setup: Setup
) -> tuple[RandomForestRegressor, Tensor]:
    residuals, num_trees = _comparable(seen, choice.noise), setup.options.num_calibrated_noise_trees
    forest = residual_forest(seen.rows, residuals, data, setup, num_trees)
    ratios = torch.zeros(len(data.y), dtype=torch.float64)
    ratios[seen.rows] = torch.from_numpy(forest.oob_prediction_)
    return forest, ratios


def with_threshold(choice: Choice, data: TrainingData, setup: Setup) -> Choice:
    """
    Return a choice that is not calibrated with the threshold from which unspanned variance is added at prediction.

    Without it, all variance of the smooth part would vanish far from the rows.
    """
    setup = setup.again()
    fold = folds(len(data.x), setup.options.num_calibration_folds, setup.random, data.blocks)[0]
    return replace(choice, threshold=_threshold(choice, fold, data, setup))


class _HeldOut(NamedTuple):
    rows: Tensor  # (n,) their numbers
    residuals: Tensor  # (n,)
    variances: Tensor  # (n,) without the noise; NaN where they were not computed
    noise_factors: Tensor  # (n,) factors of the noise, by the rows' weights

    @property
    def has_variance(self) -> Tensor:
        return ~self.variances.isnan()


def _unspanned_variance(choice: Choice, data: TrainingData, setup: Setup) -> float:
    if SMOOTH.name not in choice.outputscales:
        return 0.0
    everything = np.arange(len(data.x))
    return choice.outputscales[SMOOTH.name] * float(_unspanned(choice, (everything, everything), data, setup).mean())


def _threshold(choice: Choice, fold: Split, data: TrainingData, setup: Setup) -> float | None:
    if SMOOTH.name not in choice.outputscales:
        return None
    return float(_unspanned(choice, fold, data, setup).quantile(setup.options.threshold_share))


def _unspanned(choice: Choice, fold: Split, data: TrainingData, setup: Setup) -> Tensor:
    """Return shares of the smooth part's variance at some held-out rows that inducing points of others do not span."""
    some = setup.random.permutation(fold[1])[: setup.options.most_variances]
    others, points = PartInputs.of(data, setup).of_rows(fold[0]), data.x[some]
    rows = others.x
    if data.has_view:
        view = others.view()
        rows, points = view(rows), view(points)
    with torch.no_grad():
        return 1 - smooth_part(rows, choice.lengthscales, setup)(points, diag=True)


class _FoldModel(NamedTuple):
    parts: dict[str, Kernel]
    data: TrainingData  # of the rows kept
    rows: Tensor  # (n, D) the rows predicted
    points: Tensor  # (n,) their numbers
    y: Tensor  # (n,) their targets
    noise_factors: Tensor  # (n,) factors of their noise, by weights
    num_variances: int  # number of the first rows whose variances are computed

    def judging(self) -> _FoldModel:
        some = slice(self.num_variances)
        factors = self.noise_factors[some]
        return self._replace(rows=self.rows[some], points=self.points[some], y=self.y[some], noise_factors=factors)


def _fold_model(
    choice: Choice, fold: Split, data: TrainingData, setup: Setup, weights: RowWeights | None, *, num_variances: int
) -> _FoldModel:
    points = torch.from_numpy(setup.random.permutation(np.setdiff1d(fold[1], choice.rows.numpy())))
    with stage("growing trees without a fold", level=2):
        some, setup = _learned_from(fold[0], data, setup)
        names = choice.outputscales.keys() | (choice.constant.outputscales if choice.constant else {})
        parts = new_parts(PartInputs.of(some, setup, choice.lengthscales), names)
    of_rows = data.new_rows[points], points, data.y[points], noise_factors(weights, len(data.y))[points]
    return _FoldModel(parts, some, *of_rows, min(num_variances, len(points)))


def _held_out(choice: Choice, fold: _FoldModel, options: Options) -> _HeldOut:
    model = assembled(choice, fold.parts, fold.data, options).eval()
    x, y = fold.rows, fold.y
    variances = y.new_full((len(x),), math.nan)
    with torch.no_grad(), settings.iterative(), settings.no_debug():
        with stage("predicting the fold", level=2):
            residuals = y - model(x).mean.to(y)
        if fold.num_variances:
            with stage("variances", level=2), settings.num_variance_samples(options.num_variance_samples):
                variances[: fold.num_variances] = marginal_variances(model(x[: fold.num_variances])).to(y)
    model.train()  # frees the factor of its solves: GPyTorch's hooks hold a model in a cycle until a collection
    return _HeldOut(fold.points, residuals, variances, fold.noise_factors)


def _together(parts: list[_HeldOut]) -> _HeldOut:
    return _HeldOut(*map(torch.cat, zip(*parts)))


def _comparable(seen: _HeldOut, noise: float) -> Tensor:
    """The residuals in the scale of rows of a usual weight (`n`)."""
    usual = float(seen.variances.nanmean()) + noise
    return seen.residuals * (usual / (usual + noise * (seen.noise_factors - 1))).sqrt()


def _learned_from(kept: np.ndarray, data: TrainingData, setup: Setup) -> tuple[TrainingData, Setup]:
    """The rows kept, or some of them, with at most as many inducing points as the model of all rows."""
    if len(kept) <= (most := setup.options.most_calibration_rows):
        return data.part(kept), setup
    options = replace(setup.options, most_inducing_points=setup.options.num_inducing_points(len(data.x)))
    return data.part(np.sort(setup.random.permutation(kept)[: int(most)])), replace(setup, options=options)


def _with_noise(choice: Choice, seen: _HeldOut, forest: RandomForestRegressor, options: Options) -> Choice:
    residuals, variances = seen.residuals[seen.has_variance], seen.variances[seen.has_variance]
    ratios = torch.from_numpy(forest.oob_prediction_)[seen.has_variance]
    noise, df = choice.new_noise * seen.noise_factors[seen.has_variance], choice.df
    bounds = options.factor_bounds
    constant = fit_factors(residuals, variances, noise, [*bounds, FIXED], df=df)
    varying = fit_factors(residuals, variances, noise, [*bounds, EXPONENTS], log_ratios=ratios, df=df)
    varies = constant[1] - varying[1] > options.least_noise_gain
    (factor, ratio, exponent), _ = varying if varies else constant
    choice = replace(choice.scaled(factor), exponent=exponent, noise_forest=forest if varies else None)
    if choice.smooths_evenly:
        return replace(choice, factor=ratio * choice.factor)
    # The least noise scales as well: beside smaller weights it would smooth what the models have predicted.
    return replace(choice, noise=max(ratio * choice.noise, min(1.0, factor) * options.least_noise))


def _with_factors(choice: Choice, seen: _HeldOut, log_ratios: Tensor, options: Options) -> Choice:
    noise = choice.new_noise * seen.noise_factors * (choice.exponent * log_ratios).exp()
    inputs, bounds = (seen.residuals, seen.variances, noise), [*options.factor_bounds, FIXED]
    (factor, ratio, _), loss = fit_factors(*inputs, bounds, log_ratios=log_ratios, df=choice.df)
    return replace(
        choice.scaled(factor),
        factor=ratio * choice.factor,
        tails=None if choice.tails is None else replace(choice.tails, factor=ratio),
        held_out=HeldOutRows(seen.rows, seen.residuals, factor * seen.variances, factor * ratio * noise),
        log_density=-(loss + _NUM_FACTORS) / len(seen.rows),
    )
