"""Classifiers: Gaussian processes beside those that people use, and Mondrian machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.svm import SVC

from gpytorch_partition.estimators import MondrianClassifier, PartitionGPClassifier

from .datasets import classes, read_arrays
from .plots import COLORS, finish, panels
from .report import Options, Row, Table, cpu_timed, grid, measured, timed

BINS = 15  # of the calibration error, with as many rows in each
# Sets in the user's folder, with the number of classes that a target of numbers is cut into (0 for classes).
STORED = {"spambase": 0, "banana": 0, "california": 4, "protein": 5}
SCORES = ("log loss", "error, %", "calibration error, %", "CPU s")


def gp_classification(options: Options) -> Iterator[Table]:
    most_training, most_test = options.pick((1_500, 3_000), (60, 60))
    sets = dict(list(_sets(options).items())[: options.pick(None, 2)])
    contenders = _contenders(options)

    def scored(name: str, contender: str) -> Row:
        X, y = sets[name]
        order = np.random.default_rng(0).permutation(len(y))
        train, test = np.split(order, [min(most_training, 7 * len(y) // 10)])
        test, machine = test[:most_test], contenders[contender]()
        shares, seconds = cpu_timed(lambda: machine.fit(X[train], y[train]).predict_proba(X[test]))
        numbers = np.searchsorted(np.unique(y[train]), y[test])
        return {"training rows": len(train), **_scores(shares, numbers), "CPU s": seconds}

    title = (
        f"Probabilities of classes, up to {most_training:,} training rows, all classifiers at their defaults: scores "
        f"of up to {most_test:,} test rows, and CPU seconds of training and prediction"
    )
    jobs = grid(set=sets, classifier=contenders)
    rows = yield from measured(options, "gp_classification", title, jobs, scored)
    frame = pd.DataFrame(rows)
    is_best = frame["log loss"] == frame.groupby("set")["log loss"].transform("min")
    means = frame.groupby("classifier", sort=False)[list(SCORES)].mean()
    means["sets with the least log loss"] = is_best.groupby(frame["classifier"]).sum()
    averages = means.reset_index().to_dict("records")
    yield Table("gp_classification_mean", "The same, averages over the sets", averages)


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
    if find_spec("catboost") and not options.is_smoke:
        from catboost import CatBoostClassifier

        quiet = {"verbose": 0, "thread_count": 1, "allow_writing_files": False}
        found["CatBoost"] = lambda: CatBoostClassifier(random_seed=0, **quiet)
    return found


def _sets(options: Options) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    columns = {"n_features": 12, "n_informative": 6, "n_redundant": 2, "weights": [0.6, 0.25, 0.1, 0.04, 0.01]}
    found = {
        "digits": load_digits(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "breast cancer": load_breast_cancer(return_X_y=True),
        "made, 5 classes of 60 to 1 %, a tenth wrong": make_classification(
            6_000, **columns, n_classes=5, flip_y=0.1, random_state=0
        ),
    }
    if options.data is None:
        return {"moons": make_moons(5_000, noise=0.4, random_state=0), **found}
    for name, number in STORED.items():
        X, y = read_arrays(options.data / f"{name}.npz")
        if number:
            y = np.searchsorted(np.quantile(y, np.arange(1, number) / number), y, side="right")
        found[f"{name}, cut into {number}" if number else name] = X, y.astype(int)
    return found


def _scores(probabilities: np.ndarray, numbers: np.ndarray) -> Row:
    own = np.clip(probabilities[np.arange(len(numbers)), numbers], 1e-15, 1)
    sure, is_right = probabilities.max(1), probabilities.argmax(1) == numbers
    bins = np.array_split(np.argsort(sure, kind="stable"), BINS)
    gaps = [len(rows) * abs(sure[rows].mean() - is_right[rows].mean()) for rows in bins if len(rows)]
    found = -np.log(own).mean(), 100 * (1 - is_right.mean()), 100 * sum(gaps) / len(numbers)
    return dict(zip(SCORES, map(float, found)))


RANKED = "Mondrian, logistic, ranks"
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # training rows and classes, test rows and classes


def mondrian_classification(options: Options) -> Iterator[Table]:
    """Measure errors on banana and spambase, over lifetimes and over rows that arrive."""
    names, own = ("banana", "spambase"), {"num_trees": options.pick(100, 10), "random_state": 0}
    splits = {name: _split(options, name) for name in names}
    fitted: dict[tuple[str, str], Any] = {}

    def scored(name: str, classifier: str) -> Row:
        model = fitted[name, classifier] = _models(own)[classifier]
        X, y, test_X, test_y = splits[name] if classifier.endswith("ranks") else _split(options, name, ranks=False)
        _, seconds = timed(lambda: model.fit(X, y))
        row = {"test error (%)": 100 * (1 - model.score(test_X, test_y)), "seconds": seconds}
        return row | ({"lifetime": model.lifetime_, "cells": model.num_cells_} if "Mondrian" in classifier else {})

    def draw(rows: list[Row]) -> Any:
        models = {name: fitted[name, RANKED] for name in names}
        numbers = options.pick(8, 2)
        return _draw(models, {name: _arriving(splits[name], models[name], own, numbers) for name in names})

    jobs = grid(set=names, classifier=_models(own))
    title = "Errors of classifiers in %; the Mondrian classifier's width is chosen by error"
    yield from measured(options, "mondrian_classification", title, jobs, scored, draw)


def _split(options: Options, name: str, ranks: bool = True) -> Split:
    X, y, _ = classes(options, name)
    X, y = (values[: options.pick(None, 200)] for values in (X, y))
    number = 7 * len(y) // 10
    if ranks:
        X = QuantileTransformer(n_quantiles=min(1_000, number), random_state=0).fit(X[:number]).transform(X)
    return X[:number], y[:number], X[number:], y[number:]


def _models(own: Row) -> dict[str, Any]:
    return {
        RANKED: MondrianClassifier(**own),
        "Mondrian, hinge, ranks": MondrianClassifier(loss="hinge", **own),
        "random forest (100)": RandomForestClassifier(100, random_state=0),
        "SVM (RBF)": make_pipeline(StandardScaler(), SVC()),
        "SVM (RBF), ranks": make_pipeline(StandardScaler(), SVC()),
    }


def _arriving(split: Split, chosen: Any, own: Row, number: int) -> list[tuple[int, float, float]]:
    X, y, test_X, test_y = split
    own = {**own, "lifetime": chosen.lifetime_}
    model, errors = MondrianClassifier(**own), []
    ends = np.unique(np.geomspace(100, len(y), number).astype(int))
    for start, end in zip([0, *ends[:-1]], ends):
        model.partial_fit(X[start:end], y[start:end], classes=np.unique(y))
        anew = MondrianClassifier(**own).fit(X[:end], y[:end])
        errors.append((int(end), *(100 * (1 - each.score(test_X, test_y)) for each in (model, anew))))
    return errors


def _draw(models: dict[str, Any], arrivals: dict[str, list[tuple[int, float, float]]]) -> Any:
    figure, (by_width, by_rows) = panels(2, 4.4, 5.2)
    for (name, model), color in zip(models.items(), COLORS):
        lifetimes, errors = model.lifetimes_, 100 * model.validation_errors_
        best = int(np.argmin(errors))
        by_width.plot(lifetimes, errors, ".-", color=color, lw=1.5, label=f"{name}, least at {lifetimes[best]:.3g}")
        by_width.plot(lifetimes[best], errors[best], "o", color=color, ms=8)
        numbers, going_on, anew = zip(*arrivals[name])
        by_rows.plot(numbers, going_on, "o-", color=color, lw=1.5, ms=4, label=f"{name}, one pass over new rows")
        by_rows.plot(numbers, anew, "s:", color=color, lw=1.2, ms=4, label=f"{name}, fitted anew")
    finish(by_width, "error of held-out rows (%)", True, xscale="log", xlabel="lifetime", ylim=(0, None))
    finish(by_rows, "test error as rows arrive (%)", True, xscale="log", xlabel="rows so far", ylim=(0, None))
    return figure
