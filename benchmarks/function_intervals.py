"""How many intervals of the default model hold the function itself, where it is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.presets import Options as ModelOptions

from .report import Options, Row, Table

_TITLE = (
    "Intervals of the default model, 90 %: of the function, and of new observations (those of the table without their "
    "outliers). Means over trials of 300 new rows; errors and deviations of the function in units of the noise"
)
_FEWEST_TREES = ModelOptions(num_trees=3, num_slope_trees=3, num_boosted_trees=3, num_shallow_boosted_trees=3)
_NUM_NEW = 300
_NUM_PLACES = 300
_OUTLIER = 11.0  # standard deviations of the noise that targets of the table are moved by
_OF_COLUMNS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of five uniform columns
    "linear": lambda x: x @ np.array([1.0, -2.0, 1.5, 0.0, 0.0]),
    "smooth": lambda x: np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2],
    "quick waves": lambda x: np.sin(12 * x[:, 0]) + x[:, 1],
    "steps": lambda x: np.floor(3 * x[:, 0]) + (x[:, 1] > 0.5) * (x[:, 2] > 0.3),
}
_FRIEDMAN = {"Friedman 1": make_friedman1, "Friedman 2": make_friedman2, "Friedman 3": make_friedman3}


class Trial(NamedTuple):
    """Rows of which the function is known, the last 300 of them for predictions."""

    x: np.ndarray | pd.DataFrame
    function: np.ndarray
    noise: float
    outliers: float = 0.0  # their share among the training rows


def function_intervals(options: Options) -> Iterator[Table]:
    """Coverage of the function and of observations: of columns of numbers, and of a table with places and outliers."""
    rows: list[Row] = []
    for size in options.pick((200, 1_000), (200,), (40,)):
        for name in options.pick((*_FRIEDMAN, *_OF_COLUMNS), (*_FRIEDMAN, *_OF_COLUMNS), ("steps",)):
            trials = [
                _of_columns(name, size, level, seed) for level in (0.3, 0.7) for seed in range(options.pick(3, 1, 1))
            ]
            rows.append({"function": name, "rows": size, **_scores(trials, options)})
            yield Table("function_intervals", _TITLE, rows, complete=False)
    for places, share in ((False, 0.0), (False, 0.03), (True, 0.0), (True, 0.03)):
        size, seeds = options.pick(1_500, 500, 40), range(options.pick(3, 1, 1))
        name = f"table{', 300 places' * places}{f', {share:.0%} outliers' * (share > 0)}"
        trials = [_of_table(size, places, share, seed) for seed in seeds]
        rows.append({"function": name, "rows": size, **_scores(trials, options)})
        yield Table("function_intervals", _TITLE, rows, complete=False)
    yield Table("function_intervals", _TITLE, rows)


def _of_columns(name: str, size: int, level: float, seed: int) -> Trial:
    if name in _FRIEDMAN:
        x, function = _FRIEDMAN[name](size + _NUM_NEW, noise=0.0, random_state=seed)
    else:
        x = np.random.RandomState(seed).rand(size + _NUM_NEW, 5)
        function = _OF_COLUMNS[name](x)
    return Trial(x, function, level * float(function.std()))


def _of_table(size: int, places: bool, outliers: float, seed: int) -> Trial:
    """Logarithms of prices of houses: few of the places are common, most are rare."""
    random, num_rows = np.random.RandomState(seed), size + _NUM_NEW
    common = 1 / np.arange(1, _NUM_PLACES + 1) ** 0.8
    place = random.choice(_NUM_PLACES, num_rows, p=common / common.sum())
    table = pd.DataFrame(
        {"area": np.exp(random.normal(4.6, 0.4, num_rows)), "year": random.randint(1900, 2024, num_rows)}
    )
    table["state"] = random.choice(["poor", "fair", "good", "new"], num_rows, p=[0.15, 0.3, 0.45, 0.1])
    function = 0.85 * np.log(table["area"]) + 0.0018 * (table["year"] - 1960).abs()
    function += table["state"].map({"poor": -0.25, "fair": 0.0, "good": 0.1, "new": 0.25})
    if places:
        table["place"] = [f"place {number}" for number in place]
        function += random.normal(0, 0.25, _NUM_PLACES)[place]
    return Trial(table, function.to_numpy(), 0.1, outliers)


def _scores(trials: list[Trial], options: Options) -> Row:
    found = [_scored(trial, seed, options) for seed, trial in enumerate(trials)]
    return {"trials": len(trials), **{score: float(np.mean([row[score] for row in found])) for score in found[0]}}


def _scored(trial: Trial, seed: int, options: Options) -> dict[str, float]:
    random, train, new = np.random.RandomState(seed + 100), slice(None, -_NUM_NEW), slice(-_NUM_NEW, None)
    y = trial.function + trial.noise * random.randn(len(trial.function))
    moved = random.rand(len(y)) < trial.outliers
    moved[new] = False
    y[moved] += trial.noise * _OUTLIER * random.choice([-1, 1], moved.sum())
    model = PartitionGPRegressor(random_state=seed, options=options.pick(None, None, _FEWEST_TREES))
    model.fit(trial.x[train], y[train])
    mean, std, ends = model.predict(trial.x[new], return_std=True, quantiles=(0.05, 0.95), include_noise=False)
    function = trial.function[new]
    return {
        "of the function (%)": 100 * float(np.mean((ends[:, 0] <= function) & (function <= ends[:, 1]))),
        "of observations (%)": 100 * model.judge(trial.x[new], y[new]).coverage(0.9),
        "its error": float(np.sqrt(np.mean((mean - function) ** 2))) / trial.noise,
        "its deviation": float(np.sqrt(np.mean(std**2))) / trial.noise,
    }
