"""The command `compare`: scores of every kernel and of two reference models on one split of a data set."""

from __future__ import annotations

import math
import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import linear_operator
import numpy as np
from gpytorch.kernels import Kernel, RBFKernel
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.command_line.errors import CommandError, check_folder
from gpytorch_partition.command_line.tables import TrainingData, read_training_data, write_table
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.estimators.scores import coverage
from gpytorch_partition.plots import plot_comparison
from gpytorch_partition.progress import progress

TITLES = {
    "forest": "random forest kernel",
    "fast_cluster": "fast cluster kernel",
    "mondrian": "Mondrian kernel",
    "random_forest": "random forest",
    "rbf_ard": "RBF-ARD GP",
}
_MOST_ROWS_FOR_RBF = 3_000
_FEWEST_TRAINING_ROWS = 10


class Split(NamedTuple):
    """Rows to learn from (`N x D`), and rows to predict (`n x D`)."""

    train_X: np.ndarray
    test_X: np.ndarray
    train_y: np.ndarray
    test_y: np.ndarray
    test_rows: np.ndarray  # their numbers in the data, from 0


class Result(NamedTuple):
    """A model's predictions for the test rows (`n` each, in units of the target), and the seconds that they took."""

    mean: np.ndarray
    std: np.ndarray
    seconds: float


class Scores(NamedTuple):
    """A line of the table: RMSE in units of the target, NLPD in nats per row, coverage as a share, and seconds."""

    model: str
    rmse: float
    nlpd: float
    coverage_90: float
    seconds: float


Model = Callable[[Split], tuple[np.ndarray, np.ndarray]]


def compare(options: Namespace) -> None:
    """
    Fit, predict, score, print and write, as `python -m gpytorch_partition compare --help` describes.

    :param options: The command line, parsed by :func:`~gpytorch_partition.command_line.parser.new_parser`.
    :raises CommandError: If the data cannot be used, too few rows are left to train on, or nothing can be written.
    """
    data = _data(options)
    folder = Path(options.output)
    check_folder(folder)
    split = _split(data, options)
    models = _models(split, options)
    results = {name: _run(name, model, split) for name, model in progress(list(models.items()), "models")}
    scores = [_scores(name, result, split) for name, result in results.items()]
    _print(data, split, scores, results)
    _write(folder, data, split, scores, results, options.kernels)


def _data(options: Namespace) -> TrainingData:
    if (options.data is None) != (options.target is None):
        raise CommandError("compare expects DATA.csv together with --target COLUMN, or neither for the diabetes data")
    if options.data is not None:
        return read_training_data(Path(options.data), options.target)
    diabetes = load_diabetes()
    return TrainingData(diabetes.data, diabetes.target, diabetes.feature_names, "disease progression")


def _split(data: TrainingData, options: Namespace) -> Split:
    rows = np.arange(len(data.y))
    num_train = len(rows) - math.ceil(options.test_size * len(rows))
    if num_train < _FEWEST_TRAINING_ROWS:
        got = f"--test-size {options.test_size} leaves {num_train} of {len(rows)} rows to train on"
        raise CommandError(f"{got}, expected {_FEWEST_TRAINING_ROWS} or more: give a smaller share")
    parts = train_test_split(data.X, data.y, rows, test_size=options.test_size, random_state=options.seed)
    train_X, test_X, train_y, test_y, _, test_rows = parts
    return Split(train_X, test_X, train_y, test_y, test_rows)


def _models(split: Split, options: Namespace) -> dict[str, Model]:
    """The models to compare, by name."""
    size, seed = options.num_partitions, options.seed
    models: dict[str, Model] = {
        kernel: _fitted_by(PartitionGPRegressor(kernel, size, random_state=seed)) for kernel in options.kernels
    }
    models["random_forest"] = lambda split: _random_forest(split, size, seed)
    if len(split.train_y) <= _MOST_ROWS_FOR_RBF:
        models["rbf_ard"] = _rbf_ard
    return models


def _fitted_by(regressor: PartitionGPRegressor) -> Model:
    return lambda split: regressor.fit(split.train_X, split.train_y).predict(split.test_X, return_std=True)


