"""The split of rows into training and test rows for all models of `compare`."""

from __future__ import annotations

import math

import numpy as np
from sklearn.model_selection import GroupShuffleSplit, train_test_split

from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.training_data import TrainingData

_FEWEST_TRAINING_ROWS = 10


def split_rows(data: TrainingData, test_size: float, seed: int) -> tuple[TrainingData, TrainingData]:
    """
    Return training and test rows of a random split; with groups, whole ones are test rows, with times, the latest.

    :param data: The rows.
    :param test_size: The share of test rows.
    :param seed: Seed of the split.
    :raises CommandError: If fewer than 10 training rows are left.
    """
    train, test = _numbers(data, test_size, seed)
    if len(train) < _FEWEST_TRAINING_ROWS:
        got = f"--test-size {test_size} leaves {len(train)} of {len(data.y)} rows to train on"
        raise CommandError(f"{got}, expected {_FEWEST_TRAINING_ROWS} or more: give a smaller share")
    return data.at(train), data.at(test)


def _numbers(data: TrainingData, test_size: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.arange(len(data.y))
    if "groups" in data.blocks:
        splits = GroupShuffleSplit(1, test_size=test_size, random_state=seed)
        return next(splits.split(rows, groups=data.blocks["groups"]))
    num_train = len(rows) - math.ceil(test_size * len(rows))
    if "time" in data.blocks:
        times = data.blocks["time"]
        is_later = times >= np.sort(times)[num_train]
        return rows[~is_later], rows[is_later]
    if num_train < _FEWEST_TRAINING_ROWS:
        return rows[:num_train], rows[num_train:]
    return tuple(train_test_split(rows, test_size=test_size, random_state=seed))
