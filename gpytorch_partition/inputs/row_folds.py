"""Folds of single rows at random, or of whole groups."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, KFold

Split: TypeAlias = tuple[np.ndarray, np.ndarray]  # numbers of the rows kept and held out


def row_folds(
    num_rows: int, num_folds: int, random: np.random.RandomState, groups: NDArray[np.int64] | None = None
) -> list[Split]:
    """
    Return the rows kept and the rows held out of each fold; each row is held out once.

    :param num_rows: Number of rows.
    :param num_folds: Number of folds; fewer if there are fewer groups.
    :param random: Source of the draws.
    :param groups: `N` numbers of groups, which are held out whole, in folds of sizes as equal as possible; a single
        group is split. (Default: None, single rows are held out.)

    Example:
        >>> [held_out.tolist() for _, held_out in row_folds(4, 2, np.random.RandomState(0), np.array([7, 5, 5, 7]))]
        [[1, 2], [0, 3]]
    """
    names, numbers = (np.empty(0), np.empty(0)) if groups is None else np.unique(groups, return_inverse=True)
    if len(names) < 2:
        return list(KFold(num_folds, shuffle=True, random_state=random).split(np.empty(num_rows)))
    shuffled = random.permutation(len(names))[numbers]  # GroupKFold's own shuffle makes folds of unequal sizes
    return list(GroupKFold(min(num_folds, len(names))).split(shuffled, groups=shuffled))
