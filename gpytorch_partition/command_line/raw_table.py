"""A table as a file holds it, before anything is known of its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

Cells = list[str] | np.ndarray  # of a column: texts (CSV), or values of a type that the file knows (parquet)


class RawTable(NamedTuple):
    """Columns by name, where their rows are in the file, and what was noted and found wrong on the way."""

    path: Path
    columns: dict[str, Cells]
    lines: np.ndarray  # N: where each row begins
    unit: str  # in which these are counted: "line" (from 1, the header) or "row" (from 0)
    has_semicolons: bool  # between cells: where Excel's language has decimal commas
    notes: list[str]
    problems: list[str]
    written: Callable[[str], list[str]] | None = None  # a column's cells digit for digit, where columns hold values
    categories: frozenset[str] = frozenset()  # columns that the file declares as such, whatever their texts look like
    unreadable: Mapping[str, str] = MappingProxyType({})  # what is wrong with columns of lists and the like, by name

    def texts(self, name: str) -> list[str]:
        """
        A column's cells as the file has them, to the last digit; missing ones are empty.

        :param name: The column's name.
        """
        if self.written is not None:
            return self.written(name)
        cells = self.columns[name]
        assert isinstance(cells, list)
        return cells

    def places(self, rows: np.ndarray) -> str:
        """
        Where some rows are, in words.

        :param rows: Numbers of rows, or `N` booleans.
        """
        lines = self.lines[rows].tolist()
        shown = ", ".join(f"{line:,}" for line in lines[:20]) + (f" and {len(lines) - 20:,} more" * (len(lines) > 20))
        return f"{self.unit}{'s' * (len(lines) > 1)} {shown}"
