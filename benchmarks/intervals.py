"""Whether intervals hold: with outliers, with the noise at its bound, of the function itself, of given ensembles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes, load_wine, make_friedman1, make_friedman2, make_friedman3
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold
from torch import Tensor

from gpytorch_partition import FastClusterKernel, RandomForestKernel
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.presets import Options as ModelOptions

from .datasets import HALF, Split, means_of, read_data, scores, split_at
from .report import Options, Row, Table, grid, measured, timed

FRIEDMAN = {"friedman1": make_friedman1, "friedman2": make_friedman2, "friedman3": make_friedman3}
FEW_TREES = ModelOptions(
    num_trees=3, num_slope_trees=3, num_boosted_trees=3, num_shallow_boosted_trees=3, most_boosting_rounds=40
)


def noise_at_bound(options: Options) -> Iterator[Table]:
    """Count folds with the noise at its bound, and held-out rows that their 90 % intervals hold."""
    sets, m = _sets(options.pick(None, 40)), options.pick(100, 5)
    jobs = [{"set": name, "kernel": told} for name, (X, _) in sets.items() for told in _kernels(X.shape[1], m)]
    title = "Intervals of PartitionGPRegressor where the noise is at its bound, or not: four folds"
    yield from measured(options, "noise_at_bound", title, jobs, lambda name, told: _folds(*sets[name], told, m))


def _sets(most: int | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    wine = load_wine().data
    found = {
        "diabetes": load_diabetes(return_X_y=True),
        "wine, alcohol": (wine[:, 1:], wine[:, 0]),
        "friedman1, noise of 1": make_friedman1(400, noise=1.0, random_state=0),
        **{f"sin 8x, noise of {noise:g}": _wave(200, noise) for noise in (0.1, 0.3, 0.0)},
    }
    return {name: (X[:most], y[:most]) for name, (X, y) in found.items()}


def _wave(num_rows: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(0)
    x = random.rand(num_rows, 1)
    return x, np.sin(8 * x[:, 0]) + noise * random.randn(num_rows)


def _kernels(num_columns: int, m: int) -> dict[str, Any]:
    def seen(x: Tensor, y: Tensor) -> RandomForestKernel:
        return RandomForestKernel.from_forest(RandomForestRegressor(m, random_state=0).fit(x, y))

    def coarse(x: Tensor, y: Tensor) -> FastClusterKernel:
        return FastClusterKernel(x, m, height=3, random_state=0)

    of_one = {"fast clusters, height=3": coarse} if num_columns == 1 else {}
    return {
        '"forest"': "forest",
        '"fast_cluster"': "fast_cluster",
        **of_one,
        "a forest that has seen the targets": seen,
    }


def _folds(X: np.ndarray, y: np.ndarray, told: str, m: int) -> Row:
    inside, function, at_bound, noises = [], [], 0, []
    for train, test in KFold(4, shuffle=True, random_state=0).split(X):
        kernel = _kernels(X.shape[1], m)[told]
        model = PartitionGPRegressor(kernel, num_partitions=m, random_state=0).fit(X[train], y[train])
        mean, std = model.predict(X[test], return_std=True)
        function += (model.predict(X[test], return_std=True, include_noise=False)[1] / std).tolist()
        inside += (np.abs(y[test] - mean) < HALF * std).tolist()
        at_bound += any(name.endswith("noise") for name in model.at_bounds_)
        noises.append(model.noise_)
    return {
        "folds at the bound": at_bound,
        "standard deviation of the noise": float(np.sqrt(np.mean(noises))),
        "interval of the function, of that of observations": float(np.mean(function)),
        "coverage of 90 % (%)": 100 * float(np.mean(inside)),
    }


# Intervals of the function, where it is known.

NUM_NEW = NUM_PLACES = 300
OUTLIER = 11.0  # standard deviations of the noise that targets of the table are moved by
OF_COLUMNS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of five uniform columns
    "linear": lambda x: x @ np.array([1.0, -2.0, 1.5, 0.0, 0.0]),
    "smooth": lambda x: np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2],
    "quick waves": lambda x: np.sin(12 * x[:, 0]) + x[:, 1],
    "steps": lambda x: np.floor(3 * x[:, 0]) + (x[:, 1] > 0.5) * (x[:, 2] > 0.3),
}
TABLES = {
    "table": (False, 0.0),
    "table, 3% outliers": (False, 0.03),
    "table, 300 places": (True, 0.0),
    "table, 300 places, 3% outliers": (True, 0.03),
}


class Trial(NamedTuple):
    """Rows of which the function is known, the last 300 of them for predictions."""

    x: np.ndarray | pd.DataFrame
    function: np.ndarray
    noise: float
    outliers: float = 0.0  # their share among the training rows


def function_intervals(options: Options) -> Iterator[Table]:
    """Measure the coverage of the function and of observations: of numbers, and of a table with places and outliers."""
    names, seeds = options.pick((*FRIEDMAN, *OF_COLUMNS), ("steps",)), range(options.pick(3, 1))
    jobs = [{"function": name, "rows": size} for size in options.pick((200, 1_000), (40,)) for name in names]
    jobs += [{"function": name, "rows": options.pick(1_500, 40)} for name in TABLES]

    def scored(name: str, size: int) -> Row:
        if name in TABLES:
            trials = [_of_table(size, *TABLES[name], seed) for seed in seeds]
        else:
            trials = [_of_columns(name, size, level, seed) for level in (0.3, 0.7) for seed in seeds]
        model = options.pick(None, FEW_TREES)
        return {"trials": len(trials)} | means_of([_held(trial, seed, model) for seed, trial in enumerate(trials)])

    title = (
        "90 % intervals of the default model: of the function, and of new observations without outliers. Errors and "
        "deviations of the function in units of the noise"
    )
    yield from measured(options, "function_intervals", title, jobs, scored)


def _of_columns(name: str, size: int, level: float, seed: int) -> Trial:
    if name in FRIEDMAN:
        x, function = FRIEDMAN[name](size + NUM_NEW, noise=0.0, random_state=seed)
    else:
        x = np.random.RandomState(seed).rand(size + NUM_NEW, 5)
        function = OF_COLUMNS[name](x)
    return Trial(x, function, level * float(function.std()))


def _of_table(size: int, places: bool, share: float, seed: int) -> Trial:
    """Make logarithms of prices of houses: few of the places are common, most are rare."""
    random, num_rows = np.random.RandomState(seed), size + NUM_NEW
    common = 1 / np.arange(1, NUM_PLACES + 1) ** 0.8
    place = random.choice(NUM_PLACES, num_rows, p=common / common.sum())
    area, year = np.exp(random.normal(4.6, 0.4, num_rows)), random.randint(1900, 2024, num_rows)
    table = pd.DataFrame({"area": area, "year": year})
    table["state"] = random.choice(["poor", "fair", "good", "new"], num_rows, p=[0.15, 0.3, 0.45, 0.1])
    function = 0.85 * np.log(table["area"]) + 0.0018 * (table["year"] - 1960).abs()
    function += table["state"].map({"poor": -0.25, "fair": 0.0, "good": 0.1, "new": 0.25})
    if places:
        table["place"] = [f"place {number}" for number in place]
        function += random.normal(0, 0.25, NUM_PLACES)[place]
    return Trial(table, function.to_numpy(), 0.1, share)


def _held(trial: Trial, seed: int, options: ModelOptions | None) -> dict[str, float]:
    random, train, new = np.random.RandomState(seed + 100), slice(None, -NUM_NEW), slice(-NUM_NEW, None)
    y = trial.function + trial.noise * random.randn(len(trial.function))
    moved = random.rand(len(y)) < trial.outliers
    moved[new] = False
    y[moved] += trial.noise * OUTLIER * random.choice([-1, 1], moved.sum())
    model = PartitionGPRegressor(random_state=seed, options=options).fit(trial.x[train], y[train])
    mean, std, ends = model.predict(trial.x[new], return_std=True, quantiles=(0.05, 0.95), include_noise=False)
    function = trial.function[new]
    return {
        "of the function (%)": 100 * float(np.mean((ends[:, 0] <= function) & (function <= ends[:, 1]))),
        "of observations (%)": 100 * model.judge(trial.x[new], y[new]).coverage(0.9),
        "its error": float(np.sqrt(np.mean((mean - function) ** 2))) / trial.noise,
        "its deviation": float(np.sqrt(np.mean(std**2))) / trial.noise,
    }


# Given ensembles.

ENSEMBLES: dict[str, tuple[str, Row]] = {  # modules, and options for one silent thread; all else is default
    "RandomForestRegressor": ("sklearn.ensemble", {}),
    "ExtraTreesRegressor": ("sklearn.ensemble", {}),
    "GradientBoostingRegressor": ("sklearn.ensemble", {}),
    "HistGradientBoostingRegressor": ("sklearn.ensemble", {}),
    "LGBMRegressor": ("lightgbm", {"verbose": -1, "n_jobs": 1}),
    "XGBRegressor": ("xgboost", {"n_jobs": 1}),
    "CatBoostRegressor": ("catboost", {"verbose": 0, "thread_count": 1, "allow_writing_files": False}),
}


def fitted_ensembles(options: Options) -> Iterator[Table]:
    """Compare intervals of GPs with the kernels of ensembles: clones in folds against marginal likelihood."""
    names = ["diabetes", *(["concrete"] if options.data else [])]
    kinds = options.pick(list(ENSEMBLES), ["HistGradientBoostingRegressor"])

    def scored(name: str, kind: str) -> Row:
        seeds = range(options.pick(20 if name == "diabetes" else 2, 1))
        return means_of([_by_folds(_quarter(options, name, seed), kind, seed) for seed in seeds])

    title = (
        "PartitionGPRegressor(kernel=ensemble), ensembles with default settings: RMSE in standard deviations of the "
        "training targets, and how many intervals hold; last of the same kernel by marginal likelihood"
    )
    jobs = grid(set=names, ensemble=kinds)
    yield from measured(options, "fitted_ensembles", title, jobs, scored)


def _quarter(options: Options, name: str, seed: int) -> Split:
    data = read_data(options, name)
    order = np.random.RandomState(seed).permutation(len(data.y))[: options.pick(2_666, 120)]
    size = len(order) // 4
    split = split_at(data.X, data.y, order[size:], order[:size])
    return split._replace(x=data.X[order[size:]], test_x=data.X[order[:size]])


def _by_folds(split: Split, kind: str, seed: int) -> dict[str, float]:
    module, silence = ENSEMBLES[kind]
    ensemble = getattr(import_module(module), kind)(random_state=seed, **silence).fit(split.x, split.y)
    model, seconds = timed(lambda: PartitionGPRegressor(ensemble, random_state=seed).fit(split.x, split.y))
    mean, std = model.predict(split.test_x, return_std=True)
    usual = PartitionGPRegressor(RandomForestKernel.from_forest(ensemble)).fit(split.x, split.y)
    found = scores(split.test_y, mean, std)
    return {
        "RMSE": found["RMSE"],
        "RMSE of the ensemble": float(np.sqrt(np.mean((split.test_y - ensemble.predict(split.test_x)) ** 2))),
        "90 % hold (%)": 100 * found["coverage"],
        "50 % hold (%)": 100 * float(np.mean(np.abs(split.test_y - mean) <= 0.6745 * std)),
        "marginal likelihood: 90 % (%)": 100
        * scores(split.test_y, *usual.predict(split.test_x, return_std=True))["coverage"],
        "seconds": seconds,
    }
