"""Mondrian machines for classes: the width by error, and more rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.svm import SVC

from gpytorch_partition.estimators import MondrianClassifier

from .clock import timed
from .datasets import classes
from .plots import COLORS, finish, panels
from .report import Options, Row, Table, grid, measured

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
