"""How well the default model keeps a budget of seconds, and what it loses by it; and what it takes without one."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.datasets import make_friedman1

from gpytorch_partition.estimators import PartitionGPRegressor

from .measure import timed
from .report import Bar, Options, Row, Table, again

NUM_POINTS = 500


def budgets(options: Options) -> Iterator[Table]:
    """Seconds and quality of fits within budgets, 10 columns, beside those without one."""
    title = (
        f"`PartitionGPRegressor(budget=)`, steps and Friedman's function in 10 columns, {NUM_POINTS} points predicted"
    )
    finished, rows = options.finished("budgets"), list[Row]()
    for num_rows, budget in _jobs(options):
        job: Row = {"N": num_rows, "budget (s)": budget or "none"}
        rows.append(again(finished, job) or job | _measured(num_rows, budget))
        yield Table("budgets", title, rows, complete=False)
    yield Table("budgets", title, rows)


def _jobs(options: Options) -> list[tuple[int, float | None]]:
    sizes = options.pick([1_000, 10_000, 100_000], [1_000, 10_000], [100])
    limits: list[float | None] = options.pick([5.0, 20.0, 60.0, 600.0, None], [5.0, 20.0, 60.0, None], [0.5])
    return [(num_rows, budget) for num_rows in sizes for budget in limits]


def _measured(num_rows: int, budget: float | None) -> Row:
    X, y = _rows(num_rows + NUM_POINTS)
    model = PartitionGPRegressor(budget=budget, random_state=0)
    start = process_time()
    _, seconds = timed(lambda: model.fit(X[:num_rows], y[:num_rows]))
    processor = process_time() - start
    mean, std = model.predict(X[num_rows:], return_std=True)
    row: Row = {
        "fit (s)": seconds,
        "fit (processor s)": processor,
        "RMSE": float(np.sqrt(np.mean((mean - y[num_rows:]) ** 2))),
        "NLPD": float(-norm.logpdf(y[num_rows:], mean, std).mean()),
        "left out, at last": model.left_out_[-1] if model.left_out_ else "nothing",
    }
    return row | ({} if budget is None else {"bar": Bar("seconds of a fit, in budgets", seconds / budget, at_most=1.2)})


def _rows(num_rows: int) -> tuple[np.ndarray, Any]:
    """Rows and targets with smooth and with rough parts, and noise of variance 1."""
    X, y = make_friedman1(num_rows, n_features=10, noise=1.0, random_state=0)
    return X, y + 5 * ((X[:, 5] > 0.5) ^ (X[:, 6] > 0.3)) + 3 * (X[:, 7] > 0.7)
