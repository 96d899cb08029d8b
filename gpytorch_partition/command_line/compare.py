"""The command `compare`: scores of every kernel and of two reference models on one split of a data set."""

from __future__ import annotations

import math
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes

from gpytorch_partition.command_line.errors import CommandError, say
from gpytorch_partition.command_line.fit import left_out
from gpytorch_partition.command_line.outputs import (
    INSTALL,
    check_folder,
    check_writable,
    has_matplotlib,
    save_figure,
    save_table,
)
from gpytorch_partition.command_line.references import MOST_ROWS_FOR_RBF, random_forest, rbf_ard
from gpytorch_partition.command_line.split import split_rows
from gpytorch_partition.command_line.table_files import Dialect
from gpytorch_partition.command_line.training_data import Roles, TrainingData, read_training_data
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.estimators.scores import Judgement, mean_and_error
from gpytorch_partition.explain.plots import plot_comparison
from gpytorch_partition.progress import doing
from gpytorch_partition.tables import TableEncoder

TITLES = {
    "auto": "default model (auto)",
    "forest": "random forest kernel",
    "fast_cluster": "fast cluster kernel",
    "mondrian": "Mondrian kernel",
    "random_forest": "random forest",
    "rbf_ard": "RBF-ARD GP",
}
FOLDER = "compare"  # default for results
_FILES = ("table.csv", "predictions.csv", "plot.png")  # that are written


Line = dict[str, Any]  # of the table: a model's name, its scores with their standard errors, and its seconds
Model = Callable[[TrainingData, TrainingData], Judgement]  # of rows to learn from and rows to predict


def compare(options: Namespace) -> None:
    """
    Fit models, score them, print and write results, as in `python -m gpytorch_partition compare --help`.

    :param options: The command line, parsed by :func:`~gpytorch_partition.command_line.parser.new_parser`.
    :raises CommandError: If the data cannot be used, too few rows are left to train on, or nothing can be written.
    """
    if options.budget is not None and "auto" not in options.kernels:
        raise CommandError("--budget is for the kernel auto, which knows what it can leave out: add it to --kernels")
    if options.data is None and (options.groups or options.time):
        raise CommandError("--groups and --time name columns of DATA: give it, or leave them out")
    folder = Path(options.output or FOLDER)
    _check_output(folder, options)
    data = _data(options)
    train, test = split_rows(data, options.test_size, options.seed)
    say(data.notes, options.quiet)
    models = _models(train, options)
    _print_head(train, test)
    results: dict[str, Judgement] = {}
    lines: list[Line] = []
    for number, (name, model) in enumerate(models.items(), 1):
        found, seconds = _run(name, partial(model, train, test), f"{number}/{len(models)} {name}")
        if found is not None:
            results[name] = found
            lines.append(_scores(name, found, train, test) | {"seconds": seconds})
            _print_line(lines[-1])
    if not results:
        raise CommandError("no model could be fitted, for the reasons above: there is nothing to write")
    _print_foot(train, test, models.keys())
    _write(folder, train, test, lines, results, options.kernels)


def _check_output(folder: Path, options: Namespace) -> None:
    check_folder(folder, "--output", options.output is not None)
    for name in _FILES if folder.is_dir() else ():
        check_writable(folder / name, options.data)


def _data(options: Namespace) -> TrainingData:
    if (options.data is None) != (options.target is None):
        raise CommandError("compare expects DATA together with --target COLUMN, or neither for the diabetes data")
    if options.data is not None:
        return read_training_data(Path(options.data), Roles.of_options(options), Dialect.of_options(options))
    diabetes = load_diabetes()
    table, rows = dict(zip(diabetes.feature_names, diabetes.data.T)), np.arange(len(diabetes.target))
    return TrainingData(table, diabetes.target, "disease progression", TableEncoder().fit(table), rows)


def _models(train: TrainingData, options: Namespace) -> dict[str, Model]:
    models: dict[str, Model] = {kernel: _fitted_by(kernel, train, options) for kernel in options.kernels}
    if options.no_references:
        return models
    models["random_forest"] = lambda train, test: random_forest(train, test, options.num_partitions, options.seed)
    return models | ({"rbf_ard": rbf_ard} if len(train.y) <= MOST_ROWS_FOR_RBF else {})


def _fitted_by(kernel: str, train: TrainingData, options: Namespace) -> Model:
    only_auto = (options.budget, train.blocks) if kernel == "auto" else (None, {})
    regressor = PartitionGPRegressor(
        kernel,
        options.num_partitions,
        random_state=options.seed,
        budget=only_auto[0],
        categorical_features=train.categorical,
    )

    def judged(train: TrainingData, test: TrainingData) -> Judgement:
        regressor.fit(train.table, train.y, train.weights, **only_auto[1])
        say(left_out(regressor), options.quiet)
        return regressor.judge(test.table, test.y, test.weights)

    return judged


