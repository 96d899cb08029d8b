"""Readers of rows to predict: columns are found by name and read as in the fit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gpytorch_partition.command_line.errors import CommandError, listed, raise_problems
from gpytorch_partition.command_line.table_files import Dialect, read_frame, texts_of
from gpytorch_partition.command_line.training_data import Table, missing_names
from gpytorch_partition.tables import TableEncoder
from gpytorch_partition.tables.cells import TEXT


class NewRows(NamedTuple):
    """Columns of `N` rows by name, the rows' ids, and notes of cells taken for missing."""

    table: Table
    num_rows: int
    ids: list[str] | None
    notes: list[str]


def read_new_rows(
    path: Path,
    reader: TableEncoder,
    columns: Sequence[str],
    dialect: Dialect = Dialect(),  # noqa: B008 (a tuple)
    optional: Sequence[str] = (),
    id_column: str | None = None,
    is_id_required: bool = False,
) -> NewRows:
    """
    Return the columns of a file that a model needs; others are ignored.

    :param path: The file, as for :func:`~gpytorch_partition.command_line.table_files.read_frame`.
    :param reader: Reader of the columns, from the fit.
    :param columns: The model's columns.
    :param dialect: Notation of the file; numbers are in the notation of the fit.
    :param optional: Columns that are read as well, where the file has them.
    :param id_column: The column that names the rows.
    :param is_id_required: Whether the file must have the id column.
    :raises CommandError: If the file cannot be read; or with all problems: missing columns, columns of another kind.
    """
    frame = read_frame(path, dialect, id_column)
    problems = []
    if missing := [name for name in columns if name not in frame]:
        told = missing_names(missing, frame, ", which the model was fitted to")
        problems.append(f"{told}: rename or add columns; their cells may be empty where nothing is known")
    if is_id_required and id_column not in frame:
        problems.append(f"--id: {missing_names([str(id_column)], frame)}")
    raise_problems(path, problems)
    for name in columns:
        frame[name] = texts_of(frame[name]) if reader.kinds_[name] == TEXT else frame[name]
    try:
        table, notes = reader.read({name: frame[name] for name in (*columns, *optional) if name in frame})
    except (TypeError, ValueError) as error:
        raise CommandError(f"{path}: {error}") from error
    _warn_of_unknown(reader, table)
    ids = texts_of(frame[id_column]).fillna("").tolist() if id_column in frame else None
    return NewRows(table, len(frame), ids, notes)


def _warn_of_unknown(reader: TableEncoder, table: Table) -> None:
    """Warn of columns without any known category: they may be other ones, or written differently."""
    names = reader.get_feature_names_out()
    for place, levels in reader.categories_.items():
        given = {*table.get(names[place], ())} - {None}
        if given and given.isdisjoint(levels):
            warnings.warn(
                f"column {names[place]!r} has no category that the model knows (such as {listed(levels[:5])}): give "
                "the column that is meant, written as in the file that the model was fitted to",
                stacklevel=2,
            )
