"""Columns of text that name rows, with a different text in every row, which say nothing about other rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

_FEWEST_IDS = 20  # rows from which texts that all differ are ids
_MOST_COPIES = 0.1  # share of the rows that may be copies, whose ids are the same


def are_ids(texts: np.ndarray, columns: Iterable[np.ndarray]) -> bool:
    """
    Return whether a column has a different text in every row, except in copies of rows.

    A tenth of the rows may be copies, which have the cells of an earlier row in all columns. Tables that were joined
    have copies, and an id in such a table would else be a category of nearly as many levels as rows. Costs a look-up
    for each row, and a comparison of the rows with repeated texts.

    :param texts: The cells (`N` objects); None is missing, and makes the column no id.
    :param columns: Cells of all columns (`N` each; None, NaN and NaT are missing).

    Example:
        >>> names, sizes = np.array([f"item {number}" for number in range(40)], dtype=object), np.arange(40.0)
        >>> names[39], sizes[39] = names[0], sizes[0]
        >>> are_ids(names, [names, sizes]), are_ids(names, [names, np.arange(40.0)])
        (True, False)
    """
    first: dict[str | None, int] = {}
    firsts = np.array([first.setdefault(text, number) for number, text in enumerate(texts.tolist())])
    again = np.flatnonzero(firsts != np.arange(len(texts)))
    if None in first or len(first) < _FEWEST_IDS or len(again) > _MOST_COPIES * len(texts):
        return False
    return all(_are_equal(cells[again], cells[firsts[again]]) for cells in columns)


def _are_equal(cells: np.ndarray, others: np.ndarray) -> bool:
    return bool(((cells == others) | ((cells != cells) & (others != others))).all())
