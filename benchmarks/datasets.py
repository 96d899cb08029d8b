"""Data sets: made ones, those of scikit-learn, and those of a user's folder; splits, and scores of predictions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_diabetes, make_friedman1, make_moons
from torch import Tensor

from .report import Options, Row

SETS = (  # regression sets of a folder, smallest first
    *("machine", "bodyfat", "yacht", "autompg", "housing", "energy", "concrete", "cpu", "elevators", "bike"),
    *("california", "kin40k", "protein", "satellite_temps", "nycflights13"),
)
GIVE_AWAY = {"bodyfat": [0], "bike": [15, 16]}  # columns that tell the target
MOST_TEST_ROWS = 10_000
MOST_SMALL = 1_400  # training rows of a small set of tables
HALF = 1.645  # standard deviations on either side of a 90 % interval


def friedman(num_rows: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return standardized rows and targets of Friedman's first function of 10 columns, with noise of deviation 1."""
    return standardized(*make_friedman1(num_rows, n_features=10, noise=1.0, random_state=0), dtype)


def friedman_chunk(number: int, num_rows: int) -> tuple[Tensor, Tensor]:
    """Return a chunk of an endless stream of the same function, standardized; -1 is kept for testing."""
    generator = torch.Generator().manual_seed(1_000 + number)
    x = torch.rand(num_rows, 10, generator=generator)
    y = 10 * (torch.pi * x[:, 0] * x[:, 1]).sin() + 20 * (x[:, 2] - 0.5).square() + 10 * x[:, 3] + 5 * x[:, 4]
    y = y + torch.randn(num_rows, generator=generator)
    return (x - 0.5) * 12**0.5, (y - 14.4) / 5


