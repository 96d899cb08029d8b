"""Choices of rows: folds that are held out, and copies of other rows that are left out."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, KFold

Split: TypeAlias = tuple[np.ndarray, np.ndarray]  # numbers of the rows kept and held out
_FEWEST = 0.01  # share of copies among the rows, from which they matter
_AGREEING = 0.9  # share of the rows with the cells of an earlier one that have its target, too
_DISTINCT = 0.1  # share of the rows, or of the targets, that are distinct: others are tables of few levels


def row_folds(
    num_rows: int, num_folds: int, random: np.random.RandomState, groups: NDArray[np.int64] | None = None
) -> list[Split]:
    """
    Return the rows kept and the rows held out of each fold; each row is held out once.

    :param num_folds: Number of folds; fewer if there are fewer groups.
    :param groups: `N` numbers of groups, which are held out whole, in folds of sizes as equal as possible; a single
        group is split. (Default: None, single rows are held out.)
    """
    names, numbers = (np.empty(0), np.empty(0)) if groups is None else np.unique(groups, return_inverse=True)
    if len(names) < 2:
        return list(KFold(num_folds, shuffle=True, random_state=random).split(np.empty(num_rows)))
    shuffled = random.permutation(len(names))[numbers]  # GroupKFold's own shuffle makes folds of unequal sizes
    return list(GroupKFold(min(num_folds, len(names))).split(shuffled, groups=shuffled))


def rows_without_copies(x: np.ndarray, y: np.ndarray, *, are_classes: bool = False) -> NDArray[np.int64] | None:
    """
    Return the numbers of the rows that are no copies of earlier rows; None if all stay, or copies do not matter.

    A copy has the cells (`N x D`, NaN equal to NaN) and the target (`N`, or `N x T`) of another row. A row that is
    predicted from its copy seems to have no noise. Copies matter from a hundredth of the rows on, where nine tenths of
    the rows with equal cells (of classes all) have equal targets; else they are repeated measurements, which determine
    the noise. In tables of few distinct rows or targets, equal rows are to be expected, and all count.
    """
    like_x = _first_like(x)
    like_all = _first_like(np.column_stack([like_x, y]))
    numbers = np.arange(len(x))
    repeats, copies = int((like_x != numbers).sum()), int((like_all != numbers).sum())
    distinct, agreeing = len(x) - repeats, 1.0 if are_classes else _AGREEING
    if not are_classes:
        distinct = min(distinct, len(np.unique(y, axis=0) if y.ndim > 1 else np.unique(y)))
    if copies < _FEWEST * len(x) or copies < agreeing * repeats or distinct < _DISTINCT * len(x):
        return None
    return np.flatnonzero(like_all == numbers)


def told_of_copies(num_copies: int, num_rows: int) -> str:
    told = f"{num_copies:,} of {num_rows:,} rows are copies of others, target included, and are left out"
    remedy = "if they are measurements of their own that agree, drop them and give the others their number as weights"
    return f"{told}: {remedy}"


def _first_like(cells: np.ndarray) -> NDArray[np.int64]:
    """Return the number of the first row with the same cells, for each row (`N`)."""
    numbers = np.where(np.isnan(cells), np.nan, cells + 0.0)  # one NaN, one zero
    bits = np.ascontiguousarray(numbers, dtype=np.float64).view((np.void, 8 * cells.shape[1]))[:, 0]
    _, first, which = np.unique(bits, return_index=True, return_inverse=True)
    return first[which]
