"""How good the predictions are: root mean squared error, negative log predictive density, coverage of 90 %."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from linear_operator.settings import max_cholesky_size
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import cross_val_predict
from torch import Tensor

from gpytorch_partition.estimators import PartitionGPRegressor

from .problems import RBFModel, adam, friedman, read, standardized
from .report import Options, Row, Table

SETS = ("concrete", "cpu", "elevators", "protein", "kin40k", "california")
INTERVAL = norm.ppf(0.95)


class Split(NamedTuple):
    """Training and test rows."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


class Moments(NamedTuple):
    """Predictive means and standard deviations, noise included."""

    mean: np.ndarray
    std: np.ndarray


def quality(options: Options) -> Iterator[Table]:
    """One split of each set: half the rows to train on and half to test on, at most 5,000 of each."""
    most = options.pick(5_000, 1_000, 150)
    rows = [
        _scored(name, split, model, predict)
        for name, split in _splits(options, most)
        for model, predict in _models(options).items()
    ]
    title = f"Predictions of standardized targets, one split, at most {most:,} training and {most:,} test rows"
    yield Table("quality", title, rows)


def _splits(options: Options, most: int) -> Iterator[tuple[str, Split]]:
    for name, (x, y) in _sets(options, 2 * most):
        half = len(y) // 2
        X, targets = x.double().numpy(), y.double().numpy()
        yield name, Split(X[:half], targets[:half], X[half:], targets[half:])


def _sets(options: Options, num_rows: int) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    if options.data is not None:
        for name in options.pick(SETS, SETS[:2], SETS[:1]):
            yield name, read(options.data, name, num_rows)
        return
    X, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:num_rows]
    yield "diabetes", standardized(X[order], y[order])
    yield "friedman1", friedman(num_rows)


def _models(options: Options) -> dict[str, Callable[[Split], Moments]]:
    num_partitions, most, steps = options.pick(200, 50, 20), options.pick(3_000, 500, 100), options.pick(60, 20, 2)
    return {
        "GP, forest kernel": lambda split: _partition_gp(split, "forest", num_partitions),
        "GP, fast cluster kernel": lambda split: _partition_gp(split, "fast_cluster", num_partitions),
        "GP, Mondrian kernel": lambda split: _partition_gp(split, "mondrian", num_partitions),
        "random forest": _random_forest,
        "histogram gradient boosting": _boosting,
        f"GP, RBF-ARD kernel (at most {most:,} rows)": lambda split: _rbf_gp(split, most, steps),
    }


def _scored(name: str, split: Split, model: str, predict: Callable[[Split], Moments]) -> Row:
    start = perf_counter()
    mean, std = predict(split)
    error = split.test_y - mean
    return {
        "data": name,
        "training rows": len(split.y),
        "columns": split.x.shape[1],
        "model": model,
        "RMSE": float(np.sqrt(np.mean(error**2))),
        "NLPD": float(-norm.logpdf(error, scale=std).mean()),
        "coverage of 90 %": float(np.mean(np.abs(error) <= INTERVAL * std)),
        "seconds": perf_counter() - start,
    }


def _partition_gp(split: Split, kernel: str, num_partitions: int) -> Moments:
    model = PartitionGPRegressor(kernel, num_partitions, random_state=0).fit(split.x, split.y)
    return Moments(*model.predict(split.test_x, return_std=True))


def _random_forest(split: Split) -> Moments:
    """With the standard deviation of the out-of-bag residuals."""
    forest = RandomForestRegressor(200, oob_score=True, random_state=0, n_jobs=-1).fit(split.x, split.y)
    return _with_one_std(forest.predict(split.test_x), split.y - forest.oob_prediction_)


def _boosting(split: Split) -> Moments:
    """With the standard deviation of the residuals of a cross-validation."""
    boosting = HistGradientBoostingRegressor(random_state=0)
    residuals = split.y - cross_val_predict(boosting, split.x, split.y, cv=5)
    return _with_one_std(boosting.fit(split.x, split.y).predict(split.test_x), residuals)


def _with_one_std(mean: np.ndarray, residuals: np.ndarray) -> Moments:
    return Moments(mean, np.full_like(mean, np.sqrt(np.mean(residuals**2))))


def _rbf_gp(split: Split, most: int, steps: int) -> Moments:
    """By Adam with Cholesky factors."""
    x, y, test_x = (torch.from_numpy(values) for values in (split.x[:most], split.y[:most], split.test_x))
    model = RBFModel(x, y)
    with max_cholesky_size(most + 1):
        adam(model, steps)
        model.eval()
        with torch.no_grad():
            observed = model.likelihood(model(test_x))
            return Moments(observed.mean.numpy(), observed.stddev.numpy())
