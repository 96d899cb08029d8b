"""The command `compare`: scores of every kernel and of two reference models on one split of a data set."""

from __future__ import annotations

import math
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any

import linear_operator
import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import GroupShuffleSplit, train_test_split

from gpytorch_partition import settings
from gpytorch_partition.command_line import outputs
from gpytorch_partition.command_line.model_file import left_out, new_regressor
from gpytorch_partition.command_line.outputs import CommandError
from gpytorch_partition.command_line.table_files import Dialect
from gpytorch_partition.command_line.training_data import Roles, TrainingData, read_training_data
from gpytorch_partition.descriptions import written
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.estimators.scores import Judgement, mean_and_error
from gpytorch_partition.explain.plots import plot_comparison
from gpytorch_partition.presets.data import Blocks
from gpytorch_partition.progress import doing
from gpytorch_partition.tables import TableEncoder, view_in_folds

FOLDER = "compare"  # default for results
MOST_ROWS_FOR_RBF = 3_000
_TITLES = {  # the fastest first
    "random_forest": "random forest",
    "fast_cluster": "fast cluster kernel",
    "mondrian": "Mondrian kernel",
    "forest": "random forest kernel",
    "rbf_ard": "RBF-ARD GP",
    "auto": "default model (auto)",
}
_WIDTH = 80  # of what is printed
_FILES = ("table.csv", "predictions.csv", "plot.png")  # that are written
_FEWEST_TRAINING_ROWS = 10

Line = dict[str, Any]  # of the table: a model's name, its scores with their standard errors, and its seconds
Results = dict[str, Judgement]
Model = Callable[[TrainingData, TrainingData], Judgement]  # of rows to learn from and rows to predict


def compare(options: Namespace) -> None:
    """Fit every kernel and two reference models to one split of a file; print their scores, and write them."""
    if options.budget is not None and "auto" not in options.kernels:
        got = ", ".join(options.kernels)
        raise CommandError(f"--budget is for the kernel auto, got {got}: add auto to --kernels, or leave --budget out")
    folder = Path(options.output or FOLDER)
    outputs.check_folder(folder, "--output", options.output is not None, _FILES, options.data)
    data = _data(options)
    train, test = split_rows(data, options.test_size, options.seed)
    outputs.say_all(data.notes, options)
    models, results, lines = _models(train, options), Results(), list[Line]()
    new = "".join({"groups": " of other groups", "time": " of later times"}[role] for role in train.blocks)
    outputs.show(f"{train.target}: {_sizes(train, test)}{new}, {train.num_columns} columns\n")
    outputs.show(f"{'model':<20}{'RMSE':>8}{'':10}{'NLPD':>7}{'':9}{'CRPS':>7}{'interval':>9}{'90 %':>5}{'s':>5}")
    for number, (name, model) in enumerate(models.items(), 1):
        found, seconds = _run(name, partial(model, train, test), f"{number}/{len(models)} {name}")
        if found is not None:
            results[name] = found
            line = _scores(name, found, train, test) | {"seconds": seconds}
            lines.append(line)
            shown = f"{_start(line)}{written(line['crps']):>7}{written(line['interval_score_90']):>9}"
            outputs.show(f"{shown}{100 * line['coverage_90']:>5.0f}{seconds:>5.0f}")
    if not results:
        raise CommandError("no model could be fitted, for the reasons above: there is nothing to write")
    others = _add_differences(lines, results, test)
    if others:
        outputs.show("\nless the default model, row by row (within 2 of its +-, it is noise)")
    for line in others:
        outputs.show(_start(line, "_to_auto"))
    _print_foot(train, test, models.keys())
    _write(folder, train, test, lines, results, options.kernels)


def _data(options: Namespace) -> TrainingData:
    if (options.data is None) != (options.target is None):
        raise CommandError("compare expects DATA together with --target COLUMN, or neither for the diabetes data")
    if options.data is not None:
        return read_training_data(Path(options.data), Roles.of_options(options), Dialect.of_options(options))
    if options.groups or options.time:
        raise CommandError("--groups and --time name columns of DATA: give it, or leave them out")
    diabetes = load_diabetes()
    rows, reader = np.arange(len(diabetes.target)), TableEncoder().fit(diabetes.data)
    return TrainingData(diabetes.data, diabetes.target, "disease progression", reader, rows)  # without pandas


