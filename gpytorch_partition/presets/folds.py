"""Folds and the rows that choose: single rows at random, whole groups, or blocks of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.inputs.row_choice import Split, row_folds
from gpytorch_partition.tables.cells import is_missing
from gpytorch_partition.tables.number_view import MOST_ONE_HOT

_FEWEST_GROUPS = 5  # groups from which the choosing rows are whole groups
_FEWEST_KEPT = 5  # rows of other groups than the largest, or before the latest time
_FEWEST_OF_BLOCK = 8  # rows of each block of time, on average
_ENDS = (0.2, 0.4, 0.6, 0.8)  # of stretches of time, in shares of the rows


@dataclass(frozen=True, eq=False)
class Blocks:
    """
    Groups or times of rows, which folds keep together (Roberts et al. 2017 on cross-validation by blocks).

    Use it where new rows are of new groups, or of later times: held-out rows are then as new.

    :param labels: `N` whole numbers from 0 (int64): the row's group, or the rank of its time.
    :param are_times: Whether labels are times, so that rows are predicted from earlier ones only.

    Example:
        >>> Blocks.of(["b", "a", "b"], None, 3).labels
        tensor([0, 1, 0])
    """

    labels: Tensor
    are_times: bool

    @classmethod
    def of(cls, groups: Any, time: Any, num_rows: int) -> Blocks | None:
        """
        Return the blocks of groups or times as estimators receive them; None where neither is given.

        :param groups: `N` labels, such as texts or numbers, or None.
        :param time: `N` numbers or dates, or None.
        :param num_rows: N.
        :raises ValueError: If both are given, there is not one for each row, one is missing, or times are neither
            numbers nor dates.
        """
        if groups is None and time is None:
            return None
        if groups is not None and time is not None:
            raise ValueError("expected at most one of groups and time, got both: give the one in which new rows differ")
        name, values = ("groups", groups) if time is None else ("time", time)
        cells = _cells(values, name, num_rows)
        return cls(torch.from_numpy(_numbers(cells) if time is None else _ranks(cells)), time is not None)

    def of_rows(self, rows: Tensor | np.ndarray | slice) -> Blocks:
        """
        Return the blocks of some rows.

        :param rows: Numbers of the rows.
        """
        return Blocks(self.labels[rows], self.are_times)

    @property
    def groups(self) -> Tensor:
        """Return the groups of the rows (`N`); of times, five stretches with a fifth of the rows each."""
        if not self.are_times:
            return self.labels
        times = self.labels.numpy()
        return torch.from_numpy(np.digitize(times, np.quantile(times, _ENDS)))

    @property
    def are_enough(self) -> bool:
        """Return whether five rows or more are left where the largest group, or the latest time, is held out."""
        sizes = self.labels.unique(return_counts=True)[1]
        return len(self.labels) - int(sizes[-1] if self.are_times else sizes.max()) >= _FEWEST_KEPT

    def check(self) -> None:
        """
        Raise an error for rows that are nearly all of one group or time.

        :raises ValueError: If fewer than five rows are outside the largest group, or before the latest time.
        """
        if not self.are_enough:
            name, others = ("time", "before the latest") if self.are_times else ("groups", "outside the largest")
            raise ValueError(
                f"expected two {name.rstrip('s')}s or more, with {_FEWEST_KEPT} rows or more {others}, got "
                f"{len(self.labels.unique())} ({name}=) of {len(self.labels)} rows: leave out {name}=, and single rows "
                "are held out"
            )


def _cells(values: Any, name: str, num_rows: int) -> np.ndarray:
    cells = np.empty(0) if isinstance(values, str) else np.asarray(values)
    if cells.shape != (num_rows,):
        got = "a text" if isinstance(values, str) else f"shape {cells.shape}"
        raise ValueError(f"expected {name} of one value for each of {num_rows} rows, got {got}: give a column")
    listed = cells if cells.dtype.kind == "M" else cells.tolist()
    if missing := [row for row, cell in enumerate(listed) if is_missing(cell)]:
        raise ValueError(
            f"expected {name} of every row, got none for row {missing[0]} ({len(missing)} such): leave these rows out, "
            f"or give {'each a group of its own' if name == 'groups' else 'their times'}"
        )
    return cells


def _numbers(groups: np.ndarray) -> np.ndarray:
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups.tolist()], dtype=np.int64)


def _ranks(times: np.ndarray) -> np.ndarray:
    try:
        if times.dtype.kind in "USb" or any(isinstance(cell, str) for cell in times.tolist()):
            raise TypeError(f"cells such as {times[0]!r}")
        return np.unique(times, return_inverse=True)[1].astype(np.int64)
    except TypeError as error:
        raise ValueError(
            f"expected time as numbers or dates, got what has no order in time: {error}; give numpy.datetime64 or "
            "pandas.to_datetime(...)"
        ) from error


def folds(num_rows: int, num_folds: int, random: np.random.RandomState, blocks: Blocks | None = None) -> list[Split]:
    """
    Return the rows kept and the rows held out of each fold.

    Without blocks each row is held out once, at random. Groups are held out once too, with folds of sizes as equal as
    possible. With times, the rows of all blocks but the first are predicted from earlier ones; the latest block comes
    first. There are fewer folds if there are fewer groups, times, or rows.

    :param num_rows: Number of rows.
    :param num_folds: Folds at most.
    :param random: Source of the draws.
    :param blocks: Blocks of the rows. (Default: None, single rows.)

    Example:
        >>> folds(8, 2, np.random.RandomState(0), Blocks.of(None, [1, 2, 2, 2, 3, 4, 5, 6], 8))
        [(array([0, 1, 2, 3, 4]), array([5, 6, 7]))]
    """
    if blocks is None:
        return row_folds(num_rows, num_folds, random)
    blocks.check()
    labels = blocks.labels.numpy()
    return _blocks_of_time(labels, num_folds) if blocks.are_times else row_folds(num_rows, num_folds, random, labels)


def _blocks_of_time(times: np.ndarray, num_folds: int) -> list[Split]:
    """Folds like those of scikit-learn's TimeSeriesSplit, with rows of one time kept together."""
    number = min(num_folds, max(1, len(times) // _FEWEST_OF_BLOCK - 1))
    starts = np.quantile(times, np.arange(1, number + 1) / (number + 1), method="higher")
    distinct = np.unique(times)
    first = distinct[np.searchsorted(np.sort(times), distinct) >= _FEWEST_KEPT][0]
    starts = np.unique(np.maximum(starts, first))
    ends = [*starts[1:], np.inf]
    pairs = [(np.flatnonzero(times < a), np.flatnonzero((a <= times) & (times < b))) for a, b in zip(starts, ends)]
    return pairs[::-1]


def as_new_rows(x: Tensor, categories: Mapping[int, int], blocks: Blocks | None = None) -> Tensor:
    """
    Return training rows as new rows of a model of the others, in which levels that at most one other row has are
    missing cells.

    In columns of more than ten levels, :class:`~gpytorch_partition.tables.TableEncoder` learns no level of a single
    row. New rows have such levels as often as training rows have levels that at most one other row has. Without this,
    stated log densities are too good where levels are rare. With groups, only rows of other groups count. Costs one
    count for each column.

    :param x: `N x D` rows of a table matrix.
    :param categories: Numbers of levels of columns of codes, by column number.
    :param blocks: Groups of the rows, or times, whose stretches are groups. (Default: None, single rows.)

    Example:
        >>> as_new_rows(torch.tensor([[0.0], [0.0], [0.0], [1.0], [1.0]]), {0: 12})[:, 0]
        tensor([0., 0., 0., nan, nan])
    """
    found = x.clone()
    for column, num_levels in categories.items():
        if num_levels > MOST_ONE_HOT:
            codes = x[:, column].nan_to_num(num_levels).long()  # missing cells are one level more
            others = torch.bincount(codes)[codes] - _in_own_block(codes, blocks)
            found[others <= 1, column] = torch.nan
    return found


def _in_own_block(codes: Tensor, blocks: Blocks | None) -> Tensor | int:
    """Number of rows of a row's block, itself included, that have its level (`N`)."""
    if blocks is None:
        return 1
    pairs, counts = torch.stack([codes, blocks.groups]).unique(dim=1, return_inverse=True, return_counts=True)[1:]
    return counts[pairs]


def random_rows(
    num_rows: int, most_rows: int, random: np.random.RandomState, blocks: Blocks | None = None
) -> np.ndarray:
    """
    Return the numbers of some rows, in random order: whole groups if these are five or more, else single rows.

    :param num_rows: Number of rows.
    :param most_rows: Number of rows wanted; whole groups may have fewer.
    :param random: Source of the draws.
    :param blocks: Blocks of the rows. (Default: None, single rows.)

    Example:
        >>> random_rows(6, 2, np.random.RandomState(0))
        array([5, 2])
    """
    order = random.permutation(num_rows)
    if blocks is None or blocks.are_times or most_rows >= num_rows:
        return order[:most_rows]
    _, numbers, sizes = np.unique(blocks.labels.numpy()[order], return_inverse=True, return_counts=True)
    shuffled = random.permutation(len(sizes))
    whole = shuffled[sizes[shuffled].cumsum() <= most_rows]
    return order[np.isin(numbers, whole)] if len(whole) >= _FEWEST_GROUPS else order[:most_rows]
