"""Intervals of Gaussian processes with the kernels of fitted ensembles: clones in folds against marginal likelihood."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from lightgbm import LGBMRegressor
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from xgboost import XGBRegressor

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.estimators import PartitionGPRegressor

from .measure import timed
from .regression_sets import Data, read_data
from .report import Bar, Options, Row, Table

_INTERVALS = {"coverage of 90 % (%)": 1.645, "coverage of 50 % (%)": 0.6745}  # standard deviations on either side
_NOMINAL = 90.0
_BAR = 3.0  # percentage points, for the two ensembles that were named before anything was measured
_WITH_BAR = ("RandomForestRegressor", "LGBMRegressor")
_MOST_ROWS = 2_000

# With default settings, but for a seed and silence.
ENSEMBLES: dict[str, Callable[[int], Any]] = {
    "RandomForestRegressor": lambda seed: RandomForestRegressor(random_state=seed),
    "ExtraTreesRegressor": lambda seed: ExtraTreesRegressor(random_state=seed),
    "GradientBoostingRegressor": lambda seed: GradientBoostingRegressor(random_state=seed),
    "HistGradientBoostingRegressor": lambda seed: HistGradientBoostingRegressor(random_state=seed),
    "LGBMRegressor": lambda seed: LGBMRegressor(random_state=seed, verbose=-1, n_jobs=1),
    "XGBRegressor": lambda seed: XGBRegressor(random_state=seed, n_jobs=1),
    "CatBoostRegressor": lambda seed: _catboost(seed),
}


def _catboost(seed: int) -> Any:
    from catboost import CatBoostRegressor  # optional

    return CatBoostRegressor(random_state=seed, verbose=0, thread_count=1, allow_writing_files=False)


def fitted_ensembles(options: Options) -> Iterator[Table]:
    """Errors and coverage of every ensemble on every set, means of random splits into three quarters and one."""
    rows: list[Row] = []
    for name in ["diabetes"] + ([] if options.data is None else ["concrete", "cpu", "kin40k"]):
        data = read_data(Options(options.size), name) if name == "diabetes" else read_data(options, name)
        num_splits = options.pick(20 if name == "diabetes" else 2, 2, 1)
        for kind in ENSEMBLES if options.pick(True, True, False) else ("HistGradientBoostingRegressor",):
            found = [_scored(data, ENSEMBLES[kind], seed, options) for seed in range(num_splits)]
            means = {score: float(np.mean([split[score] for split in found])) for score in found[0]}
            rows.append({"set": name, "ensemble": kind, "splits": num_splits, **means, **_bar(name, kind, means)})
            yield Table("fitted_ensembles", _TITLE, rows, complete=False)
    yield Table("fitted_ensembles", _TITLE, rows)


_TITLE = (
    "PartitionGPRegressor(kernel=ensemble), ensembles with default settings: RMSE in standard deviations of the "
    "training targets, of the process and of the ensemble itself, and how many intervals hold; last those of the same "
    "kernel with scale and noise by marginal likelihood"
)


def _bar(name: str, kind: str, means: dict[str, float]) -> Row:
    if name != "diabetes" or kind not in _WITH_BAR:
        return {}
    off = abs(means["coverage of 90 % (%)"] - _NOMINAL)
    return {"bar": Bar(f"coverage of {kind} on diabetes, points from 90 %", off, at_most=_BAR)}


def _scored(data: Data, new: Callable[[int], Any], seed: int, options: Options) -> Row:
    order = np.random.RandomState(seed).permutation(len(data.y))[: options.pick(4 * _MOST_ROWS // 3, 600, 120)]
    size = len(order) // 4
    test, train = order[:size], order[size:]
    x, y = data.X[train], (data.y[train] - data.y[train].mean()) / data.y[train].std()
    new_x, new_y = data.X[test], (data.y[test] - data.y[train].mean()) / data.y[train].std()
    ensemble = new(seed).fit(x, y)
    model, seconds = timed(lambda: PartitionGPRegressor(ensemble, random_state=seed).fit(x, y))
    mean, std = model.predict(new_x, return_std=True)
    errors = np.abs(new_y - mean)
    kernel = RandomForestKernel.from_forest(ensemble)
    as_usual = PartitionGPRegressor(kernel).fit(x, y).predict(new_x, return_std=True)
    hold = {name: 100 * float(np.mean(errors <= width * std)) for name, width in _INTERVALS.items()}
    return {
        "RMSE": _rmse(errors),
        "RMSE of the ensemble": _rmse(new_y - ensemble.predict(new_x)),
        **hold,
        "marginal likelihood: 90 % (%)": 100 * float(np.mean(np.abs(new_y - as_usual[0]) <= 1.645 * as_usual[1])),
        "seconds": seconds,
    }


def _rmse(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))
