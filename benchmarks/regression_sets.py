"""Regression sets in a user's folder, or scikit-learn's own, and their splits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1

from .predictors import Split
from .report import Options

# Regression sets, smallest first, and columns that give the target away.
SETS: dict[str, list[int]] = dict.fromkeys(("machine", "bodyfat", "yacht", "autompg", "housing", "energy"), [])
SETS |= dict.fromkeys(("concrete", "cpu", "elevators", "bike", "california", "kin40k", "protein"), [])
SETS |= dict.fromkeys(("satellite_temps", "nycflights13"), [])
SETS |= {"bodyfat": [0], "bike": [15, 16]}
MOST_TEST_ROWS = 10_000


class Data(NamedTuple):
    """A set without the columns that give its target away; one mask of test rows for each of its own splits."""

    X: np.ndarray
    y: np.ndarray
    masks: np.ndarray


def read_data(options: Options, name: str) -> Data:
    """NAME.npz (arrays X, y and maybe test_mask) of the user's folder, or a set that scikit-learn has."""
    if options.data is None:
        friedman = name == "friedman1"
        X, y = make_friedman1(1_500, noise=1.0, random_state=0) if friedman else load_diabetes(return_X_y=True)
        return Data(X, y, np.empty((len(y), 0), bool))
    with np.load(options.data / f"{name}.npz", allow_pickle=False) as file:
        X, y = np.delete(file["X"].astype(float), SETS[name], 1), file["y"].astype(float)
        masks = file["test_mask"] if "test_mask" in file else np.empty((len(y), 0), bool)
    return Data(X[:, X.std(0) > 0], y, masks)


def split_of(data: Data, number: int, most: int | None) -> Split:
    """The set's own split of this number, or a random tenth of the rows; at most so many training rows."""
    random = np.random.default_rng(number)
    if number < data.masks.shape[1]:
        is_test = data.masks[:, number]
    else:
        is_test = np.zeros(len(data.y), bool)
        is_test[random.permutation(len(data.y))[: len(data.y) // 10]] = True
    rows, points = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    if most:
        rows = random.permutation(rows)[:most]
    if len(points) > MOST_TEST_ROWS:
        points = random.permutation(points)[:MOST_TEST_ROWS]
    (x, test_x), (y, test_y) = (_standardized(values, rows, points) for values in (data.X, data.y))
    return Split(x, y, test_x, test_y)


def _standardized(values: np.ndarray, rows: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, scale = values[rows].mean(0), values[rows].std(0)
    scale = np.where(scale > 0, scale, 1.0)
    return (values[rows] - mean) / scale, (values[points] - mean) / scale
