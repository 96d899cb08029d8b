"""Rows to predict: the columns that a model was fitted to, found by name and read as they were then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpytorch_partition.command_line.columns import (
    CATEGORY,
    TEXT,
    Column,
    Kind,
    as_texts,
    default_mark,
    missing_cells,
    typed_column,
)
from gpytorch_partition.command_line.errors import listed, raise_problems
from gpytorch_partition.command_line.raw_table import RawTable
from gpytorch_partition.command_line.roles import Table, infinite_cells, missing_names
from gpytorch_partition.command_line.tables import read_table


class NewRows(NamedTuple):
    """Features of `N` rows by name, and the texts of the column that names them, if there is one."""

    table: Table
    num_rows: int
    ids: list[str] | None
    notes: list[str]


def read_new_rows(path: Path, kinds: Mapping[str, Kind], id_column: str | None, is_required: bool) -> NewRows:
    """
    The columns of a file that a model needs; others are ignored.

    Cells that are not of the kind that they were when the model was fitted, such as text among numbers, are taken for
    missing, with a note.

    :param path: The file, as for :func:`~gpytorch_partition.command_line.tables.read_table`.
    :param kinds: The model's columns.
    :param id_column: The column that names the rows, or None.
    :param is_required: Whether it must be there.
    :raises CommandError: If the file cannot be read; or with all that is wrong: missing columns, infinite numbers,
        columns of another kind, lines that do not fit the header.
    """
    raw = read_table(path)
    wanted = [*kinds, id_column] if is_required and id_column is not None else [*kinds]
    problems = []
    if missing := [name for name in wanted if name not in raw.columns]:
        problems.append(missing_names(missing, raw))
    mark = default_mark(raw)
    columns = {
        name: typed_column(name, raw.columns[name], mark, kind) for name, kind in kinds.items() if name in raw.columns
    }
    for name, column in columns.items():
        problems += infinite_cells(raw, name, column) + _other_kind(raw, name, column)
    raise_problems(path, problems + raw.problems)
    ids = as_texts(raw.columns[id_column]) if id_column in raw.columns else None
    notes = raw.notes + [note for column in columns.values() for note in column.notes]
    return NewRows({name: column.values for name, column in columns.items()}, len(raw.lines), ids, notes)


def unseen_levels(table: Table, levels: Mapping[str, list[str]]) -> list[str]:
    """
    Notes about categories that the training rows did not have.

    :param table: The rows.
    :param levels: The categories of columns of text that were seen.
    """
    notes = []
    for name, seen in levels.items():
        known = {None, *seen}
        new = [value for value in table[name] if value not in known]
        if new:
            notes.append(
                f"column {name!r}: the training rows did not have {listed(sorted(set(new))[:5])}: taken for missing "
                f"cells ({len(new):,} in all)"
            )
    return notes


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