def standardized(X: np.ndarray, y: np.ndarray, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return inputs without constant columns, and targets, all of mean 0 and standard deviation 1."""
    columns = ((values - values.mean(0)) / values.std(0) for values in (X[:, X.std(0) > 0].astype(np.float64), y))
    x, targets = (torch.from_numpy(values).to(dtype) for values in columns)
    return x, targets


def read_arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return X and y of an NPZ file, float64."""
    with np.load(path, allow_pickle=False) as file:
        return file["X"].astype(float), file["y"].astype(float)


def kin40k(options: Options, num_rows: int) -> tuple[Tensor, Tensor]:
    """Return so many random rows of kin40k, standardized; without a folder, Friedman's function."""
    if options.data is None:
        return friedman(num_rows)
    X, y = read_arrays(options.data / "kin40k.npz")
    rows = np.random.default_rng(0).permutation(len(y))[:num_rows]
    return standardized(X[rows], y[rows])


class Data(NamedTuple):
    """A set without the columns that give its target away; one mask of test rows for each of its own splits."""

    X: np.ndarray
    y: np.ndarray
    masks: np.ndarray


class Split(NamedTuple):
    """Training and test rows, standardized by the training rows; float64."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return torch.from_numpy(self.x), torch.from_numpy(self.y), torch.from_numpy(self.test_x)


def read_data(options: Options, name: str) -> Data:
    """Return NAME.npz (arrays X, y and maybe test_mask) of the user's folder, or a set that scikit-learn has."""
    if options.data is None or name == "diabetes":
        friedman1 = name == "friedman1"
        X, y = make_friedman1(1_500, noise=1.0, random_state=0) if friedman1 else load_diabetes(return_X_y=True)
        return Data(X, y, np.empty((len(y), 0), bool))
    with np.load(options.data / f"{name}.npz", allow_pickle=False) as file:
        X, y = np.delete(file["X"].astype(float), GIVE_AWAY.get(name, []), 1), file["y"].astype(float)
        masks = file["test_mask"] if "test_mask" in file else np.empty((len(y), 0), bool)
    return Data(X[:, X.std(0) > 0], y, masks)


def split_of(data: Data, number: int, most: int | None) -> Split:
    """Return the set's own split of this number, or a random tenth of the rows; at most so many training rows."""
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
    return split_at(data.X, data.y, rows, points)


def split_at(X: np.ndarray, y: np.ndarray, rows: np.ndarray, points: np.ndarray) -> Split:
    """Return the training rows and test rows of these numbers, standardized by the former."""
    (x, test_x), (y, test_y) = (_standardized(values, rows, points) for values in (X, y))
    return Split(x, y, test_x, test_y)


def _standardized(values: np.ndarray, rows: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, scale = values[rows].mean(0), values[rows].std(0)
    scale = np.where(scale > 0, scale, 1.0)
    return (values[rows] - mean) / scale, (values[points] - mean) / scale


def classes(options: Options, name: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Return NAME.npz as rows in a random order, classes and a name; without a folder, a set like it."""
    if options.data is not None:
        X, y = read_arrays(options.data / f"{name}.npz")
    elif name == "banana":
        (X, y), name = make_moons(5_000, noise=0.4, random_state=0), "two moons"
    else:
        (X, y), name = load_breast_cancer(return_X_y=True), "breast cancer"
    rows = np.random.default_rng(0).permutation(len(y))
    return X[rows], y[rows].astype(int), name


def scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> Row:
    """Return the error, the negative log density and the coverage of 90 % intervals of Gaussian predictions."""
    return {
        "RMSE": float(np.sqrt(np.mean((y - mean) ** 2))),
        "NLPD": float(-norm.logpdf(y, mean, std).mean()),
        "coverage": float(np.mean(np.abs(y - mean) < HALF * std)),
    }


def means_of(rows: list[Row]) -> Row:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


class TableSet(NamedTuple):
    """A table as it came, its targets or classes, and the numbers of training and test rows."""

    name: str
    is_regression: bool
    X: pd.DataFrame
    y: np.ndarray
    train: np.ndarray
    test: np.ndarray


def table_sets(options: Options) -> Iterator[TableSet]:
    """
    Yield the sets of a folder by rows and columns, those named or all, maybe the small ones; else two of scikit-learn.

    The folder has `index.json` (a list of entries with name, task, kind, D, n_train, file and target), `splits.npz`
    (row numbers NAME/train and NAME/test), NPZ files with X and y (kind num) and CSV files.
    """
    if options.data is None:
        yield from _sets_of_scikit_learn(options.pick(None, 60))
        return
    index = {entry["name"]: entry for entry in json.loads((options.data / "index.json").read_text())}
    if unknown := set(options.sets) - set(index):
        raise ValueError(f"expected names of {options.data / 'index.json'} in --sets, got {sorted(unknown)}")
    for name in sorted(options.sets or index, key=lambda name: index[name]["n_train"] * index[name]["D"] ** 0.5):
        if not options.small or index[name]["n_train"] <= MOST_SMALL:
            yield _table_set(options.data, index[name])


def _table_set(folder: Path, entry: Row) -> TableSet:
    if entry["kind"] == "num":
        values, y = read_arrays(folder / entry["file"])
        X = pd.DataFrame(values).add_prefix("x")
    else:
        table = pd.read_csv(folder / entry["file"])
        X, y = table.drop(columns=entry["target"]), table[entry["target"]].to_numpy()
    with np.load(folder / "splits.npz") as splits:
        rows = (splits[f"{entry['name']}/{part}"] for part in ("train", "test"))
        return TableSet(entry["name"], entry["task"] == "regression", X, y, *rows)


def _sets_of_scikit_learn(most: int | None) -> Iterator[TableSet]:
    for is_regression, load in ((True, load_diabetes), (False, load_breast_cancer)):
        X, y = load(return_X_y=True, as_frame=True)
        rows = np.random.default_rng(0).permutation(len(y))[:most]
        test, train = np.split(rows, [len(rows) // 5])
        yield TableSet(load.__name__.removeprefix("load_"), is_regression, X, y.to_numpy(), train, test)
