"""Several targets: one model against one for each and a random forest, with entries missing; and 20,000 rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_linnerud
from sklearn.ensemble import RandomForestRegressor

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.presets import Options as ModelOptions

from .measure import in_own_process, peak_gib, timed
from .problems import read_arrays
from .report import Options, Row, Table

_INTERVAL = 1.645  # standard deviations on either side, 90 %
_SMALL = ModelOptions(num_trees=10, num_slope_trees=5, num_boosted_trees=5, num_shallow_boosted_trees=5)
_MISSING, _MISSING_AT_COST = (0.0, 0.5), 0.3
# Of sets in a user's folder: columns that are predicted beside the target, and columns that are left out.
_TARGETS = {"bodyfat": ([5, 6, 7, 8], [0]), "autompg": ([1, 2, 4], []), "bike": ([15, 16], [])}
_MOST_ROWS = 1_200


class Problem(NamedTuple):
    """Rows, and targets in columns."""

    x: np.ndarray
    y: np.ndarray


def several_targets(options: Options) -> Iterator[Table]:
    """Error, predictive density and coverage of every method on every problem; then cost at many rows."""
    num_splits, rows = options.pick(2, 1, 1), []
    for name, problem in _problems(options).items():
        for share in _MISSING:
            for method, predict in _methods(options).items():
                found = [_scored(predict, problem, share, seed) for seed in range(num_splits)]
                scores = {score: float(np.mean([split[score] for split in found])) for score in found[0]}
                rows.append({"problem": name, "missing": share, "method": method, **scores})
        yield Table("several_targets", _title(num_splits), rows, complete=False)
    yield Table("several_targets", _title(num_splits), rows)
    sizes = options.pick([1_000, 5_000, 20_000], [1_000, 3_000], [200])
    costs = [in_own_process(_cost, num_rows, _MISSING_AT_COST) for num_rows in sizes]
    yield Table("several_targets_cost", "rows of 10 columns, 5 targets, 200 trees", costs)


def _title(num_splits: int) -> str:
    return (
        f"Several targets, {num_splits} random split(s) with a quarter of the rows held out. RMSE and negative log "
        "predictive density (nats an entry) in standard deviations of the targets, and how many of the intervals of "
        "90 % hold; missing entries of forests of scikit-learn are means"
    )


def _problems(options: Options) -> dict[str, Problem]:
    found = {"linnerud": Problem(*load_linnerud(return_X_y=True)), "two functions": _two_functions(options)}
    if options.data is None:
        return found
    for name, (columns, omitted) in _TARGETS.items():
        x, y = read_arrays(options.data / f"{name}.npz")
        some = np.random.default_rng(1).permutation(len(y))[: options.pick(_MOST_ROWS, 300, 80)]
        targets = np.column_stack([y, x[:, columns]])
        found[name] = Problem(np.delete(x, [*columns, *omitted], 1)[some], targets[some])
    return found


def _two_functions(options: Options) -> Problem:
    """Five targets that are mixtures of two functions, with a noise of .3 standard deviations each."""
    random = np.random.RandomState(0)
    x = random.rand(options.pick(600, 200, 80), 4)
    functions = np.stack([np.sin(6 * x[:, 0]) + 2 * x[:, 1] ** 2, np.cos(5 * x[:, 2]) * x[:, 0]], 1)
    signal = functions @ random.randn(2, 5)
    return Problem(x, signal / signal.std(0) + 0.3 * random.randn(len(x), 5))


_Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray | None]]


def _methods(options: Options) -> dict[str, _Predict]:
    small = options.pick(None, _SMALL, _SMALL)

    def together(kernel: str) -> _Predict:
        def predict(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return PartitionGPRegressor(kernel, random_state=0, options=small).fit(x, y).predict(points, True)

        return predict

    def one_by_one(kernel: str) -> _Predict:
        def predict(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            found = [together(kernel)(x[known], target[known], points) for target, known in zip(y.T, ~np.isnan(y.T))]
            mean, std = (np.stack(parts, 1) for parts in zip(*found))
            return mean, std

        return predict

    def forest(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, None]:
        filled = np.where(np.isnan(y), np.nanmean(y, 0), y)
        return RandomForestRegressor(200, random_state=0).fit(x, filled).predict(points), None

    found = {f"{kernel}, one model": together(kernel) for kernel in ("auto", "forest", "mondrian")}
    found |= {f"{kernel}, one for each": one_by_one(kernel) for kernel in ("auto", "forest", "mondrian")}
    return found | {"random forest": forest}


def _scored(predict: _Predict, problem: Problem, share: float, seed: int) -> dict[str, float]:
    random, unit = np.random.RandomState(seed), problem.y.std(0)
    order = random.permutation(len(problem.y))
    points, rows = np.split(order, [max(len(order) // 4, 5)])
    y = problem.y[rows].astype(float)
    y[random.rand(*y.shape) < share] = np.nan
    y[:2] = problem.y[rows[:2]]  # so that every target has some
    (mean, std), seconds = timed(lambda: predict(problem.x[rows], y, problem.x[points]))
    errors = (problem.y[points] - mean) / unit
    of_spread = {} if std is None else _judged(errors, std / unit)
    return {"RMSE": float(np.sqrt(np.mean(errors**2))), **of_spread, "seconds": seconds}


def _judged(errors: np.ndarray, spread: np.ndarray) -> dict[str, float]:
    densities = 0.5 * np.log(2 * np.pi * spread**2) + 0.5 * (errors / spread) ** 2
    return {
        "negative log density": float(np.mean(densities)),
        "inside 90 %": float(np.mean(np.abs(errors) < _INTERVAL * spread)),
    }


def _cost(num_rows: int, share: float) -> Row:
    """Seconds of a fit and of 1,000 means and standard deviations of each target, and the most memory held."""
    random = np.random.RandomState(0)
    x = random.rand(num_rows + 1_000, 10)
    functions = np.stack([10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2, 10 * x[:, 3]], 1)
    signal = functions @ random.randn(2, 5)
    y = signal + random.randn(*signal.shape)
    y[:num_rows][random.rand(num_rows, 5) < share] = np.nan
    before = peak_gib()
    known = ~np.isnan(y[:num_rows]).all(1)
    model, fitting = timed(
        lambda: PartitionGPRegressor("forest", random_state=0).fit(x[:num_rows][known], y[:num_rows][known])
    )
    (mean, std), predicting = timed(lambda: model.predict(x[num_rows:], return_std=True))
    errors = y[num_rows:] - mean
    return {
        "rows": num_rows,
        "missing": share,
        "fit, seconds": fitting,
        "1,000 means and deviations of each target, seconds": predicting,
        "RMSE over the noise": float(np.sqrt(np.mean(errors**2))),
        "inside 90 %": float(np.mean(np.abs(errors) < _INTERVAL * std)),
        "peak GiB": peak_gib(),
        "peak GiB of the imports and the data": before,
    }
