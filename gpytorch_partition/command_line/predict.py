"""The command `predict`, which writes predictions of a saved model for the rows of a file."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from linear_operator.utils.errors import NanError, NotPSDError

from gpytorch_partition.command_line.errors import CommandError, say
from gpytorch_partition.command_line.model_file import SavedModel, load_model
from gpytorch_partition.command_line.new_rows import NewRows, read_new_rows
from gpytorch_partition.command_line.outputs import check_writable, save_table, write_table
from gpytorch_partition.command_line.table_files import Dialect


def predict(options: Namespace) -> None:
    """
    Write predictions of a model file, as in `python -m gpytorch_partition predict --help`.

    :param options: The command line, parsed by :func:`~gpytorch_partition.command_line.parser.new_parser`.
    :raises CommandError: If the model or the rows cannot be used, or the output cannot be written.
    """
    if options.output is not None:
        check_writable(Path(options.output), options.data, options.model)
    model = load_model(Path(options.model))
    id_column, is_required = options.id or model.id, options.id is not None
    dialect = Dialect.of_options(options)
    rows = read_new_rows(Path(options.data), model.reader, model.columns, dialect, (), id_column, is_required)
    say(rows.notes, options.quiet)
    columns = _predictions(model, rows, options)
    if rows.ids is not None:
        columns = {str(id_column): rows.ids, **columns}
    if options.output is None:
        write_table(sys.stdout, list(columns), zip(*columns.values()))
        return
    save_table(Path(options.output), list(columns), zip(*columns.values()))
    print(f"Predicted {model.target} for {rows.num_rows:,} rows.\nWritten: {options.output}")


def _predictions(model: SavedModel, rows: NewRows, options: Namespace) -> dict[str, Sequence[Any]]:
    try:
        columns = _columns(model, rows, options)
    except (NotPSDError, NanError) as error:
        raise CommandError(f"{options.model} cannot predict, its numbers are no covariance: {error}") from error
    if not all(np.isfinite(values).all() for values in columns.values()):
        raise CommandError(f"{options.model} gives predictions that are not finite: fit a new model")
    return columns


def _columns(model: SavedModel, rows: NewRows, options: Namespace) -> dict[str, Sequence[Any]]:
    if options.mean_only:
        return {"mean": model.regressor.predict(rows.table)}
    outside = 0.5 * (1 - options.interval)
    mean, std, ends = model.regressor.predict(rows.table, return_std=True, quantiles=(outside, 1 - outside))
    lower, upper = ends.T
    percent = f"{100 * options.interval:.10g}"
    return {"mean": mean, "std": std, f"lower_{percent}": lower, f"upper_{percent}": upper}
