"""Rows to learn from and rows to predict: the split by which `compare` judges all models."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from sklearn.model_selection import train_test_split

from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.roles import Table, TrainingData

_FEWEST_TRAINING_ROWS = 10


class Split(NamedTuple):
    """Rows to learn from (`N`), and rows to predict (`n`)."""

    train_X: Table
    test_X: Table
    train_y: np.ndarray
    test_y: np.ndarray
    test_rows: np.ndarray  # their numbers in the training data, from 0
    train_weights: np.ndarray | None  # N; None where all are 1
    test_weights: np.ndarray | None  # n
    categorical: list[str] | None  # names of columns that are categories whatever their texts look like


def split_rows(data: TrainingData, test_size: float, seed: int) -> Split:
    """
    A random split.

    :param data: The rows.
    :param test_size: The share of rows to predict.
    :param seed: Of the split.
    :raises CommandError: If fewer than 10 rows are left to learn from.
    """
    rows = np.arange(len(data.y))
    num_train = len(rows) - math.ceil(test_size * len(rows))
    if num_train < _FEWEST_TRAINING_ROWS:
        got = f"--test-size {test_size} leaves {num_train} of {len(rows)} rows to train on"
        raise CommandError(f"{got}, expected {_FEWEST_TRAINING_ROWS} or more: give a smaller share")
    train, test = train_test_split(rows, test_size=test_size, random_state=seed)
    weights, y = data.weights, data.y
    of_train, of_test = (None, None) if weights is None else (weights[train], weights[test])
    return Split(data.chosen(train), data.chosen(test), y[train], y[test], test, of_train, of_test, data.categorical)
