"""Parquet files, which pandas and pyarrow read (extra `tables`)."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.raw_table import Cells, RawTable
from gpytorch_partition.tables.cells import DATES, EMPTY, NUMBERS, read_cells

MAGIC = b"PAR1"


def read_parquet(path: Path, content: bytes) -> RawTable:
    """
    The columns of a parquet file, of the types that it gives them; categories and others are texts.

    :param path: The file, for messages.
    :param content: What is in it.
    :raises CommandError: If pandas or pyarrow are not installed, the file is damaged, or it has no rows.
    """
    if find_spec("pandas") is None or find_spec("pyarrow") is None:
        raise CommandError(
            f"{path} is a parquet file, which pandas and pyarrow read: pip install "
            '"gpytorch_partition[tables]", or give a CSV file'
        )
    import pandas

    try:
        frame = pandas.read_parquet(io.BytesIO(content))
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} is damaged: {error}") from error
    return table_of_frame(path, frame)


def table_of_frame(path: Path, frame: Any) -> RawTable:
    """
    A DataFrame as a table; an index with names becomes columns, as it was before pandas made it one.

    :param path: Where it is from, for messages.
    :param frame: The DataFrame.
    :raises CommandError: If it has no rows.
    """
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    if not len(frame):
        raise CommandError(f"{path} has columns but no rows")
    columns: dict[str, Cells] = {str(name): _values(frame[name]) for name in frame.columns}
    return RawTable(path, columns, np.arange(len(frame)), "row", False, [], [])


def _values(series: Any) -> np.ndarray:
    """Numbers (decimals and durations too), dates or texts; lists and the like are texts as well."""
    try:
        cells = read_cells(series, str(series.name))
    except TypeError:
        return _texts(series)
    return cells.values if cells.kind in (NUMBERS, DATES, EMPTY) else _texts(series)


def _texts(series: Any) -> np.ndarray:
    texts = np.empty(len(series), dtype=object)
    texts[:] = [None if missing else str(value) for value, missing in zip(series, series.isna())]
    return texts
