"""
The density that the default model states of held-out rows, beside that of test rows, and scores of both.

    python -m benchmarks honest --data DIR --threads 1            # all sets of a folder (see datasets.py)
    python -m benchmarks honest --data DIR --threads 1 --resume   # the rest of a run that was stopped
    python -m benchmarks honest --data DIR --small --store --threads 1  # and figures for tests/quality
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import hypot, log, sqrt
from pathlib import Path

import numpy as np
from scipy.stats import norm
from sklearn.metrics import log_loss

from gpytorch_partition.estimators import PartitionGPClassifier, PartitionGPRegressor
from gpytorch_partition.estimators.scores import Judgement, mean_and_error

from .datasets import TableSet, table_sets
from .report import Options, Row, Table, measured, timed

FIGURES = Path(__file__).parents[1] / "tests" / "quality" / "figures.json"
OTHERS = "anchors.json"  # in a folder of sets: {set: {method: {"rmse": ..., "nlpd": ...}}} on the same splits
OWN, GAUSSIAN = "NLPD", "NLPD (Gaussian)"
SQUARES, Z_SQUARES = "mean squared normal score", "mean z²"
QUANTILES, DEVIATION = "90 % by quantiles", "90 % by deviation"
RATIO, LOSS = "RMSE over the least of others", f"{GAUSSIAN} less the least of others"
GUARDED = (OWN, QUANTILES, "log loss")  # figures that are stored
_LEAST_TAIL = 1e-17  # what rounding leaves of it, 8.5 deviations
LEAST_MARGIN, MANY_ROWS = 0.1, 500
TITLES = {
    "honest": "The default regressor on test rows, in standard deviations of the training targets",
    "honest_classes": "The default classifier on test rows",
}


def honest(options: Options) -> Iterator[Table]:
    """
    Score the default on every set, then count the sets that are as good as the model states.

    Where the folder has figures of other methods, `anchors.json`, a last table has the best of them on each set.
    """
    sets = {data.name: data for data in table_sets(options)}
    rows: dict[str, list[Row]] = {}
    for name, title in TITLES.items():
        jobs = [
            {"data": data.name, "N": len(data.train), "test rows": len(data.test)}
            for data in sets.values()
            if data.is_regression == (name == "honest")
        ]
        for table in measured(options, name, title, jobs, lambda name, *_: scores(sets[name])) if jobs else ():
            rows[name] = table.rows
            yield table
    if done := [row for row in rows.get("honest", []) if row.get("NLPD stated") is not None]:
        yield Table("honest_summary", _title(rows["honest"]), [_summary(done, *kind) for kind in _KINDS])
        if options.data is not None and (others := options.data / OTHERS).exists():
            yield _beside_others(done, json.loads(others.read_text()))
    if options.stored:
        store(sum(rows.values(), []), options.stored)


def scores(data: TableSet) -> Row:
    """Return what the default model of a set's task reaches on its test rows."""
    return (_regression_scores if data.is_regression else _class_scores)(data)


def _regression_scores(data: TableSet) -> Row:
    y, train, unit = data.y[data.test].astype(float), data.y[data.train], float(data.y[data.train].std())
    model = PartitionGPRegressor(random_state=0)
    own, seconds = timed(lambda: model.fit(data.X.iloc[data.train], train).judge(data.X.iloc[data.test], y))
    gaussian, bias = Judgement.gaussian(y, own.mean, own.std), mean_and_error(own.mean - y)
    units = np.abs(y - own.mean) / own.std
    stated = model.log_predictive_density_
    return {
        "RMSE": sqrt(np.mean((own.mean - y) ** 2)) / unit,
        "NLPD stated": None if stated is None else -stated,
        _error("NLPD stated"): model.summary().log_density_error,
        **_mean_with_error(OWN, -own.log_density - log(unit)),
        **_mean_with_error(GAUSSIAN, -gaussian.log_density - log(unit)),
        **_mean_with_error(Z_SQUARES, units**2),
        "largest z": float(units.max()),
        **_mean_with_error(SQUARES, _normal_scores(own) ** 2),
        "largest normal score": float(_normal_scores(own).max()),
        DEVIATION: float(gaussian.coverage()),
        QUANTILES: float(own.coverage()),
        "CRPS": float(own.crps.mean()) / unit,
        "interval score": float(own.interval_score.mean()) / unit,
        "bias": bias[0] / unit,
        "bias (standard errors)": bias[0] / bias[1],
        "seconds": seconds,
    }


