"""The default model from a thousand to a million rows: processor seconds and memory of a fit and of intervals."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

import numpy as np
from sklearn.datasets import make_friedman1

from gpytorch_partition.estimators import PartitionGPRegressor

from .measure import in_own_process, peak_gib
from .report import Options, Row, Table

TEST_ROWS = 1_000


def default_rows(options: Options) -> Iterator[Table]:
    """Friedman's function of 10 columns, noise of standard deviation 1; each size in a process of its own."""
    rows: list[Row] = []
    for num_rows in options.pick((1_000, 10_000, 100_000, 1_000_000), (1_000, 10_000), (150,)):
        rows.append(in_own_process(_measured, num_rows))
        yield Table("default_rows", "The default model by number of rows", rows, complete=False)
    yield Table("default_rows", "The default model by number of rows", rows)


def _measured(num_rows: int) -> Row:
    x, y = make_friedman1(num_rows, n_features=10, noise=1.0, random_state=0)
    new_x, new_y = make_friedman1(TEST_ROWS, n_features=10, noise=1.0, random_state=1)
    start = process_time()
    model = PartitionGPRegressor(random_state=0).fit(x, y)
    fit, fit_gib = process_time() - start, peak_gib()
    start = process_time()
    mean, std = model.predict(new_x, return_std=True)
    return {
        "N": num_rows,
        "fit (CPU s)": fit,
        "GiB at most": fit_gib,
        f"{TEST_ROWS:,} means and deviations (CPU s)": process_time() - start,
        "GiB at most, with them": peak_gib(),
        "RMSE": float(np.sqrt(np.mean((mean - new_y) ** 2))),
        "coverage of 90 %": float(np.mean(np.abs(mean - new_y) < 1.645 * std)),
    }
