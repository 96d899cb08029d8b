"""The step between choice and calibration: Student-t noise where it helps, and a new choice that discounts outliers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from scipy.stats import t as student
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.likelihoods.scale_mixture import log_densities
from gpytorch_partition.presets.assembly import assemble
from gpytorch_partition.presets.data import TrainingData, folds
from gpytorch_partition.presets.options import Options, Setup
from gpytorch_partition.presets.weights_and_noise import Choice, HeldOutRows, choose, is_worse
from gpytorch_partition.training.predictive_density import DEGREES_OF_FREEDOM, HeavyTails, fit_heavy_tails

# Squared errors, in those of the usual choice: by chance those of a few outliers grow or shrink by .7 %, and where rare
# rows that a column tells were discounted, all together grew by a tenth or more.
_MOST_SQUARES = 1.01
_LEAST_PRECISION = 1e-12  # of a row, so that its noise stays finite
_MOST_ROUNDS = 3  # of EM, where all rows choose; else one
_NUM_FOLDS = 2  # of all rows, where few of them chose
_OUTLIER = 0.5  # precision below which a row is an outlier; usual rows have about 1
_FEWEST_OUTLIERS = 10  # from which their side counts
_ONE_SIDED = 0.8  # share on one side, plus one outlier, from which they are the targets' long tail
_NUM_VALUES = 3  # noise, scale and degrees of freedom, chosen by the judging rows beside the weights
_LEAST_INSIDE = 0.88  # share of held-out rows in intervals of 90 %
_COMMON = 0.25  # share of the targets that are the same number


def with_heavy_tails(choice: Choice, data: TrainingData, setup: Setup) -> tuple[Choice, TrainingData]:
    """
    Return a choice with Student-t noise if held-out rows gain by it, and the rows with the weights of that choice.

    Each round of EM (Tipping & Lawrence 2005) computes the expected precision of each row's noise, from models that
    have not seen the row: a forest that has seen an outlier has a leaf for it. The choice is then repeated with these
    precisions as weights of rows and trees. Squared errors of held-out rows must not grow by more than 1 %: large
    deviations that new rows share are no errors of measurement. Rounds start from constant noise where that suits heavy
    tails better than varying noise: a forest of the residuals takes outliers for places where the noise is large.

    No rows are discounted in rough fields, or where targets have a long tail on one side or a common value such as 0: a
    mean without the tail is too low.

    :param choice: The choice with Gaussian noise, of these data.
    :param setup: The setup before the choice; copies of it let the same rows choose again, by the same folds.
    """
    best = _with_tails(choice)
    if choice.is_rough or best.tails is None or not best.tails.gain > setup.options.least_tail_gain:
        return choice, data
    if (side := _long_tail(best)) is not None or _has_common_value(data.y):
        return replace(choice, long_tail=side), data
    if not best.tails.gain > setup.options.least_discount_gain * len(best.held_out.rows):
        return choice, data
    found, weighted = best, data
    for _ in range(_MOST_ROUNDS if len(choice.held_out.rows) == len(data.y) else 1):
        weights = _expected_precisions(found, weighted, _own_weights(data), setup.again())
        next_data = replace(data, weights=RowWeights.of(weights * _own_weights(data)))
        again = _with_tails(choose(next_data, setup.again()), weights)
        # In the same units: the deviation of targets without outliers is smaller.
        again = replace(again, log_density=again.log_density - float((next_data.unit.scale / data.unit.scale).log()))
        if not (again.log_density - found.log_density) * len(again.held_out.rows) > setup.options.least_noise_gain:
            break
        found, weighted = again, next_data
    gains = found.log_density - best.log_density > setup.options.least_discount_gain
    is_better = gains and _squared_error(found, weighted) <= _MOST_SQUARES * _squared_error(choice, data)
    return (found, weighted) if is_better else (choice, data)


def discounts_harm(discounted: tuple[Tensor, Tensor], usual: tuple[Tensor, Tensor]) -> bool:
    """
    Return whether models that discount outliers predict held-out rows clearly worse than usual ones.

    Few rows that choose may take for an outlier what many rows explain, such as a holiday. Choices of other parts may
    hold out other rows: errors of the common ones are compared, or where these are less than half, of any pairs.

    :param discounted: Numbers of the rows, and their errors (`n` each).
    :param usual: The same of the usual models.
    """
    (rows, errors), (other_rows, other_errors) = discounted, usual
    places = np.intersect1d(rows.numpy(), other_rows.numpy(), return_indices=True)[1:]
    if 2 * len(places[0]) < len(rows):
        places = (np.arange(min(len(rows), len(other_rows))),) * 2
    return is_worse(errors.square()[places[0]], other_errors.square()[places[1]])


def _squared_error(choice: Choice, data: TrainingData) -> float:
    return float((data.unit.scale * choice.held_out.errors).square().mean())


def with_shape(choice: Choice, options: Options) -> Choice:
    """
    Return the choice with Student-t noise of the same variance, if held-out rows gain 5 nats by its shape alone.

    Means and deviations do not change; quantiles and densities fit the errors of held-out rows, including outliers on
    one side and rare large values among many zeros. Intervals of 90 % must still hold 88 % of these rows. Where rows
    were discounted, noise is already Student's t.
    """
    rows = choice.held_out
    if choice.tails is not None:
        return choice
    found = []
    for df in DEGREES_OF_FREEDOM:
        factor = (df - 2) / df
        density = float(log_densities(rows.errors, rows.variances, factor * rows.noise, df).mean())
        if _share_inside(rows, df) >= _LEAST_INSIDE:
            found.append(
                HeavyTails(df, factor * choice.factor, density, len(rows.rows) * (density - rows.log_density()))
            )
    best = max(found, key=lambda each: each.gain, default=None)
    if best is None or not best.gain > options.least_tail_gain:
        return choice
    return replace(choice, tails=best, log_density=choice.log_density + best.gain / len(rows.rows))


def _share_inside(rows: HeldOutRows, df: float) -> float:
    width = float(student.ppf(0.95, df)) * ((df - 2) / df) ** 0.5
    return float((rows.errors.abs() <= width * (rows.variances + rows.noise).sqrt()).double().mean())


def _long_tail(choice: Choice) -> str | None:
    """
    Return the side, "above" or "below" the predictions, of nearly all outliers; None where there is none.

    Errors of measurement go both ways; outliers on one side are the long tail of the targets.
    """
    assert choice.tails is not None
    rows = choice.held_out
    outliers = rows.errors[rows.precisions(choice.tails) < _OUTLIER]
    above, number = int((outliers > 0).sum()), len(outliers)
    if number < _FEWEST_OUTLIERS or max(above, number - above) < _ONE_SIDED * number + 1:
        return None
    return "above" if 2 * above > number else "below"


def _has_common_value(y: Tensor) -> bool:
    return int(y.unique(return_counts=True)[1].max()) > _COMMON * len(y)


def _with_tails(choice: Choice, precisions: Tensor | None = None) -> Choice:
    """Return the choice, or its constant version, with Student-t noise; precisions divided the noise of the rows."""
    found = []
    for each in (choice, choice.constant):
        if each is not None and not each.smooths_evenly:
            rows = each.held_out
            noise = rows.noise if precisions is None else rows.noise * precisions[rows.rows]
            tails = fit_heavy_tails(rows.errors, rows.variances, noise)
            judged = replace(rows, noise=noise)
            num_values = len(each.outputscales) + _NUM_VALUES
            density = (tails.log_density - num_values) / len(rows.rows)
            found.append(replace(each, tails=tails, log_density=density, held_out=judged, constant=None))
    return max(found, key=lambda each: each.log_density)


def _expected_precisions(choice: Choice, data: TrainingData, own_weights: Tensor, setup: Setup) -> Tensor:
    assert choice.tails is not None
    rows = _all_held_out(choice, data, own_weights, setup)
    found = torch.empty(len(data.y), dtype=torch.float64)
    found[rows.rows] = rows.precisions(choice.tails).clamp_min(_LEAST_PRECISION)
    return found


def _own_weights(data: TrainingData) -> Tensor:
    return torch.ones_like(data.targets) if data.weights is None else data.weights.values


def _all_held_out(choice: Choice, data: TrainingData, own_weights: Tensor, setup: Setup) -> HeldOutRows:
    """Return predictions of all rows: those that chose, and others by models of half of all rows."""
    known = choice.held_out
    others = torch.ones(len(data.y), dtype=torch.bool)
    others[known.rows] = False
    if not bool(others.any()):
        return known
    parts = [known]
    # With times, the first block is held out as well: rows between others show which are outliers.
    blocks = None if data.blocks is None or data.blocks.are_times else data.blocks
    for kept, held_out in folds(len(data.x), _NUM_FOLDS, setup.random, blocks):
        points = torch.from_numpy(held_out)
        found = _held_out(choice, data, torch.from_numpy(kept), points[others[points]], setup)
        parts.append(replace(found, noise=found.noise / own_weights[found.rows]))
    columns = zip(*((part.rows, part.errors, part.variances, part.noise) for part in parts))
    return HeldOutRows(*map(torch.cat, columns))


@torch.no_grad()
def _held_out(choice: Choice, data: TrainingData, kept: Tensor, points: Tensor, setup: Setup) -> HeldOutRows:
    """Return predictions by a model of some rows, with noise of weight 1 and the mean variance of the choosing rows."""
    rows = data.new_rows[points]
    model = assemble(replace(choice, tails=None), data.part(kept), setup).eval()
    with settings.iterative(), settings.no_debug():
        mean = model(rows).mean
        noise = model.likelihood.noise_covar(rows, shape=points.shape).diagonal(dim1=-2, dim2=-1)
    errors = data.y[points] - mean.to(data.y)
    variances = torch.full_like(errors, float(choice.held_out.variances.mean()))
    return HeldOutRows(points, errors, variances, noise.to(errors))
