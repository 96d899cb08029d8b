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
    The columns of a parquet file, of the types that it gives them; categories and booleans are texts.

    :param path: The file, for messages.
    :param content: What is in it.
    :raises CommandError: If pandas or pyarrow are not installed, the file is damaged, or it has no rows.
    """
    if find_spec("pandas") is None or find_spec("pyarrow") is None:
        raise CommandError(
            f"{path} is a parquet file, which pandas and pyarrow read: pip install "
            '"gpytorch_partition[tables]", or give a CSV file'
        )
    from pyarrow import parquet

    try:  # whole numbers beside missing cells stay whole: float64 does not tell those from 2**53 on apart
        frame = parquet.read_table(io.BytesIO(content)).to_pandas(integer_object_nulls=True)
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
    series = {str(name): frame[name] for name in frame.columns}
    columns, unreadable = dict[str, Cells](), dict[str, str]()
    for name, column in series.items():
        try:
            columns[name] = _values(column)
        except TypeError as error:
            columns[name], unreadable[name] = np.full(len(frame), None, dtype=object), str(error)
    categories = frozenset(name for name, column in series.items() if hasattr(column.dtype, "categories"))
    rows = np.arange(len(frame))
    return RawTable(
        path, columns, rows, "row", False, [], [], lambda name: _written(series[name]), categories, unreadable
    )


def _values(series: Any) -> np.ndarray:
    """Numbers (decimals and durations too), or dates; others are texts, booleans too, as in CSV files."""
    cells = read_cells(series, str(series.name))
    is_text = cells.kind not in (NUMBERS, DATES, EMPTY) or series.dtype.kind == "b" or _are_booleans(series)
    return _texts(series) if is_text else cells.values


def _are_booleans(series: Any) -> bool:
    return series.dtype == object and all(isinstance(cell, bool) for cell in series.dropna())


def _written(series: Any) -> list[str]:
    """All digits of whole numbers, times in their zone; floats that are whole, as counts with holes, as integers."""
    missing = series.isna()
    is_whole = series.dtype.kind == "f" and bool((missing | (series % 1 == 0)).all())
    return ["" if absent else f"{cell:.0f}" if is_whole else str(cell) for cell, absent in zip(series, missing)]


def _texts(series: Any) -> np.ndarray:
    texts = np.empty(len(series), dtype=object)
    texts[:] = [None if missing else str(value) for value, missing in zip(series, series.isna())]
    return texts
