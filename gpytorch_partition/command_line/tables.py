"""CSV files of numbers in named columns: read with an error for anything else, and written without loss of digits."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.estimators.machine import check_magnitudes

_FEWEST_TRAINING_ROWS = 20
_ROWS_PER_BLOCK = 10_000
_MAX_NAMES_LISTED = 20

Line = tuple[int, list[str]]  # its number in the file, and its cells


class TrainingData(NamedTuple):
    """Rows to learn from."""

    X: np.ndarray  # N x D
    y: np.ndarray  # N
    columns: list[str]  # D names
    target: str


def read_training_data(path: Path, target: str) -> TrainingData:
    """
    A table with its target apart; all other columns are features.

    :param path: The file, as for :func:`read_table`.
    :param target: Name of the target's column.
    :raises CommandError: If the file cannot be read, has no such column or no other, fewer than 20 rows, or a constant
        target.
    """
    columns, values = read_table(path)
    if target not in columns:
        raise CommandError(_missing_message(path, [target], columns))
    if len(columns) == 1:
        raise CommandError(f"{path} has no column but the target {target!r}")
    if len(values) < _FEWEST_TRAINING_ROWS:
        raise CommandError(f"{path} has {len(values)} rows, but learning takes at least {_FEWEST_TRAINING_ROWS}")
    place = columns.index(target)
    y = values[:, place]
    if np.ptp(y) == 0:
        raise CommandError(f"the target {target!r} in {path} is always {y[0]:g}: there is nothing to learn")
    try:
        check_magnitudes(values, "columns")
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None
    return TrainingData(np.delete(values, place, axis=1), y, columns[:place] + columns[place + 1 :], target)


def read_table(path: Path, columns: Sequence[str] | None = None) -> tuple[list[str], np.ndarray]:
    """
    The columns of a CSV file whose first line names them.

    :param path: The file: UTF-8, comma-separated.
    :param columns: Names of the columns wanted, in this order; others are ignored. (Default: all.)
    :return: Names, and finite float64 values (`N x columns`).
    :raises CommandError: If there is no such file, column or row, it is not UTF-8, its first line does not name each
        column once, a line has more or fewer cells, or a cell that is wanted is not a finite number.
    """
    with _opened(path) as file:
        reader = csv.reader(file)
        header = _checked_header(path, next(reader, []))
        missing = [name for name in columns or () if name not in header]
        if missing:
            raise CommandError(_missing_message(path, missing, header))
        names = list(columns or header)
        places = [header.index(name) for name in names]
        lines = ((reader.line_num, row) for row in reader if row)
        blocks = [_numbers(path, block, header, places) for block in _blocks(lines)]
    if not blocks:
        raise CommandError(f"{path} has a header but no rows")
    return names, np.concatenate(blocks)


def write_table(file: TextIO, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """
    Write a header and rows; floats with enough digits to be read back exactly.

    :param file: Where to write.
    :param columns: Names of the columns.
    :param rows: One cell per column each.

    Example:
        >>> import sys
        >>> write_table(sys.stdout, ["row", "value"], [(1, np.float64(0.1))])
        row,value
        1,0.1
    """
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell.item() if isinstance(cell, np.generic) else cell for cell in row] for row in rows)


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The file as text, with errors that say which file cannot be read."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            yield file
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise CommandError(f"{path} is not a CSV file in UTF-8: {error}") from error


def _checked_header(path: Path, cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    if not any(header):
        raise CommandError(f"{path} is empty: expected a first line with the names of the columns")
    if all(_is_number(name) for name in header):
        raise CommandError(f"{path} begins with numbers: expected a first line with the names of the columns")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise CommandError(f"{path} has more than one column named {_listed(twice)}")
    return header


def _blocks(lines: Iterator[Line]) -> Iterator[list[Line]]:
    while block := list(islice(lines, _ROWS_PER_BLOCK)):
        yield block


def _numbers(path: Path, lines: list[Line], header: list[str], places: list[int]) -> np.ndarray:
    """The wanted cells of some lines as numbers."""
    for number, row in lines:
        if len(row) != len(header):
            raise CommandError(f"{path}, line {number}: expected {len(header)} cells as in the header, got {len(row)}")
    try:
        values = np.array([[row[place] for place in places] for _, row in lines], dtype=np.float64)
    except ValueError:
        values = None
    if values is None or not np.isfinite(values).all():
        raise CommandError(next(_cell_messages(path, lines, header, places)))
    return values


def _cell_messages(path: Path, lines: list[Line], header: list[str], places: list[int]) -> Iterator[str]:
    """Messages about the cells that are not finite numbers."""
    for number, row in lines:
        for place in places:
            cell = row[place].strip()
            where = f"{path}, line {number}, column {header[place]!r}"
            if not cell:
                yield f"{where}: the cell is empty; fill it in or drop the row"
            elif not _is_number(cell):
                yield f"{where}: expected a number, got {cell[:40]!r}; encode text as numbers or drop the column"
            elif not np.isfinite(float(cell)):
                yield f"{where}: expected a finite number, got {cell!r}; drop or impute the row"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _missing_message(path: Path, missing: list[str], header: list[str]) -> str:
    kind = "column" if len(missing) == 1 else "columns"
    return f"{path} has no {kind} {_listed(missing)}; its columns are {_listed(header)}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MAX_NAMES_LISTED
    return ", ".join(map(repr, names[:_MAX_NAMES_LISTED])) + (f" and {more} more" if more > 0 else "")