def _run(name: str, model: Callable[[], Judgement], label: str) -> tuple[Judgement | None, float]:
    """
    Return a model's predictions, or None with a warning if it fails, as others may have taken an hour; and seconds.

    Its warnings begin with the model's title.
    """
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
        warnings.warn(f"{TITLES[name]}: {warning.message}", warning.category, stacklevel=2)
    return found, seconds


def _scores(name: str, found: Judgement, train: TrainingData, test: TrainingData) -> Line:
    """
    Return scores with their standard errors over the test rows.

    RMSE, CRPS and interval scores are in units of the target, NLPD in nats per row, coverage is a share.
    """
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


def _print_head(train: TrainingData, test: TrainingData) -> None:
    num_train, num_test = len(train.y), len(test.y)
    new = "".join({"groups": " of other groups", "time": " of later times"}[role] for role in train.blocks)
    print(f"{train.target}: {num_train:,} training rows, {num_test:,} test rows{new}, {len(train.table)} columns\n")
    print(f"{'model':<22}{'RMSE':>10}{'':10}{'NLPD':>9}{'':9}{'CRPS':>10}{'interval':>10}", end="")
    print(f"{'90 %':>7}{'':7}{'seconds':>9}", flush=True)


def _print_line(line: Line) -> None:
    error = _written(line["rmse_error"], 4 if line["rmse_error"] >= 100 else 2)
    covered, its_error = 100 * line["coverage_90"], 100 * line["coverage_90_error"]
    print(f"{TITLES[line['model']]:<22}{_written(line['rmse'], 4):>10} +- {error:<6}", end="")
    print(f"{line['nlpd']:>9.3f} +- {line['nlpd_error']:<5.3f}", end="")
    print(f"{_written(line['crps'], 4):>10}{_written(line['interval_score_90'], 4):>10}", end="")
    print(f"{covered:>7.1f} +- {its_error:<3.1f}{line['seconds']:>9.1f}", flush=True)


def _written(number: float, digits: int) -> str:
    """Return a number without exponent where it is readable: 44,712, not 4.471e+04."""
    return f"{number:,.0f}" if 1e4 <= number < 1e8 else f"{number:.{digits}g}"


def _print_foot(train: TrainingData, test: TrainingData, names: Container[str]) -> None:
    print(
        f"\nRMSE, CRPS and the mean score of 90 % intervals are in units of the target, whose standard deviation is "
        f"{_written(train.y.std(), 4)};\nNLPD in nats a row, of the targets divided by it: less is better. 90 %: "
        "percentage of test rows within that interval.\n+-: standard error over the test rows, which are the same for "
        "all models, so that differences vary less."
    )
    if test.weights is not None:
        print("All scores are averages over test rows by their weights, which divide the variance of each row's noise.")
    if "random_forest" in names:
        print("The random forest's standard deviation is that of its out-of-bag errors (over the root of the weight).")
        if "rbf_ard" not in names:
            print(f"The RBF-ARD GP is left out above {MOST_ROWS_FOR_RBF:,} training rows.")


def _write(
    folder: Path,
    train: TrainingData,
    test: TrainingData,
    lines: list[Line],
    results: dict[str, Judgement],
    kernels: list[str],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_table(folder / _FILES[0], list(lines[0]), [list(line.values()) for line in lines])
    names = [f"{name}_{kind}" for name in results for kind in ("mean", "std", "lower_90", "upper_90")]
    columns = [column for found in results.values() for column in found[:4]]
    rows: dict[str, Any] = {"row": test.rows} | ({} if test.ids is None else {str(test.id): test.ids})
    known = {"target": test.y} | ({} if test.weights is None else {"weight": test.weights})
    save_table(folder / _FILES[1], [*rows, *known, *names], zip(*rows.values(), *known.values(), *columns))
    print(f"\nWritten to {folder}: table.csv, predictions.csv", end="")
    if not has_matplotlib():
        print(f"\nFor the plot, install matplotlib: {INSTALL}")
        return
    _plot(folder / _FILES[2], train, test, results, kernels)
    print(", plot.png")


def _plot(
    path: Path, train: TrainingData, test: TrainingData, results: dict[str, Judgement], kernels: list[str]
) -> None:
    predictions = {TITLES[name]: results[name] for name in kernels if name in results}
    references = {TITLES[name]: found for name, found in results.items() if name not in kernels}
    sizes = f"{len(train.y):,} training rows, {len(test.y):,} test rows"
    title = f"Exact Gaussian processes with random partition kernels: {sizes}"
    figure = plot_comparison(
        test.y, predictions, references, title=title, target=train.target, sample_weight=test.weights
    )
    save_figure(path, figure)