def split_rows(data: TrainingData, test_size: float, seed: int) -> tuple[TrainingData, TrainingData]:
    """Return training and test rows: test rows are random rows or groups, or, where rows have times, the latest."""
    rows = np.arange(len(data.y))
    num_train = len(rows) - math.ceil(test_size * len(rows))
    if "groups" in data.blocks:
        splits = GroupShuffleSplit(1, test_size=test_size, random_state=seed)
        train, test = next(splits.split(rows, groups=data.blocks["groups"]))
    elif "time" in data.blocks:
        is_later = data.blocks["time"] >= np.sort(data.blocks["time"])[num_train]
        train, test = rows[~is_later], rows[is_later]
    else:
        train, test = train_test_split(rows, test_size=len(rows) - max(num_train, 1), random_state=seed)
    if len(train) < _FEWEST_TRAINING_ROWS:
        got = f"--test-size {test_size} leaves {len(train)} of {len(rows)} rows to train on"
        raise CommandError(f"{got}, expected {_FEWEST_TRAINING_ROWS} or more: give a smaller share")
    return data.at(train), data.at(test)


def _models(train: TrainingData, options: Namespace) -> dict[str, Model]:
    models: dict[str, Model] = {kernel: partial(_judged, kernel, options) for kernel in options.kernels}
    if not options.no_references:
        models["random_forest"] = partial(random_forest, options)
        models |= {"rbf_ard": partial(rbf_ard, options)} if len(train.y) <= MOST_ROWS_FOR_RBF else {}
    return {name: models[name] for name in _TITLES if name in models}


def _judged(kernel: str, options: Namespace, train: TrainingData, test: TrainingData) -> Judgement:
    regressor = new_regressor(options, kernel, train.categorical)
    regressor.fit(train.table, train.y, train.weights, **(train.blocks if kernel == "auto" else {}))
    outputs.say_all(left_out(regressor), options)
    return regressor.judge(test.table, test.y, test.weights)


def random_forest(options: Namespace, train: TrainingData, test: TrainingData) -> Judgement:
    """Return the scores of scikit-learn's forest, with the root mean square of out-of-bag errors as its deviation."""
    encoder, weights = TableEncoder(train.categorical), train.weights
    x, y = torch.from_numpy(encoder.fit_transform(train.table)), torch.from_numpy(train.y)
    sizes = {place: len(levels) for place, levels in encoder.categories_.items()}
    blocks = Blocks.of(train.blocks.get("groups"), train.blocks.get("time"), len(train.y))
    random = np.random.RandomState(options.seed)
    view, rows = view_in_folds(x, sizes, y, random, groups=None if blocks is None else blocks.groups)
    forest = RandomForestRegressor(options.num_partitions, oob_score=True, random_state=options.seed)
    forest.fit(view(rows).numpy(), train.y, weights)
    squares = (train.y - forest.oob_prediction_) ** 2
    of_weight_1 = float(np.sqrt(np.mean(squares if weights is None else weights * squares)))
    std = of_weight_1 / np.sqrt(np.ones(len(test.y)) if test.weights is None else test.weights)
    new = view(torch.from_numpy(encoder.transform(test.table))).numpy()
    return Judgement.gaussian(test.y, forest.predict(new), std)


def rbf_ard(options: Namespace, train: TrainingData, test: TrainingData) -> Judgement:
    """Return the scores of an exact GP with an RBF kernel and a lengthscale per column, by Cholesky factorization."""
    dense = linear_operator.settings.max_cholesky_size(MOST_ROWS_FOR_RBF)
    with settings.iterative(), dense, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*trained by L-BFGS")  # it has lengthscales: nothing to correct
        others: dict[str, Any] = {"categorical_features": train.categorical, "random_state": options.seed}
        regressor = PartitionGPRegressor(_new_rbf, dtype="float64", **others)
        regressor.fit(train.table, train.y, train.weights)
        return regressor.judge(test.table, test.y, test.weights)


def _new_rbf(x: torch.Tensor, y: torch.Tensor) -> Kernel:
    kernel = RBFKernel(ard_num_dims=x.shape[1])
    kernel.lengthscale = math.sqrt(x.shape[1])  # the order of distances between standardized rows
    return kernel


def _run(name: str, model: Callable[[], Judgement], label: str) -> tuple[Judgement | None, float]:
    """Return predictions, or None and a warning if a model fails, as others may have taken an hour; and seconds."""
    found: Judgement | None = None
    with warnings.catch_warnings(record=True) as caught, doing(label):
        start = time.perf_counter()
        try:
            found = model()
        except Exception as error:
            reason = str(error).partition("\n")[0] or "without a reason"
            warnings.warn(f"left out, since it failed: {reason} ({type(error).__name__})", RuntimeWarning, stacklevel=2)
        seconds = time.perf_counter() - start
    for warning in caught:
        warnings.warn(f"{_TITLES[name]}: {warning.message}", warning.category, stacklevel=2)
    return found, seconds


