"""The step with groups or times that adapts variances to the number of blocks and to the latest block."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from gpytorch_partition.presets.calibration import scaled
from gpytorch_partition.presets.data import TrainingData
from gpytorch_partition.presets.folds import Blocks, folds
from gpytorch_partition.presets.options import Setup
from gpytorch_partition.presets.weights_and_noise import Choice, HeldOutRows, needs_calibration


def widened_for_blocks(choice: Choice, chosen: HeldOutRows, data: TrainingData, setup: Setup) -> Choice:
    """
    Return the choice with larger variances where the errors of a block of rows are alike; means do not change.

    - The errors of a group, or of a stretch of time, have a part in common. B blocks determine its size as B numbers
      would, for any number of rows. The error of the next block follows Student's t with B degrees of freedom, whose
      variance is larger by B / (B - 2).
    - With a trend, errors grow from one stretch of time to the next. New rows have the errors of the latest stretch,
      where these are larger than the average. Calibration covers this where only some of the rows chose.

    The stated density is that of new rows whose errors are as large as these variances.

    :param choice: The choice, calibrated.
    :param chosen: The held-out rows of all blocks, which chose the weights.
    :param data: Rows and targets.
    :param setup: The options; nothing is drawn.
    """
    if data.blocks is None:
        return choice
    numbers = _numbers(chosen, choice, data.blocks, setup)
    factor = _factor(chosen, numbers, data.blocks.are_times and not needs_calibration(len(data.y), setup.options))
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
