"""Larger variances: where intervals hold too few rows, groups or times are few, or cells are missing."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.inference.prediction.unknown_cells import unknown_cells
from gpytorch_partition.likelihoods.noise_likelihoods import noise_variances
from gpytorch_partition.likelihoods.scale_mixture import student_quantiles
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.presets.data import Blocks, TrainingData, folds
from gpytorch_partition.presets.options import Setup
from gpytorch_partition.presets.weights_and_noise import Choice, HeldOutRows

# Shares of held-out rows in intervals of 90 %: the least one, and the one that larger variances reach. Student's t
# loses a nat where intervals must reach a fifth of gross errors.
_INSIDE, _INSIDE_OF_TAILS = (0.85, 0.9), (0.82, 0.85)
_FEWEST_OTHERS = 10  # held-out rows of other targets than the usual value, for a warning
_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the variance that missing cells add
_MOST_INCOMPLETE = 300  # held-out rows with missing cells, whose densities are summed
_PRIOR = 2.0  # nats that these rows must gain before nothing is added


def widened_to_hold(choice: Choice) -> Choice:
    """
    Return the choice with larger variances if 90 % intervals hold too few of the held-out rows; means do not change.

    Two cases need this: targets of two values, of which the rarer one lies just outside intervals of the right mean
    square; and a quarter of gross errors, of which intervals of Student's t hold too few.
    """
    distances, (least, wanted) = _distances(choice), _INSIDE if choice.tails is None else _INSIDE_OF_TAILS
    if not float((distances <= 1).double().mean()) < least:
        return choice
    factor = float(distances.quantile(wanted)) ** 2
    found = replace(choice.scaled(factor), held_out=choice.held_out.scaled(factor))
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
    return replace(choice.scaled(factor), log_density=choice.log_density - 0.5 * math.log(factor))


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
