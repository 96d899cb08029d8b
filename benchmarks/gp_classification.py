"""The Gaussian process classifier against the classifiers that people use, by log loss, error, calibration and time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from time import process_time
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpytorch_partition.estimators import PartitionGPClassifier

from .measure import in_own_process, peak_gib
from .problems import read_arrays
from .report import Options, Row, Table

_BINS = 15  # of the calibration error, with as many rows in each

# Sets in the user's folder, with the number of classes that a target of numbers is cut into (0 for classes).
STORED = {"spambase": 0, "banana": 0, "california": 4, "protein": 5}


def gp_classification(options: Options) -> Iterator[Table]:
    """A table of all sets and classifiers, row by row, and the time for many rows of ten classes."""
    most_training, most_test = options.pick((1_500, 3_000), (500, 1_000), (60, 60))
    title = (
        f"Probabilities of classes, up to {most_training:,} training rows, all classifiers at their defaults: mean log "
        "loss, error and calibration error of up to "
        f"{most_test:,} test rows, and CPU seconds of training and prediction on one core"
    )
    rows: list[Row] = []
    for name, (X, y) in list(_sets(options).items())[: options.pick(None, None, 2)]:
        order = np.random.default_rng(0).permutation(len(y))
        train, test = np.split(order, [min(most_training, 7 * len(y) // 10)])
        for contender, build in _contenders(options).items():
            found = _measured(build(), X[train], y[train], X[test[:most_test]], y[test[:most_test]])
            rows.append({"set": name, "training rows": len(train), "classifier": contender, **found})
            yield Table("gp_classification", title, rows, complete=False)
    yield Table("gp_classification", title, rows)
    yield Table("gp_classification_mean", "The same, averages over the sets", _averages(rows))
    number = options.pick(100_000, 5_000, 300)
    title = f"{number:,} rows, 20 columns, 10 classes, {number // 10:,} test rows: CPU seconds on one core"
    yield Table("gp_classification_speed", title, [in_own_process(_timed, number)])


def _contenders(options: Options) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {
        "PartitionGPClassifier": lambda: PartitionGPClassifier(random_state=0),
        'PartitionGPClassifier("forest")': lambda: PartitionGPClassifier("forest", random_state=0),
        "RandomForestClassifier": lambda: RandomForestClassifier(random_state=0),
        "LogisticRegression": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    }
    if find_spec("lightgbm"):
        from lightgbm import LGBMClassifier

        found["LightGBM"] = lambda: LGBMClassifier(random_state=0, n_jobs=1, verbose=-1)
    if find_spec("catboost") and options.pick(True, True, False):  # which would take a minute of the tests
        from catboost import CatBoostClassifier

        quiet = {"verbose": 0, "thread_count": 1, "allow_writing_files": False}
        found["CatBoost"] = lambda: CatBoostClassifier(random_seed=0, **quiet)
    return found


def _sets(options: Options) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows and classes; without a folder, sets of scikit-learn."""
    found = {
        "digits": load_digits(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "breast cancer": load_breast_cancer(return_X_y=True),
        "made, 5 classes of 60 to 1 %, a tenth wrong": _unbalanced(6_000),
    }
    if options.data is None:
        return {"moons": make_moons(5_000, noise=0.4, random_state=0), **found}
    for name, num_classes in STORED.items():
        X, y = read_arrays(options.data / f"{name}.npz")
        cuts = np.quantile(y, np.arange(1, num_classes) / num_classes) if num_classes else None
        title = f"{name}, cut into {num_classes}" if num_classes else name
        found[title] = X, y.astype(int) if cuts is None else np.searchsorted(cuts, y, side="right")
    return found


def _unbalanced(number: int) -> tuple[np.ndarray, np.ndarray]:
    shares = [0.6, 0.25, 0.1, 0.04, 0.01]
    columns = {"n_features": 12, "n_informative": 6, "n_redundant": 2}
    return make_classification(number, **columns, n_classes=5, weights=shares, flip_y=0.1, random_state=0)


def _measured(machine: Any, X: np.ndarray, y: np.ndarray, test_X: np.ndarray, test_y: np.ndarray) -> Row:
    start = process_time()
    probabilities = machine.fit(X, y).predict_proba(test_X)
    seconds = process_time() - start
    return {**_scores(probabilities, np.searchsorted(np.unique(y), test_y)), "CPU s": seconds}


def _scores(probabilities: np.ndarray, numbers: np.ndarray) -> Row:
    """Mean log loss, error, and expected calibration error of the class predicted."""
    own = np.clip(probabilities[np.arange(len(numbers)), numbers], 1e-15, 1)
    sure, is_right = probabilities.max(1), probabilities.argmax(1) == numbers
    bins = np.array_split(np.argsort(sure, kind="stable"), _BINS)
    gaps = [len(rows) * abs(sure[rows].mean() - is_right[rows].mean()) for rows in bins if len(rows)]
    errors = {"error, %": 100 * (1 - is_right.mean()), "calibration error, %": 100 * sum(gaps) / len(numbers)}
    return {"log loss": -np.log(own).mean(), **errors}


def _averages(rows: list[Row]) -> list[Row]:
    found = []
    for contender in dict.fromkeys(row["classifier"] for row in rows):
        own = [row for row in rows if row["classifier"] == contender]
        numbers = {column: float(np.mean([row[column] for row in own])) for column in own[0] if column not in _WORDS}
        best = sum(row["log loss"] == min(r["log loss"] for r in rows if r["set"] == row["set"]) for row in own)
        found.append({"classifier": contender, **numbers, "sets with the least log loss": best})
    return found


_WORDS = ("set", "training rows", "classifier")


def _timed(number: int) -> Row:
    options = {"n_informative": 10, "n_redundant": 4, "n_classes": 10, "flip_y": 0.05, "random_state": 0}
    X, y = make_classification(number + number // 10, 20, **options)
    start = process_time()
    machine = PartitionGPClassifier(random_state=0).fit(X[:number], y[:number])
    fitted = process_time()
    found = _scores(machine.predict_proba(X[number:]), y[number:])
    seconds = {"training": fitted - start, "prediction": process_time() - fitted}
    return {**found, **seconds, "peak memory, GiB": peak_gib()}