def _normal_scores(own: Judgement) -> np.ndarray:
    """
    Return absolute deviations as a Gaussian would have them at the same level.

    Their mean square is near 1 if the level is right, whatever the tails are: of Student's t with 2.5 degrees of
    freedom, the mean z² of 150 rows is .66 in the median, and between .7 and 1.4 in a third of all draws.
    """
    return norm.isf(np.maximum((1 - own.level) / 2, _LEAST_TAIL))


def _mean_with_error(name: str, values: np.ndarray) -> Row:
    return dict(zip((name, _error(name)), mean_and_error(values)))


def _error(name: str) -> str:
    return f"{name}, standard error"


def _class_scores(data: TableSet) -> Row:
    X, y, model = data.X.iloc[data.test], data.y[data.test], PartitionGPClassifier(random_state=0)
    shares, seconds = timed(lambda: model.fit(data.X.iloc[data.train], data.y[data.train]).predict_proba(X))
    wrong = model.classes_[np.argmax(shares, 1)] != y
    loss = float(log_loss(y, shares, labels=model.classes_))
    return {"log loss": loss, "error rate": float(wrong.mean()), "seconds": seconds}


# By which density, which intervals, and which squares.
_KINDS = (("of the model", OWN, QUANTILES, SQUARES), ("Gaussian", GAUSSIAN, DEVIATION, Z_SQUARES))


def _summary(rows: list[Row], density: str, name: str, coverage: str, square: str) -> Row:
    optimism = np.array([row[name] - row["NLPD stated"] for row in rows])
    errors = [hypot(row[_error(name)], row.get(_error("NLPD stated")) or 0.0) for row in rows]
    margins = [max(LEAST_MARGIN, 2 * error) for error in errors]
    squares = [row[square] for row in rows if row["N"] + row["test rows"] >= MANY_ROWS]
    return {
        "density": density,
        "sets": len(rows),
        "share as stated": float(np.mean(np.abs(optimism) <= margins)),
        "mean optimism": float(optimism.mean()),
        "mean square, least": min(squares, default=None),
        "mean square, most": max(squares, default=None),
        "coverage, mean": float(np.mean([row[coverage] for row in rows])),
        "coverage, least": min(row[coverage] for row in rows),
    }


def _beside_others(rows: list[Row], others: dict[str, dict[str, Row]]) -> Table:
    """Compare the default with the best of other methods on each set; densities of all are Gaussian."""
    found = [_beside_best(row, others[row["data"]]) for row in rows if others.get(row["data"])]
    within = [np.mean([row[name] <= most for row in found]) for name, most in ((RATIO, 1.01), (LOSS, 0.02))]
    title = (
        f"The default beside the best of other methods on each set: its RMSE is within 1 % on {within[0]:.1%} of "
        f"{len(found)} sets, its {GAUSSIAN} within .02 nats on {within[1]:.1%}"
    )
    return Table("honest_others", title, sorted(found, key=lambda row: -row[RATIO]))


def _beside_best(row: Row, others: dict[str, Row]) -> Row:
    known = {score: {name: each[score] for name, each in others.items() if score in each} for score in ("rmse", "nlpd")}
    (by_rmse, rmse), (by_nlpd, nlpd) = (min(figures.items(), key=lambda item: item[1]) for figures in known.values())
    return {
        "data": row["data"],
        "methods": len(known["rmse"]),
        RATIO: row["RMSE"] / rmse,
        "least RMSE": by_rmse,
        LOSS: row[GAUSSIAN] - nlpd,
        "least NLPD": by_nlpd,
    }


def _title(rows: list[Row]) -> str:
    failed = sum("error" in row for row in rows)
    return (
        f"Sets whose NLPD is within {LEAST_MARGIN} nats, or two standard errors of the difference, of the stated one; "
        f"optimism is NLPD less the stated one; {SQUARES} and {Z_SQUARES} of sets of {MANY_ROWS} rows or more ("
        f"{failed} sets failed)"
    )


def store(rows: list[Row], path: Path) -> None:
    """Write the figures that are guarded, for each set; raise ValueError if one of them has failed."""
    if failed := [f"{row['data']} ({row['error']})" for row in rows if "error" in row]:
        raise ValueError(f"expected figures of all sets, got none of {', '.join(failed)}: nothing was stored")
    figures = {row["data"]: {name: round(row[name], 4) for name in GUARDED if name in row} for row in rows}
    path.write_text(json.dumps(figures, indent=1) + "\n")
