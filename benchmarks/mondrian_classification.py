"""Mondrian machines for classes: the width by error, more rows, and how long a million rows take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.svm import SVC

from gpytorch_partition.estimators import MondrianClassifier

from .classification_sets import Split, classification
from .measure import in_own_process, peak_gib, timed
from .mondrian_pictures import classification_errors
from .report import Options, Row, Table


def mondrian_classification(options: Options) -> Iterator[Table]:
    """Errors on banana and spambase over lifetimes and over rows that arrive; seconds for many rows."""
    rows: list[Row] = []
    widths, arrivals = {}, {}
    for name in ("banana", "spambase"):
        split = classification(options, name, options.pick(None, 1_500, 200))
        model, errors = _compared(split, options)
        rows += [{"set": name, **row} for row in errors]
        widths[name] = (model.lifetimes_, 100 * model.validation_errors_)
        arrivals[name] = _arriving(split, model.lifetime_, options)
    title = "Errors of classifiers in %; the Mondrian classifier's width is chosen by error"
    picture = classification_errors(widths, arrivals)
    yield Table("mondrian_classification", title, rows, picture=picture)
    number = options.pick(1_000_000, 20_000, 1_000)
    yield Table("mondrian_classification_speed", f"{number:,} x 2 rows, 100 trees", [in_own_process(_timed, number)])


def _uniform(X: np.ndarray) -> Any:
    return QuantileTransformer(n_quantiles=min(1_000, len(X)), random_state=0)


def _compared(split: Split, options: Options) -> tuple[MondrianClassifier, list[Row]]:
    X, y, test_X, test_y = split
    ranks = _uniform(X)
    X_ranks, test_ranks = ranks.fit_transform(X), ranks.transform(test_X)
    own = {"num_trees": options.pick(100, 50, 10), "random_state": 0}
    model = MondrianClassifier(**own)
    rows = [_scored("Mondrian, logistic, ranks", model, X_ranks, y, test_ranks, test_y)]
    others = {
        "Mondrian, hinge, ranks": (MondrianClassifier(loss="hinge", **own), X_ranks, test_ranks),
        "random forest (100)": (RandomForestClassifier(100, random_state=0), X, test_X),
        "SVM (RBF)": (make_pipeline(StandardScaler(), SVC()), X, test_X),
        "SVM (RBF), ranks": (make_pipeline(StandardScaler(), SVC()), X_ranks, test_ranks),
    }
    rows += [_scored(name, each, rows_, y, points, test_y) for name, (each, rows_, points) in others.items()]
    return model, rows


def _scored(name: str, model: Any, X: np.ndarray, y: np.ndarray, test_X: np.ndarray, test_y: np.ndarray) -> Row:
    _, seconds = timed(lambda: model.fit(X, y))
    row = {"classifier": name, "test error (%)": 100 * (1 - model.score(test_X, test_y)), "seconds": seconds}
    return row | ({"lifetime": model.lifetime_, "cells": model.num_cells_} if hasattr(model, "lifetime_") else {})


def _arriving(split: Split, lifetime: float, options: Options) -> list[tuple[int, float, float]]:
    """Numbers of rows, and test errors in % after a pass over each batch and after fitting anew to all of them."""
    X, y, test_X, test_y = split
    ranks = _uniform(X)
    X, test_X = ranks.fit_transform(X), ranks.transform(test_X)
    own = {"num_trees": options.pick(100, 50, 10), "lifetime": lifetime, "random_state": 0}
    model, errors = MondrianClassifier(**own), []
    ends = np.unique(np.geomspace(100, len(y), options.pick(8, 4, 2)).astype(int))
    for start, end in zip([0, *ends[:-1]], ends):
        model.partial_fit(X[start:end], y[start:end], classes=np.unique(y))
        anew = MondrianClassifier(**own).fit(X[:end], y[:end])
        errors.append((int(end), *(100 * (1 - each.score(test_X, test_y)) for each in (model, anew))))
    return errors


def _timed(num_rows: int) -> Row:
    random = np.random.default_rng(0)
    X = random.random((num_rows, 2))
    y = (X * 6).astype(int).sum(1) % 2 ^ (random.random(num_rows) < 0.1)
    model = MondrianClassifier(epochs=3, random_state=0)
    _, seconds = timed(lambda: model.fit(X, y))
    new = random.random((10_000, 2))
    error = float(np.mean(model.predict(new) != (new * 6).astype(int).sum(1) % 2))
    _, more = timed(lambda: model.partial_fit(X[:10_000], y[:10_000]))
    return {
        "fit (s)": seconds,
        "partial_fit of 10,000 rows (s)": more,
        "lifetime": model.lifetime_,
        "cells": model.num_cells_,
        "error against the true chessboard (%)": 100 * error,
        "peak GiB": peak_gib(),
    }
