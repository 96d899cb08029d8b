"""Tables of named columns: read from CSV and parquet files, and written without loss of digits."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np

from gpytorch_partition.command_line.csv_cells import read_cells
from gpytorch_partition.command_line.errors import cannot_write
from gpytorch_partition.command_line.parquet import MAGIC, read_parquet
from gpytorch_partition.command_line.raw_table import RawTable
from gpytorch_partition.command_line.text_files import read_bytes, read_text
from gpytorch_partition.files import replacing


def read_table(path: Path) -> RawTable:
    """
    The columns of a CSV file (:func:`~gpytorch_partition.command_line.csv_cells.read_cells`) or a parquet file.

    CSV goes through Python's csv module, with and without pandas: 100,000 rows of 10 columns take 1 second, against 0.7
    by pandas and its import, which would know neither the line of a cell nor how it was written.

    :param path: The file; what it is, how it is compressed and encoded is seen from its content, not its name.
    :return: The columns, and what is wrong with them.
    :raises CommandError: If it cannot be read, is neither, or has no rows.
    """
    content = read_bytes(path)
    return read_parquet(path, content) if content.startswith(MAGIC) else read_cells(path, read_text(path, content))


def save_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """
    Write a CSV file, which replaces another when it is whole; as :func:`write_table`.

    :param path: The file.
    :param columns: Names of the columns.
    :param rows: One cell per column each.
    :raises CommandError: If it cannot be written; then what was there stays.
    """
    with cannot_write(path), replacing(path, "w", newline="", encoding="utf-8") as file:
        write_table(cast(TextIO, file), columns, rows)


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
