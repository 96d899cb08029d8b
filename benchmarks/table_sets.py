"""
Sets with one split each, of a folder with `index.json` (a list of entries with name, task, kind, D, n_train, file and
target), `splits.npz` (row numbers NAME/train and NAME/test), NPZ files with X and y (kind num) and CSV files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes

from .problems import read_arrays
from .report import Options, Row

MOST_SMALL = 1_000  # training rows of a small set


class TableSet(NamedTuple):
    """A table as it came, its targets or classes, and the numbers of training and test rows."""

    name: str
    is_regression: bool
    X: pd.DataFrame
    y: np.ndarray
    train: np.ndarray
    test: np.ndarray


def table_sets(options: Options) -> Iterator[TableSet]:
    """The sets of a folder by rows and columns, those named or all, maybe the small ones; else two of scikit-learn."""
    if options.data is None:
        yield from _sets_of_scikit_learn(options.pick(None, 300, 60))
        return
    index = {entry["name"]: entry for entry in json.loads((options.data / "index.json").read_text())}
    if unknown := set(options.sets) - set(index):
        raise ValueError(f"expected names of {options.data / 'index.json'} in --sets, got {sorted(unknown)}")
    for name in sorted(options.sets or index, key=lambda name: index[name]["n_train"] * index[name]["D"] ** 0.5):
        if not options.small or index[name]["n_train"] <= MOST_SMALL:
            yield read_set(options.data, index[name])


def read_set(folder: Path, entry: Row) -> TableSet:
    """The set of an entry of `index.json`."""
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
