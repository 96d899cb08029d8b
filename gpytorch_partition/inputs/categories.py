"""Checks of columns of codes of categories."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from torch import Tensor


def checked_categories(categories: Any, x: Tensor) -> dict[int, int]:
    """
    The number C of levels of each column of codes, by the column's number; none for None.

    :param categories: Value given by a caller.
    :param x: `N x D` rows, NaN where a cell is missing.
    :raises ValueError: If it is no mapping of columns to numbers of levels, or a column has other cells than codes 0
        ... C - 1 and NaN.

    Example:
        >>> import torch
        >>> checked_categories({1: 3}, torch.tensor([[0.5, 2.0], [0.1, torch.nan]]))
        {1: 3}
    """
    if categories is None:
        return {}
    if not isinstance(categories, Mapping):
        raise ValueError(f"expected categories as a mapping of columns to their numbers of levels, got {categories!r}")
    for column, count in categories.items():
        _check_column(column, count, x)
    return {int(column): int(count) for column, count in categories.items()}


def _check_column(column: Any, count: Any, x: Tensor) -> None:
    if not _is_whole(column, 0) or column >= x.shape[1]:
        raise ValueError(f"expected columns of categories by numbers from 0 to {x.shape[1] - 1}, got {column!r}")
    if not _is_whole(count, 1):
        raise ValueError(f"expected the number of levels of column {column}, 1 or more, got {count!r}")
    cells = x[:, column]
    wrong = cells[~cells.isnan() & ((cells != cells.round()) | (cells < 0) | (cells >= count))]
    if len(wrong):
        raise ValueError(
            f"expected codes from 0 to {count - 1}, or NaN, in column {column} of categories, got {float(wrong[0]):g}: "
            "TableEncoder makes codes of text and categories"
        )


def _is_whole(number: Any, least: int) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool) and int(number) >= least
