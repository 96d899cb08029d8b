"""Several targets: one model against one for each, with entries missing; and up to 20,000 rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.presets import Options as ModelOptions

from .clock import peak_gib, timed
from .datasets import read_arrays, scores
from .report import Options, Row, Table, measured

SMALL = ModelOptions(num_trees=10, num_slope_trees=5, num_boosted_trees=5, num_shallow_boosted_trees=5)


def several_targets(options: Options) -> Iterator[Table]:
    """Score one model and one for each target; then measure the cost at many rows."""
    problems = _problems(options)

    def scored(name: str, kernel: str, missing: float, models: str) -> Row:
        x, y = problems[name]
        random = np.random.RandomState(0)
        points, rows = np.split(random.permutation(len(y)), [len(y) // 4])
        known = y[rows].copy()
        known[random.rand(*known.shape) < missing] = np.nan
        known[:2] = y[rows[:2]]  # so that every target has some
        predict = _together if models == "one" else _one_by_one
        (mean, std), seconds = timed(lambda: predict(x[rows], known, x[points], kernel, options.pick(None, SMALL)))
        return {**scores(y[points] / y.std(0), mean / y.std(0), std / y.std(0)), "seconds": seconds}

    jobs = [
        {"problem": name, "kernel": kernel, "missing": missing, "models": models}
        for name in problems
        for kernel in ("auto", "forest")
        for missing in (0.0, 0.5)
        for models in ("one", "one for each")
    ]
    title = "Several targets, a quarter of the rows held out, in standard deviations of the targets"
    yield from measured(options, "several_targets", title, jobs, scored)
    jobs = [{"rows": size} for size in options.pick([1_000, 5_000, 20_000], [200])]
    title = "Rows of 10 columns, 5 targets, 30 % of the entries missing, 200 trees"
    yield from measured(options, "several_targets_cost", title, jobs, partial(options.apart, _cost))


def _problems(options: Options) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Make five mixtures of two functions, with a noise of .3 standard deviations; with a folder, autompg too."""
    random = np.random.RandomState(0)
    x = random.rand(options.pick(600, 80), 4)
    functions = np.stack([np.sin(6 * x[:, 0]) + 2 * x[:, 1] ** 2, np.cos(5 * x[:, 2]) * x[:, 0]], 1)
    signal = functions @ random.randn(2, 5)
    found = {"two functions": (x, signal / signal.std(0) + 0.3 * random.randn(len(x), 5))}
    if options.data is not None:
        x, y = read_arrays(options.data / "autompg.npz")
        found["autompg"] = np.delete(x, [1, 2, 4], 1), np.column_stack([y, x[:, [1, 2, 4]]])
    return found


def _together(x: np.ndarray, y: np.ndarray, points: np.ndarray, kernel: str, options: Any) -> Any:
    return PartitionGPRegressor(kernel, random_state=0, options=options).fit(x, y).predict(points, return_std=True)


def _one_by_one(x: np.ndarray, y: np.ndarray, points: np.ndarray, kernel: str, options: Any) -> Any:
    is_known = ~np.isnan(y.T)
    found = [_together(x[known], target[known], points, kernel, options) for target, known in zip(y.T, is_known)]
    return tuple(np.stack(parts, 1) for parts in zip(*found))


def _cost(num_rows: int) -> Row:
    """Measure a fit and 1,000 means and standard deviations of each target."""
    random = np.random.RandomState(0)
    x = random.rand(num_rows + 1_000, 10)
    functions = np.stack([10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2, 10 * x[:, 3]], 1)
    signal = functions @ random.randn(2, 5)
    y = signal + random.randn(*signal.shape)
    y[:num_rows][random.rand(num_rows, 5) < 0.3] = np.nan
    rows = np.flatnonzero(~np.isnan(y[:num_rows]).all(1))
    model, fitting = timed(lambda: PartitionGPRegressor("forest", random_state=0).fit(x[rows], y[rows]))
    moments, predicting = timed(lambda: model.predict(x[num_rows:], return_std=True))
    return {"fit, s": fitting, "predictions, s": predicting, **scores(y[num_rows:], *moments), "peak GiB": peak_gib()}