def _scores(name: str, found: Judgement, train: TrainingData, test: TrainingData) -> Line:
    squared, error = mean_and_error((test.y - found.mean) ** 2, test.weights)
    rmse = math.sqrt(squared)
    line = {"model": name, "rmse": rmse, "rmse_error": error / (2 * rmse) if rmse > 0 else 0.0}
    measures = {
        "nlpd": -found.log_density - math.log(train.y.std()),
        "crps": found.crps,
        "interval_score_90": found.interval_score,
        "coverage_90": (found.level <= 0.9).astype(float),
    }
    for score, values in measures.items():
        line[score], line[f"{score}_error"] = mean_and_error(values, test.weights)
    return line


def _add_differences(lines: list[Line], results: Results, test: TrainingData) -> list[Line]:
    """Add RMSE and NLPD less those of the default, paired by row, and their errors; return the other models' lines."""
    if (default := results.get("auto")) is None:
        return []
    (best,) = (line for line in lines if line["model"] == "auto")
    for line in lines:
        found = results[line["model"]]
        halves = [(test.y - one.mean) ** 2 / (2 * own["rmse"] or 1) for one, own in ((found, line), (default, best))]
        line["rmse_to_auto"] = line["rmse"] - best["rmse"]
        _, line["rmse_to_auto_error"] = mean_and_error(halves[0] - halves[1], test.weights)
        gains = default.log_density - found.log_density
        line["nlpd_to_auto"], line["nlpd_to_auto_error"] = mean_and_error(gains, test.weights)
    return [line for line in lines if line is not best]


def _sizes(train: TrainingData, test: TrainingData) -> str:
    return f"{len(train.y):,} training rows, {len(test.y):,} test rows"


def _start(line: Line, kind: str = "") -> str:
    rmse, error, nlpd, of_nlpd = (line[f"{name}{kind}{end}"] for name in ("rmse", "nlpd") for end in ("", "_error"))
    shown = written(rmse, 2 if kind else 4), written(error, 4 if error >= 100 else 2)
    return f"{_TITLES[line['model']]:<20}{shown[0]:>8} +- {shown[1]:<6}{nlpd:>7.3f} +- {of_nlpd:<5.3f}"


def _print_foot(train: TrainingData, test: TrainingData, names: Container[str]) -> None:
    told = (
        "RMSE, CRPS and the mean score of 90 % intervals are in units of the target, whose standard deviation is "
        f"{written(train.y.std())}; NLPD in nats a row, of the targets divided by it: less is better. 90 %: "
        "percentage of test rows within that interval. s: seconds. +-: standard error over the test rows."
    )
    outputs.show("\n" + fill(told, _WIDTH))
    if test.weights is not None:
        outputs.show("All scores are averages over test rows by their weights, which divide the variance of the noise.")
    if "random_forest" in names and "rbf_ard" not in names:
        outputs.show(f"The RBF-ARD GP is left out above {MOST_ROWS_FOR_RBF:,} training rows.")


def _write(
    folder: Path, train: TrainingData, test: TrainingData, lines: list[Line], results: Results, kernels: list[str]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    outputs.save_table(folder / _FILES[0], {name: [line[name] for line in lines] for name in lines[0]})
    columns: Line = {"row": test.rows} | ({} if test.ids is None else {str(test.id): test.ids}) | {"target": test.y}
    columns |= {} if test.weights is None else {"weight": test.weights}
    for name, found in results.items():
        columns |= zip([f"{name}_{kind}" for kind in ("mean", "std", "lower_90", "upper_90")], found)
    outputs.save_table(folder / _FILES[1], columns)
    outputs.show(f"\nWritten to {folder}: table.csv, predictions.csv", end="")
    if not outputs.has_matplotlib():
        outputs.show(f"\nFor the plot, install matplotlib: {outputs.INSTALL}")
        return
    predictions = {_TITLES[name]: found for name, found in results.items() if name in kernels}
    references = {_TITLES[name]: found for name, found in results.items() if name not in kernels}
    title = f"Exact Gaussian processes with random partition kernels: {_sizes(train, test)}"
    told: dict[str, Any] = {"title": title, "target": train.target, "sample_weight": test.weights}
    outputs.save_figure(folder / _FILES[2], plot_comparison(test.y, predictions, references, **told))
    outputs.show(", plot.png")
