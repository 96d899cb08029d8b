"""The column of groups or times, by which rows are held out: what cannot be one, and its cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpytorch_partition.command_line.columns import DATE, NUMBER, TEXT, Column, Kind, cells_of, typed_column
from gpytorch_partition.command_line.raw_table import RawTable


class BlockColumn(NamedTuple):
    """A column of the file, and what it is for."""

    role: str  # "groups" or "time", as estimators call it
    name: str
    column: Column

    def of_rows(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """
        What estimators are given of some rows.

        :param rows: Their numbers.
        """
        return {self.role: self.column.values[rows]}


def block_column(raw: RawTable, groups: str | None, time: str | None, mark: str) -> BlockColumn | None:
    """
    The column of groups, which are texts whatever they look like, or of times; None where none of the file is named.

    :param raw: The table.
    :param groups: The name of a column of groups, or None.
    :param time: That of one of times, or None.
    :param mark: The file's decimal mark, if known.
    """
    if groups in raw.columns:
        texts = typed_column(str(groups), cells_of(raw, str(groups), Kind(TEXT)), mark, Kind(TEXT))
        return BlockColumn("groups", str(groups), texts)
    if time in raw.columns:
        return BlockColumn("time", str(time), typed_column(str(time), raw.columns[str(time)], mark))
    return None


def wrong_blocks(raw: RawTable, blocks: BlockColumn | None, counts: np.ndarray) -> list[str]:
    """
    What is wrong with a column of groups or times, at rows that count.

    :param raw: The table.
    :param blocks: The column.
    :param counts: `N` booleans.
    """
    if blocks is None:
        return []
    role, name, column = blocks
    if role == "time" and column.kind.name not in (NUMBER, DATE):
        return [f"--time: column {name!r} holds {column.kind.name}, and times are numbers or dates"]
    if (missing := column.missing & counts).any():
        return [f"--{role}: column {name!r} is empty in {raw.places(missing)}: fill these cells in, or drop the rows"]
    if len(set(column.values[counts].tolist())) < 3:
        return [f"--{role}: column {name!r} has fewer than three values, too few to hold some out: leave {role} out"]
    return []
