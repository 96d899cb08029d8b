"""
The steps after the choice, which suit variances to new rows by held-out ones: a scale of all variances and of the noise
where few rows have chosen for many, larger ones where groups or times are few, and those that missing cells add.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator.settings import max_cholesky_size
from scipy.stats import norm
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.composition.distributions import marginal_variances
from gpytorch_partition.inference.prediction.unknown_cells import unknown_cells
from gpytorch_partition.inputs.row_weights import RowWeights, noise_factors
from gpytorch_partition.likelihoods import grow_residual_forest
from gpytorch_partition.likelihoods.noise_likelihoods import noise_variances
from gpytorch_partition.likelihoods.scale_mixture import student_quantiles
from gpytorch_partition.linalg.random import drawn_from
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.presets.assembly import assembled
from gpytorch_partition.presets.data import Blocks, PartInputs, Split, TrainingData, folds, some_of
from gpytorch_partition.presets.options import Options, Setup
from gpytorch_partition.presets.parts import SMOOTH, new_parts, smooth_part
from gpytorch_partition.presets.weights_and_noise import Choice, HeldOutRows, is_worse, unseen_log_ratios
from gpytorch_partition.progress import stage
from gpytorch_partition.tables import NumberView
from gpytorch_partition.training.predictive_density import fit_factors

_NUM_FACTORS = 2  # chosen by the judging rows, which they fit better than new rows
# Shares of held-out rows in intervals of 90 %: the least one, and the one that larger variances reach. Student's t
# loses a nat where intervals must reach a fifth of gross errors.
_INSIDE, _INSIDE_OF_TAILS = (0.85, 0.9), (0.82, 0.85)
_ENOUGH_SQUARES = 1_000  # squared errors that suffice to compare two choices
_FEWEST_OTHERS = 10  # held-out rows of other targets than the usual value, for a warning
_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the variance that missing cells add
_MOST_INCOMPLETE = 300  # held-out rows with missing cells, whose densities are summed
_OFFSETS = (1.0, 0.75, 0.5, 0.25)  # shares of the mean error that predictions may get
_MOST_LOSS = 0.01  # nats that held-out rows may lose by it
_PRIOR = 2.0  # nats that these rows must gain before nothing is added


def calibrate(choice: Choice, data: TrainingData, setup: Setup, own: TrainingData) -> Choice:
    """
    Return the choice with variances that suit models of all rows.

    - The mean variance of the smooth part that inducing points do not span is added to the noise.
    - Models of four fifths of the rows predict the held-out rows, without those that chose. Where their squared errors
      are clearly less with constant noise, noise varies for new observations only. A forest of the residuals models how
      it varies.
    - A factor of all variances, one of the noise, and its exponent maximize the density of these rows. The models
      predict again with that noise.
    - Both factors are chosen again. The second factor of the noise applies to new observations alone, which changes
      neither means nor variances, so that the models have reached the stated density.
    - The mean error is added to all predictions, in proportion to the deviation of the noise (:func:`centred`).
    - Where inducing points leave more unspanned than at 95 % of new rows, the rest is added at prediction (the
      threshold).

    The weights of outliers are not used here (`own` data have none), since a row must count fully where it judges.
    Variances are exact where solves are dense. Else they come from 32 samples, for at most 1,000 rows of a fold, and
    only as many folds are predicted as give 1,000 rows.
    """
    options = setup.options
    with stage("inducing points", level=2):
        choice = replace(choice, noise=choice.noise + _unspanned_variance(choice, data, setup))
    splits = folds(len(data.x), options.num_calibration_folds, setup.random, data.blocks)
    splits = [split for split in splits if len(np.setdiff1d(split[1], choice.rows))]  # whole groups may have chosen
    models, seen = _predicted_folds(choice, splits, data, setup, own.weights)
    even = _smoothing_evenly(choice, data, setup)
    if even is not None and _is_predicted_better(even, models, seen, data, setup):
        choice, seen = even, _joined([_held_out(even, model, data, setup, own.weights) for model in models])
    with stage("noise", level=2):
        forest, ratios = _residual_forest(choice, seen, data, setup)
        choice = _with_noise(choice, seen, forest, options)
        judging = [model.judging() for model in models if model.num_variances]
        judged = _joined([_held_out(choice, model, data, setup, own.weights) for model in judging])
        choice = _with_factors(choice, judged, ratios[judged.rows], options)
    if own.has_equal_rows:
        mean_error = _mean_error(seen.residuals, _deviations(choice, ratios[seen.rows]))
        choice = replace(choice, offset=mean_error, deviations=_deviations(choice, ratios[judged.rows]))
    unit = float((data.unit.scale / own.unit.scale).log())
    with stage("inducing points", level=2):
        threshold = _threshold(choice, splits[0], data, setup)
    return replace(choice, log_density=choice.log_density - unit, threshold=threshold)


def _smoothing_evenly(choice: Choice, data: TrainingData, setup: Setup) -> Choice | None:
    """Return the choice of constant noise, which varies for new observations only; None where it does not vary."""
    if choice.constant is None or choice.smooths_evenly:
        return None
    noise = choice.constant.noise + _unspanned_variance(choice.constant, data, setup.again())
    even = replace(choice.constant, noise=noise, smooths_evenly=True)
    return replace(even, exponent=choice.exponent, noise_forest=choice.noise_forest)


def _is_predicted_better(
    choice: Choice, models: list[_FoldModel], seen: _HeldOut, data: TrainingData, setup: Setup
) -> bool:
    """Return whether squared errors by another choice are clearly less, for the rows of the first folds."""
    number = 1 + int(np.searchsorted(np.cumsum([len(model.points) for model in models]), _ENOUGH_SQUARES))
    only_means = [model._replace(num_variances=0) for model in models[:number]]  # which draw no random numbers
    errors = torch.cat([_held_out(choice, model, data, setup, None).residuals for model in only_means])
    return is_worse(seen.residuals[: len(errors)].square(), errors.square())


def _predicted_folds(
    choice: Choice, splits: list[Split], data: TrainingData, setup: Setup, weights: RowWeights | None
) -> tuple[list[_FoldModel], _HeldOut]:
    options, models, found = setup.options, list[_FoldModel](), list[_HeldOut]()
    for split in splits:
        if sum(len(each.rows) for each in found) < options.enough_residuals:
            is_enough = sum(int(each.has_variance.sum()) for each in found) >= options.enough_variances
            num_variances = 0 if is_enough else options.most_variances
            models.append(_fold_model(choice, split, data, setup, num_variances=num_variances))
            found.append(_held_out(choice, models[-1], data, setup, weights))
    return models, _joined(found)


def _residual_forest(
    choice: Choice, seen: _HeldOut, data: TrainingData, setup: Setup
) -> tuple[RandomForestRegressor, Tensor]:
    residuals, num_trees = _comparable(seen, choice.noise), setup.options.num_calibrated_noise_trees
    forest = grow_residual_forest(data.new_rows[seen.rows], residuals, num_trees=num_trees, **setup.growing)
    forest.oob_prediction_ = unseen_log_ratios(forest, data.part(seen.rows), residuals, setup)
    ratios = torch.zeros(len(data.y), dtype=torch.float64)
    ratios[seen.rows] = torch.from_numpy(forest.oob_prediction_)
    return forest, ratios


def widened(choice: Choice, data: TrainingData, setup: Setup) -> Choice:
    """Return the choice of few rows with a threshold, without which all variance would vanish far from the rows."""
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
    rows, points = data.x[fold[0]], data.x[some]
    if data.has_view:
        weights = some_of(data.weights, fold[0])
        capped = None if weights is None else weights.capped
        view = NumberView(rows, data.categories, data.y[fold[0]], weights=capped)
        rows, points = view(rows), view(points)
    with torch.no_grad():
        return 1 - smooth_part(rows, choice.lengthscales, setup)(points, diag=True)


class _FoldModel(NamedTuple):
    parts: dict[str, Kernel]
    data: TrainingData  # of the rows kept
    rows: Tensor  # (n, D) the rows predicted
    points: Tensor  # (n,) numbers of the rows predicted
    num_variances: int  # number of the first rows whose variances are computed

    def judging(self) -> _FoldModel:
        return self._replace(rows=self.rows[: self.num_variances], points=self.points[: self.num_variances])


def _fold_model(choice: Choice, fold: Split, data: TrainingData, setup: Setup, *, num_variances: int) -> _FoldModel:
    points = torch.from_numpy(setup.random.permutation(np.setdiff1d(fold[1], choice.rows.numpy())))
    with stage("growing trees without a fold", level=2):
        some, setup = _learned_from(fold[0], data, setup)
        names = choice.outputscales.keys() | (choice.constant.outputscales if choice.constant else {})
        parts = new_parts(PartInputs.of(some, setup, choice.lengthscales), names)
    return _FoldModel(parts, some, data.new_rows[points], points, min(num_variances, len(points)))


def _held_out(
    choice: Choice, fold: _FoldModel, data: TrainingData, setup: Setup, weights: RowWeights | None
) -> _HeldOut:
    model = assembled(choice, fold.parts, fold.data, setup.options).eval()
    x, y = fold.rows, data.y[fold.points]
    variances = y.new_full((len(x),), math.nan)
    with torch.no_grad(), settings.iterative(), settings.no_debug():
        with stage("predicting the fold", level=2):
            residuals = y - model(x).mean.to(y)
        if fold.num_variances:
            with stage("variances", level=2):
                variances[: fold.num_variances] = _variances(model, x[: fold.num_variances], setup).to(y)
    model.train()  # frees the factor of its solves: GPyTorch's hooks hold a model in a cycle until a collection
    return _HeldOut(fold.points, residuals, variances, noise_factors(weights, len(data.y))[fold.points])


def _joined(found: list[_HeldOut]) -> _HeldOut:
    return _HeldOut(*map(torch.cat, zip(*found)))


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
    noise, df = choice.new_noise * seen.noise_factors[seen.has_variance], _df(choice)
    bounds = options.factor_bounds
    constant = fit_factors(residuals, variances, torch.zeros_like(ratios), noise, [*bounds, (0.0, 0.0)], df)
    varying = fit_factors(residuals, variances, ratios, noise, [*bounds, (0.0, options.most_noise_exponent)], df)
    varies = constant[1] - varying[1] > options.least_noise_gain
    (log_factor, log_ratio, exponent), _ = varying if varies else constant
    choice, ratio = scaled(choice, math.exp(log_factor)), math.exp(log_ratio)
    choice = replace(choice, exponent=float(exponent), noise_forest=forest if varies else None)
    if choice.smooths_evenly:
        return replace(choice, factor=ratio * choice.factor)
    return replace(choice, noise=max(ratio * choice.noise, options.least_noise))


def _with_factors(choice: Choice, seen: _HeldOut, log_ratios: Tensor, options: Options) -> Choice:
    noise = choice.new_noise * seen.noise_factors * (choice.exponent * log_ratios).exp()
    bounds, df = [*options.factor_bounds, (0.0, 0.0)], _df(choice)
    (log_factor, log_ratio, _), loss = fit_factors(seen.residuals, seen.variances, log_ratios, noise, bounds, df)
    factor, ratio = math.exp(log_factor), math.exp(log_ratio)
    return replace(
        scaled(choice, factor),
        factor=ratio * choice.factor,
        tails=None if choice.tails is None else replace(choice.tails, factor=ratio),
        held_out=HeldOutRows(seen.rows, seen.residuals, factor * seen.variances, factor * ratio * noise),
        log_density=-(loss + _NUM_FACTORS) / len(seen.rows),
    )


def _df(choice: Choice) -> float | None:
    return None if choice.tails is None else choice.tails.df


def with_mean_error(choice: Choice) -> Choice:
    """Return the choice with the mean error of the rows that chose it, for :func:`centred`."""
    errors, forest = choice.held_out.errors, choice.noise_forest
    ratios = torch.zeros_like(errors) if forest is None else torch.from_numpy(forest.oob_prediction_)
    deviations = _deviations(choice, ratios)
    return replace(choice, offset=_mean_error(errors, deviations), deviations=deviations)


def centred(choice: Choice) -> Choice:
    """
    Return the choice whose predictions are not too low or too high on average, by the mean error of held-out rows.

    It is for rows without weights, groups and times, whose errors have one scale and are independent. Where targets
    have a long tail, densities are best around the mode, which is not the mean. There only a share of the mean error is
    added: the largest with which held-out rows lose .01 nats at most.
    """
    rows = choice.held_out
    for share in _OFFSETS if choice.offset else ():
        offset = share * choice.offset
        found = replace(choice, offset=offset, held_out=replace(rows, errors=rows.errors - offset * choice.deviations))
        gain = float((found.log_densities() - choice.log_densities()).mean())
        if gain > -_MOST_LOSS:
            density = choice.log_density + gain - 1 / len(rows.rows)
            return replace(found, log_density=density, mean_error=found.held_out.mean_error())
    return replace(choice, offset=0.0, mean_error=rows.mean_error())


def _deviations(choice: Choice, log_ratios: Tensor) -> Tensor:
    """Return standard deviations of the noise, over that of its level."""
    return (0.5 * choice.exponent * log_ratios).exp()


def _mean_error(errors: Tensor, deviations: Tensor) -> float:
    r"""
    Return :math:`c = \sum e_i / \sum d_i`, with which errors :math:`e_i - c d_i` are 0 on average, shrunk towards 0.

    Predictions are too low where the errors of a long tail count less, because the noise is larger there or Student's
    t. The factor :math:`\max(0, 1 - s^2 / c^2)`, with the standard error s of c, is that of James & Stein (1961).
    """
    mean = errors.sum() / deviations.sum()
    variance = (errors - mean * deviations).square().sum() / deviations.sum().square()
    return float(mean * (1 - variance / mean.square()).clamp_min(0)) if mean else 0.0


def scaled(choice: Choice, factor: float) -> Choice:
    """Return the choice with all variances multiplied by a factor; means do not change."""
    outputscales = {name: factor * weight for name, weight in choice.outputscales.items()}
    return replace(choice, outputscales=outputscales, noise=factor * choice.noise)


def widened_to_hold(choice: Choice) -> Choice:
    """
    Return the choice with larger variances if 90 % intervals hold too few of the held-out rows; means do not change.

    Two cases need this: targets of two values, of which the rarer one lies just outside intervals of the right mean
    square; and a quarter of gross errors, of which intervals of Student's t hold too few.
    """
    distances, (least, wanted) = _distances(choice), _INSIDE if choice.tails is None else _INSIDE_OF_TAILS
    if not float((distances <= 1).double().mean()) < least:
        return choice
    factor, rows = float(distances.quantile(wanted)) ** 2, choice.held_out
    wide = replace(rows, variances=factor * rows.variances, noise=factor * rows.noise)
    found = replace(scaled(choice, factor), held_out=wide)
    loss = float((choice.log_densities() - found.log_densities()).mean())
    return replace(found, log_density=choice.log_density - loss)


def warn_of_one_value(choice: Choice, y: Tensor) -> None:
    """Warn of targets that mostly are one value, where intervals of 90 % hold too few held-out rows of the others."""
    values, counts = y.unique(return_counts=True)
    is_other = y[choice.held_out.rows] != values[counts.argmax()]
    inside = (_distances(choice)[is_other] <= 1).double()
    if 2 * int(counts.max()) > len(y) and len(inside) >= _FEWEST_OTHERS and float(inside.mean()) < _INSIDE[0]:
        warnings.warn(
            f"{int(counts.max()) / len(y):.0%} of the targets are one value, and 90 % intervals hold "
            f"{float(inside.mean()):.0%} of the others that were held out: learn by PartitionGPClassifier whether a "
            "target is that value, and by this regressor the rows of the others",
            UserWarning,
            stacklevel=level_of_caller(),
        )


def _distances(choice: Choice) -> Tensor:
    """Return absolute errors of held-out rows (`n`), in halves of their 90 % intervals."""
    rows = choice.held_out
    if choice.tails is None:
        halves = float(norm.ppf(0.95)) * (rows.variances + rows.noise).sqrt()
        return rows.errors.abs() / halves
    variances, scales = rows.variances.numpy(), (choice.tails.factor / choice.factor * rows.noise).numpy()
    ends = student_quantiles(np.zeros(len(scales)), variances, scales, choice.tails.df, np.array([0.95]))[:, 0]
    return rows.errors.abs() / torch.from_numpy(ends)


def _variances(model: PartitionGP, x: Tensor, setup: Setup) -> Tensor:
    if len(model.train_targets) <= max_cholesky_size.value():
        return marginal_variances(model(x))
    with drawn_from(setup.random.randint(2**31)):
        return model(x).sample(torch.Size([setup.options.num_variance_samples])).var(0)


# Few groups, or stretches of time.


def widened_for_blocks(choice: Choice, chosen: HeldOutRows, data: TrainingData, setup: Setup) -> Choice:
    """
    Return the choice with larger variances where the errors of a block of rows are alike; means do not change.

    - The errors of a group, or of a stretch of time, have a part in common. B blocks determine its size as B numbers
      would, for any number of rows. The error of the next block follows Student's t with B degrees of freedom, whose
      variance is larger by B / (B - 2).
    - With a trend, errors grow from one stretch of time to the next. New rows have the errors of the latest stretch,
      where these are larger than the average. Calibration covers this where only some of the rows chose.

    The choice's log density becomes that of new rows whose errors are as large as these variances. `chosen` are the
    held-out rows of all blocks, which chose the weights.
    """
    if data.blocks is None:
        return choice
    numbers = _numbers(chosen, choice, data.blocks, setup)
    factor = _factor(chosen, numbers, data.blocks.are_times and not setup.options.calibrates(len(data.y)))
    return replace(scaled(choice, factor), log_density=choice.log_density - 0.5 * math.log(factor))


def _numbers(rows: HeldOutRows, choice: Choice, blocks: Blocks, setup: Setup) -> Tensor:
    """The block of each row (`n`), from 0, those of time in order."""
    labels = blocks.labels[rows.rows]
    if blocks.are_times:
        of_choosing = blocks.of_rows(choice.rows)
        splits = folds(len(choice.rows), setup.options.folds_of(len(choice.rows)), setup.random, of_choosing)
        starts = torch.stack([of_choosing.labels[held_out].min() for _, held_out in splits])
        labels = torch.bucketize(labels, starts.sort().values, right=True)
    return labels.unique(return_inverse=True)[1]


def _factor(rows: HeldOutRows, blocks: Tensor, last_is_latest: bool) -> float:
    """The factor of all variances, from errors in standard deviations."""
    scores, sizes = rows.errors / (rows.variances + rows.noise).sqrt(), blocks.bincount()
    means = torch.zeros_like(sizes, dtype=scores.dtype).index_add(0, blocks, scores) / sizes
    within = float((scores - means[blocks]).square().mean())
    between = float((means.square() - within / sizes).mean())
    share, number = between / (between + within) if between > 0 else 0.0, len(sizes)
    latest = within + float(means[-1].square()) if last_is_latest else 1.0
    return max(1.0, latest) * (1 + share * (number / max(1, number - 2) - 1))


# Missing cells.


@torch.no_grad()
def completion_share(model: PartitionGP, choice: Choice, data: TrainingData) -> tuple[float, float]:
    """
    Return the share of the completions' variance to add, and the nats that a held-out row gains by it on average.

    The variances that held-out rows chose already suit rows with missing cells where these are many.
    """
    held_out = choice.held_out
    is_incomplete = data.rows[held_out.rows].isnan().any(1) & ~held_out.variances.isnan()
    some = is_incomplete.nonzero()[:_MOST_INCOMPLETE, 0]
    added = _added_variances(model, data, held_out.rows[some]) if len(some) else None
    if added is None:
        return 1.0, 0.0
    totals = [float(choice.log_densities(share * added, some).sum()) - _PRIOR * (1 - share) for share in _SHARES]
    share = _SHARES[totals.index(max(totals))]
    gain = float((choice.log_densities(share * added, some) - choice.log_densities(0.0, some)).mean())
    return share, gain * int(is_incomplete.sum()) / len(held_out.rows)


def _added_variances(model: PartitionGP, data: TrainingData, rows: Tensor) -> Tensor | None:
    """Return the standardized variances (`n`) that completions add at training rows."""
    with settings.iterative(), settings.no_debug():
        found = unknown_cells(
            data.x[rows],
            data.x,
            data.categories,
            lambda x: data.unit.apply(model(data.columns.undo(x)).mean).numpy(),
            lambda x: (noise_variances(model.likelihood, data.columns.undo(x)) / data.unit.scale**2).numpy(),
        )
    return None if found is None else torch.from_numpy(found.variances)