def _random_forest(split: Split, num_trees: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random forest; its standard deviation is that of its out-of-bag errors, the same for every row."""
    forest = RandomForestRegressor(num_trees, oob_score=True, random_state=seed).fit(split.train_X, split.train_y)
    std = root_mean_squared_error(split.train_y, forest.oob_prediction_)
    return forest.predict(split.test_X), np.full(len(split.test_X), std)


def _rbf_ard(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """An exact GP with a squared exponential kernel and a lengthscale per column, by Cholesky factorization."""
    dense = linear_operator.settings.max_cholesky_size(_MOST_ROWS_FOR_RBF)
    with settings.iterative(), dense:
        return _fitted_by(PartitionGPRegressor(_new_rbf, dtype="float64"))(split)


def _new_rbf(x: Tensor, y: Tensor) -> Kernel:
    kernel = RBFKernel(ard_num_dims=x.shape[1])
    kernel.lengthscale = math.sqrt(x.shape[1])  # the order of distances between standardized rows
    return kernel


def _run(name: str, model: Model, split: Split) -> Result:
    """A model's predictions, timed; its warnings begin with the model's title."""
    with warnings.catch_warnings(record=True) as caught:
        start = time.perf_counter()
        mean, std = model(split)
        seconds = time.perf_counter() - start
    for warning in caught:
        warnings.warn(f"{TITLES[name]}: {warning.message}", warning.category, stacklevel=2)
    return Result(mean, std, seconds)


def _scores(name: str, result: Result, split: Split) -> Scores:
    y, mean, std, unit = split.test_y, result.mean, result.std, float(split.train_y.std())
    return Scores(
        name,
        root_mean_squared_error(y, mean),
        float(-norm.logpdf(y / unit, mean / unit, std / unit).mean()),
        float(coverage(y, mean, std, 0.9)),
        result.seconds,
    )


def _print(data: TrainingData, split: Split, scores: list[Scores], results: dict[str, Result]) -> None:
    num_train, num_test = len(split.train_y), len(split.test_y)
    print(f"{data.target}: {num_train:,} training rows, {num_test:,} test rows, {len(data.columns)} columns\n")
    print(f"{'model':<22}{'RMSE':>10}{'NLPD':>9}{'90 %':>8}{'seconds':>10}")
    for line in scores:
        print(f"{TITLES[line.model]:<22}{line.rmse:>10.4g}{line.nlpd:>9.3f}", end="")
        print(f"{100 * line.coverage_90:>8.1f}{line.seconds:>10.1f}")
    deviation = split.train_y.std()
    print(
        f"\nRMSE: root mean squared error in units of the target, whose standard deviation is {deviation:.4g}.\n"
        "NLPD: mean negative log predictive density of the targets divided by their standard deviation, nats per row.\n"
        "90 %: percentage of test rows within the central 90 % interval. Seconds: fit and predictions.\n"
        "The random forest's standard deviation is that of its out-of-bag errors, the same for every row."
    )
    if "rbf_ard" not in results:
        print(f"The RBF-ARD GP is left out above {_MOST_ROWS_FOR_RBF:,} training rows.")


def _write(
    folder: Path, data: TrainingData, split: Split, scores: list[Scores], results: dict[str, Result], kernels: list[str]
) -> None:
    with open(folder / "table.csv", "w", newline="") as file:
        write_table(file, Scores._fields, scores)
    names = [f"{name}_{kind}" for name in results for kind in ("mean", "std")]
    columns = [column for result in results.values() for column in (result.mean, result.std)]
    with open(folder / "predictions.csv", "w", newline="") as file:
        write_table(file, ["row", "target", *names], zip(split.test_rows, split.test_y, *columns))
    print(f"\nWritten to {folder}: table.csv, predictions.csv", end="")
    if find_spec("matplotlib") is None:
        print('\nFor the plot, install matplotlib: pip install "gpytorch_partition[plot]"')
        return
    _plot(folder / "plot.png", data.target, split, results, kernels)
    print(", plot.png")


def _plot(path: Path, target: str, split: Split, results: dict[str, Result], kernels: list[str]) -> None:
    predictions = {TITLES[name]: (results[name].mean, results[name].std) for name in kernels}
    references = {TITLES[name]: (r.mean, r.std) for name, r in results.items() if name not in kernels}
    sizes = f"{len(split.train_y):,} training rows, {len(split.test_y):,} test rows"
    title = f"Exact Gaussian processes with random partition kernels: {sizes}"
    plot_comparison(split.test_y, predictions, references, title=title, target=target).savefig(path)
