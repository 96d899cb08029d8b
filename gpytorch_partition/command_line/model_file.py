"""The commands `fit`, which writes a model file, and `predict`, which predicts the rows of a file with it."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from linear_operator.utils.errors import NanError, NotPSDError

from gpytorch_partition import files
from gpytorch_partition.command_line import outputs
from gpytorch_partition.command_line.outputs import CommandError
from gpytorch_partition.command_line.table_files import Dialect, file_named_in_errors, read_frame, texts_of
from gpytorch_partition.command_line.training_data import Roles, Table, check_columns, read_training_data
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.tables import TableEncoder
from gpytorch_partition.tables.cells import TEXT

logger, _KIND = logging.getLogger(__name__), "model file"


class SavedModel(NamedTuple):
    """
    Hold a fitted regressor with the names and the reader of its columns.

    Use it for a model of the command line in Python: :func:`load_model` returns it, :meth:`read` reads rows.
    """

    regressor: PartitionGPRegressor
    reader: TableEncoder  # of its columns and the target, in their kinds and notations
    columns: list[str]  # in the regressor's order
    target: str
    id: str | None = None  # the column that names rows

    def read(self, path: str | Path) -> Table:
        """
        Return the rows of a file as the regressor takes them; the log (level INFO) reports cells taken for missing.

        :raises CommandError: If the file cannot be read, or lacks a column.
        """
        rows = read_new_rows(Path(path), self.reader, self.columns)
        for note in rows.notes:
            logger.info("%s", note)
        return rows.table


class NewRows(NamedTuple):
    table: Table  # `N` rows
    num_rows: int
    ids: list[str] | None
    notes: list[str]


def fit(options: Namespace) -> None:
    """Fit a model to the rows of a file, and write it to a model file."""
    path = Path(options.model)
    outputs.check_writable(path, options.data)
    for name in ("budget", "groups", "time"):
        if getattr(options, name) is not None and options.kernel != "auto":
            raise CommandError(f"--{name} is for --kernel auto, got {options.kernel}: give auto, or leave --{name} out")
    data = read_training_data(Path(options.data), Roles.of_options(options), Dialect.of_options(options))
    outputs.say_all(data.notes, options)
    regressor = new_regressor(options, options.kernel, data.categorical)
    from pandas import Series  # its name appears in plots and summaries

    start = time.perf_counter()
    regressor.fit(data.table, Series(data.y, name=data.target), data.weights, **data.blocks)
    seconds = time.perf_counter() - start
    outputs.say_all(left_out(regressor), options)
    save_model(path, SavedModel(regressor, data.reader, list(data.table), data.target, data.id))
    sizes = f"{len(data.y):,} rows and {data.num_columns} columns"
    outputs.show(f"Fitted {data.target} on {sizes} in {seconds:.1f} seconds.\nWritten: {path}")
    if not options.quiet:
        outputs.show(f"\n{regressor.summary()}")


def new_regressor(options: Namespace, kernel: str, categorical: Sequence[str] | None) -> PartitionGPRegressor:
    budget = options.budget if kernel == "auto" else None
    regressor = PartitionGPRegressor(kernel, options.num_partitions, random_state=options.seed, budget=budget)
    return regressor.set_params(categorical_features=categorical)


def left_out(regressor: PartitionGPRegressor) -> list[str]:
    """Return a note of the steps and parts that a model leaves out for its budget; no note if there are none."""
    told = "; ".join(regressor.left_out_)
    return [f"left out for the budget of {regressor.budget:g} seconds: {told}"] if told else []


def predict(options: Namespace) -> None:
    """Write the predictions of a model file for the rows of a file."""
    if options.output is not None:
        path = Path(options.output)
        if path.suffix.lower() in outputs.OTHER_FORMATS:
            raise CommandError(f"expected a name such as predictions.csv, got {path}: predictions are text with commas")
        outputs.check_writable(path, options.data, options.model)
    model = load_model(options.model)
    id_column, required = options.id or model.id, [options.id] * (options.id is not None)
    dialect = Dialect.of_options(options)
    rows = read_new_rows(Path(options.data), model.reader, model.columns, dialect, (), id_column, required)
    outputs.say_all(rows.notes, options)
    columns = _predictions(model, rows, options)
    if rows.ids is not None:
        columns = {str(id_column): rows.ids, **columns}
    if options.output is None:
        is_terminal, text = sys.stdout.isatty(), StringIO()
        outputs.write_table(text if is_terminal else sys.stdout, columns)
        outputs.show(text.getvalue(), end="")
    else:
        outputs.save_table(Path(options.output), columns)
        outputs.show(f"Predicted {model.target} for {rows.num_rows:,} rows.\nWritten: {options.output}")


def save_model(path: Path, model: SavedModel) -> None:
    content = {**model._asdict(), "regressor": model.regressor.to_state(), "reader": model.reader.to_state()}
    content["regressor"]["target_names"] = content["regressor"]["target_names"] or [model.target]
    with outputs.cannot_write(path):
        files.save(path, _KIND, content)


def load_model(path: str | Path) -> SavedModel:
    """
    Return the model that the command `fit` wrote, on the CPU, without running code of the file (docs/tables.md).

    :raises CommandError: If there is no such file, it is of another kind or format, or it is damaged.
    """
    try:
        content = files.load(path, _KIND)
        with files.reading_state(_KIND):
            content["regressor"] = PartitionGPRegressor.from_state(content["regressor"])
            content["reader"] = TableEncoder.from_state(content["reader"])
            return SavedModel(**content)
    except (OSError, ValueError) as error:
        told = f"cannot read {path}: {error.strerror or error}" if isinstance(error, OSError) else str(error)
        raise CommandError(told) from error


def read_new_rows(
    path: Path,
    reader: TableEncoder,
    columns: Sequence[str],
    dialect: Dialect = Dialect(),  # noqa: B008 (a tuple)
    optional: Sequence[str] = (),
    id_column: str | None = None,
    required: Sequence[str] = (),
) -> NewRows:
    """
    Return the columns of a file that a model needs, read as in the fit, and the optional ones that it has.

    :raises CommandError: If the file cannot be read, or columns are missing or of another kind.
    """
    frame, told = read_frame(path, dialect, id_column)
    with file_named_in_errors(path):
        check_columns(columns, frame, "", ": rename or add columns, whose cells may be empty")
        check_columns(required, frame, "--id: ")
        for name in columns:
            frame[name] = texts_of(frame[name]) if reader.kinds_[name] == TEXT else frame[name]
        table, notes = reader.read({name: frame[name] for name in (*columns, *optional) if name in frame})
    _warn_of_unknown(reader, table)
    ids = texts_of(frame[id_column]).fillna("").tolist() if id_column in frame else None
    return NewRows(table, len(frame), ids, [*told, *notes])


def _warn_of_unknown(reader: TableEncoder, table: Table) -> None:
    names = reader.get_feature_names_out()
    for place, levels in reader.categories_.items():
        given = {*table.get(names[place], ())} - {None}
        if given and given.isdisjoint(levels):
            known, remedy = outputs.listed(levels[:5]), "give the column that is meant, written as in the file of fit"
            told = f"column {names[place]!r} has no category that the model knows (such as {known}): {remedy}"
            warnings.warn(told, stacklevel=2)


def _predictions(model: SavedModel, rows: NewRows, options: Namespace) -> dict[str, Sequence[Any]]:
    outside = 0.5 * (1 - options.interval)
    names = ("std", *(f"{end}_{100 * options.interval:.10g}" for end in ("lower", "upper")))
    try:
        if options.mean_only:
            columns = {"mean": model.regressor.predict(rows.table)}
        else:
            mean, std, ends = model.regressor.predict(rows.table, return_std=True, quantiles=(outside, 1 - outside))
            columns = {"mean": mean, **dict(zip(names, (std, *ends.T)))}
    except (NotPSDError, NanError) as error:
        raise CommandError(f"{options.model} expected a covariance, got none ({error}): fit a new model") from error
    if not all(np.isfinite(values).all() for values in columns.values()):
        raise CommandError(f"expected finite predictions, got others from {options.model}: fit a new model")
    return columns
