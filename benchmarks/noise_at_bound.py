"""Whether intervals hold where the marginal likelihood moves the noise to its bound: by sets and kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_diabetes, load_wine, make_friedman1
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold
from torch import Tensor

from gpytorch_partition import FastClusterKernel, RandomForestKernel
from gpytorch_partition.estimators import PartitionGPRegressor

from .report import Options, Row, Table

_FOLDS = 4
_HALF = 1.645  # standard deviations on either side of a 90 % interval
_TITLE = f"Intervals of PartitionGPRegressor where the noise is at its bound, or not: {_FOLDS} folds"


def noise_at_bound(options: Options) -> Iterator[Table]:
    """How many folds have the noise at its bound, and how many held-out rows their 90 % intervals hold."""
    partitions = options.pick(100, 30, 5)
    rows: list[Row] = []
    for name, (X, y) in _sets(options.pick(None, None, 40)).items():
        for told, kernel in _kernels(X.shape[1], partitions).items():
            about = {"set": name, "rows": len(y), "columns": X.shape[1], "kernel": told}
            rows.append(about | _scores(kernel, X, y, partitions))
        yield Table("noise_at_bound", _TITLE, rows, complete=False)
    yield Table("noise_at_bound", _TITLE, rows)


class _Set(NamedTuple):
    X: np.ndarray
    y: np.ndarray


def _sets(most: int | None) -> dict[str, _Set]:
    wine = load_wine().data
    found = {
        "diabetes": _Set(*load_diabetes(return_X_y=True)),
        "wine, alcohol": _Set(wine[:, 1:], wine[:, 0]),
        "friedman1, noise of 1": _Set(*make_friedman1(400, noise=1.0, random_state=0)),
        "sin 8x, noise of .1": _wave(200, 0.1),
        "sin 8x, noise of .3": _wave(200, 0.3),
        "sin 8x, no noise": _wave(200, 0.0),
    }
    return {name: _Set(X[:most], y[:most]) for name, (X, y) in found.items()}


def _wave(num_rows: int, noise: float) -> _Set:
    random = np.random.RandomState(0)
    x = random.rand(num_rows, 1)
    return _Set(x, np.sin(8 * x[:, 0]) + noise * random.randn(num_rows))


def _kernels(num_columns: int, partitions: int) -> dict[str, Any]:
    """Values of `kernel=`, with what they are called."""

    def seen(x: Tensor, y: Tensor) -> RandomForestKernel:
        return RandomForestKernel.from_forest(RandomForestRegressor(partitions, random_state=0).fit(x, y))

    def coarse(x: Tensor, y: Tensor) -> FastClusterKernel:
        return FastClusterKernel(x, partitions, height=3, random_state=0)

    kernels: dict[str, Any] = {'"forest"': "forest", '"fast_cluster"': "fast_cluster"}
    if num_columns == 1:
        kernels["fast clusters, height=3"] = coarse
    return kernels | {"a forest that has seen the targets": seen}


def _scores(kernel: Any, X: np.ndarray, y: np.ndarray, partitions: int) -> Row:
    inside, function, at_bound, noises = [], [], 0, []
    for train, test in KFold(_FOLDS, shuffle=True, random_state=0).split(X):
        model = PartitionGPRegressor(kernel, num_partitions=partitions, random_state=0).fit(X[train], y[train])
        mean, std = model.predict(X[test], return_std=True)
        function += (model.predict(X[test], return_std=True, include_noise=False)[1] / std).tolist()
        inside += (np.abs(y[test] - mean) < _HALF * std).tolist()
        at_bound += any(name.endswith("noise") for name in model.at_bounds_)
        noises.append(model.noise_)
    return {
        "folds at the bound": at_bound,
        "standard deviation of the noise": float(np.sqrt(np.mean(noises))),
        "interval of the function, of that of observations": float(np.mean(function)),
        "coverage of 90 % (%)": 100 * float(np.mean(inside)),
    }
