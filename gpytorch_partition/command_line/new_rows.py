"""Rows to predict: the columns that a model was fitted to, found by name and read as they were then."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpytorch_partition.command_line.columns import (
    CATEGORY,
    TEXT,
    Column,
    Kind,
    cells_of,
    default_mark,
    missing_cells,
    sure_mark,
    typed_column,
)
from gpytorch_partition.command_line.errors import listed, raise_problems
from gpytorch_partition.command_line.raw_table import RawTable
from gpytorch_partition.command_line.roles import Table, infinite_cells, missing_names
from gpytorch_partition.command_line.spellings import spelled_otherwise
from gpytorch_partition.command_line.tables import read_table


class NewRows(NamedTuple):
    """Features of `N` rows by name, and the texts of the column that names them, if there is one."""

    table: Table
    num_rows: int
    ids: list[str] | None
    notes: list[str]


def read_new_rows(
    path: Path,
    kinds: Mapping[str, Kind],
    id_column: str | None,
    is_required: bool,
    optional: Mapping[str, Kind] | None = None,
) -> NewRows:
    """
    The columns of a file that a model needs; others are ignored.

    Cells that are not of the kind that they were when the model was fitted, such as text among numbers, are taken for
    missing, with a note.

    :param path: The file, as for :func:`~gpytorch_partition.command_line.tables.read_table`.
    :param kinds: The model's columns.
    :param id_column: The column that names the rows, or None.
    :param is_required: Whether it must be there.
    :param optional: Columns that are read as well, where the file has them. (Default: none.)
    :raises CommandError: If the file cannot be read; or with all that is wrong: missing columns, infinite numbers,
        columns of another kind, lines that do not fit the header.
    """
    raw = read_table(path)
    problems = _missing(raw, kinds, id_column if is_required else None)
    mark, guess = sure_mark(raw), default_mark(raw)
    columns = {
        name: typed_column(name, cells_of(raw, name, kind), mark, kind, guess)
        for name, kind in {**kinds, **(optional or {})}.items()
        if name in raw.columns
    }
    problems += [told for name, told in raw.unreadable.items() if name in columns]
    for name, column in columns.items():
        problems += infinite_cells(raw, name, column) + _other_kind(raw, name, column)
    raise_problems(path, problems + raw.problems)
    ids = raw.texts(id_column) if id_column in raw.columns else None
    notes = raw.notes + [note for column in columns.values() for note in column.notes]
    return NewRows({name: column.values for name, column in columns.items()}, len(raw.lines), ids, notes)


def unseen_levels(table: Table, levels: Mapping[str, list[str]]) -> list[str]:
    """
    Notes about categories that the training rows did not have; a `UserWarning` where a column has no others.

    :param table: The rows.
    :param levels: The categories of columns of text that were seen.
    """
    notes = []
    for name, seen in levels.items():
        known = {None, *seen}
        new = [value for value in table[name] if value not in known]
        given = sum(value is not None for value in table[name])
        told = f"the training rows did not have {listed(sorted(set(new))[:5])}: taken for missing cells"
        told += spelled_otherwise(set(new), seen)
        if new and len(new) == given:
            warnings.warn(
                f"column {name!r} has no category that the model knows (such as {listed(seen[:5])}): {told} (all "
                f"{given:,}). Give the column that is meant, written as in the file that the model was fitted to",
                UserWarning,
                stacklevel=2,
            )
        elif new:
            notes.append(f"column {name!r}: {told} ({len(new):,} in all)")
    return notes


def _missing(raw: RawTable, kinds: Mapping[str, Kind], id_column: str | None) -> list[str]:
    problems = []
    if missing := [name for name in kinds if name not in raw.columns]:
        told = missing_names(missing, raw, ", which the model was fitted to")
        problems.append(f"{told}: rename or add columns; their cells may be empty where nothing is known")
    if id_column is not None and id_column not in raw.columns:
        problems.append(f"--id: {missing_names([id_column], raw)}")
    return problems


def _other_kind(raw: RawTable, name: str, column: Column) -> list[str]:
    """A column of numbers or dates none of whose cells is one."""
    if column.kind.name in (TEXT, CATEGORY) or not column.missing.all():
        return []
    texts = typed_column(name, raw.columns[name], "", Kind(TEXT)).values
    given = texts[~missing_cells(texts)]
    if not len(given):
        return []
    what = f"column {name!r} held {column.kind.name}s when the model was fitted, and here holds {given[0][:40]!r}"
    return [f"{what}: give the column that is meant, or leave its cells empty"]


def matrix_of(table: Table, num_rows: int) -> np.ndarray:
    """
    Columns of numbers side by side.

    :param table: The columns.
    :param num_rows: Number of rows.
    """
    return np.column_stack(list(table.values())) if table else np.empty((num_rows, 0))
