"""Training data, which all steps share, the rows that folds hold out and that choose, and the inputs of parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.inputs.row_choice import Split, row_folds
from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.inputs.standardization import FAR, Standardization
from gpytorch_partition.inputs.text_targets import composed
from gpytorch_partition.presets.options import Setup
from gpytorch_partition.tables import NumberView, view_in_folds
from gpytorch_partition.tables.cells import is_missing
from gpytorch_partition.tables.number_view import MOST_ONE_HOT

_FEWEST_GROUPS = 5  # groups from which the choosing rows are whole groups
_FEWEST_KEPT = 5  # rows of other groups than the largest, or before the latest time
_FEWEST_OF_BLOCK = 8  # rows of each block of time, on average
_ENDS = (0.2, 0.4, 0.6, 0.8)  # of stretches of time, in shares of the rows


@dataclass(frozen=True, eq=False)
class Blocks:
    """
    Hold groups or times of rows, which folds keep together (Roberts et al. 2017 on cross-validation by blocks).

    Use it where new rows are of new groups, or of later times: held-out rows then differ from the others as new
    rows will.
    """

    labels: Tensor  #: `N` whole numbers from 0 (int64): the row's group, or the rank of its time.
    are_times: bool  #: Whether labels are times, so that rows are predicted from earlier ones only.

    @classmethod
    def of(cls, groups: Any, time: Any, num_rows: int) -> Blocks | None:
        """
        Return the blocks of groups (`N` labels) or times (`N` numbers or dates) as estimators receive them, or None.

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
        """Return the blocks of some rows, by their numbers."""
        return Blocks(self.labels[rows], self.are_times)

    @property
    def groups(self) -> Tensor:
        """Return the group of each row (`N`); for times, one of five stretches with a fifth of the rows each."""
        if not self.are_times:
            return self.labels
        times = self.labels.numpy()
        return torch.from_numpy(np.digitize(times, np.quantile(times, _ENDS)))

    @property
    def are_enough(self) -> bool:
        """Return whether five rows or more are left when the largest group, or the latest time, is held out."""
        sizes = self.labels.unique(return_counts=True)[1]
        return len(self.labels) - int(sizes[-1] if self.are_times else sizes.max()) >= _FEWEST_KEPT

    def check(self) -> None:
        """Raise a `ValueError` if fewer than five rows are outside the largest group, or before the latest time."""
        if not self.are_enough:
            name, others = ("time", "before the latest") if self.are_times else ("groups", "outside the largest")
            raise ValueError(
                f"expected two {name.rstrip('s')}s or more, with {_FEWEST_KEPT} rows or more {others}, got "
                f"{len(self.labels.unique())} ({name}=) of {len(self.labels)} rows: leave out {name}=, and single rows "
                "are held out"
            )


Selectable = TypeVar("Selectable", Blocks, RowWeights)


def some_of(each: Selectable | None, rows: Tensor | np.ndarray | slice) -> Selectable | None:
    """Return the blocks or weights of some rows; None if there are none."""
    return None if each is None else each.of_rows(rows)


def _cells(values: Any, name: str, num_rows: int) -> np.ndarray:
    cells = np.empty(0) if isinstance(values, str) else composed(np.asarray(values))
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


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Hold rows and targets in any units; moments and standardized values are computed when they are first used."""

    rows: Tensor  # N x D (float64); NaN is a missing value
    targets: Tensor  # (N,) (float64)
    categories: Mapping[int, int] = field(default_factory=dict)  # numbers of levels of columns of codes, by column
    has_view: bool = False  # categories or missing cells: parts that compare numbers see a NumberView
    weights: RowWeights | None = None  # by which the noise's variance at each row is divided
    original: Tensor | None = None  # targets in the units of a user's ensemble, for which columns stay as they are
    blocks: Blocks | None = None  # groups or times by which rows are held out

    @property
    def has_equal_rows(self) -> bool:
        """Return whether rows have neither weights nor groups or times."""
        return self.weights is None and self.blocks is None

    @cached_property
    def columns(self) -> Standardization:
        """Return the map that standardizes the columns; codes, and columns for an ensemble, do not change."""
        columns = Standardization.of_columns(self.rows)
        if self.original is not None:
            return columns.without(range(self.rows.shape[1]))
        return columns.without(self.categories) if self.categories else columns

    @cached_property
    def unit(self) -> Standardization:
        """Return the map that standardizes the targets."""
        return Standardization.of_weighted(self.targets, None if self.weights is None else self.weights.capped)

    @cached_property
    def x(self) -> Tensor:
        """Return the standardized rows (`N x D`)."""
        return self.columns.apply(self.rows)

    @cached_property
    def y(self) -> Tensor:
        """Return the standardized targets (`N`)."""
        return self.unit.apply(self.targets)

    @cached_property
    def new_rows(self) -> Tensor:
        """Return the rows as if they were new: rare levels are missing cells (:func:`as_new_rows`)."""
        return as_new_rows(self.rows, self.categories, self.blocks)

    def part(self, numbers: Tensor | np.ndarray) -> TrainingData:
        """Return some rows, by their numbers, with their standardized targets."""
        original = None if self.original is None else self.original[numbers]
        others = self.categories, self.has_view, some_of(self.weights, numbers), original, some_of(self.blocks, numbers)
        return TrainingData(self.rows[numbers], self.y[numbers], *others)


def has_far_values(x: Tensor, categories: Mapping[int, int]) -> bool:
    """Return whether a number of standardized rows (`N x D`) counts by its logarithm; codes do not."""
    numbers = [column for column in range(x.shape[1]) if column not in categories]
    return bool((x[:, numbers].abs() > FAR).any())


@dataclass(frozen=True, eq=False)
class PartInputs:
    """Hold the inputs from which a part is built; fields without a comment are those of :class:`TrainingData`."""

    x: Tensor  # N x D standardized rows; codes of categories are unchanged
    y: Tensor  # (N,) targets, or N x T of several
    lengthscales: Tensor | None  # of the smooth part, one per column or per column of its view; None until learned
    setup: Setup
    categories: Mapping[int, int] = field(default_factory=dict)
    has_view: bool = False
    weights: RowWeights | None = None
    cross_fitted: Tensor | None = None  # rows on which trees are grown, where these are a view; else x
    original: Tensor | None = None
    blocks: Blocks | None = None
    new_x: Tensor | None = None  # the rows as held-out ones; None: x
    unlabelled: Tensor | None = None  # M x D more rows, on which the kernel is built too
    has_far_values: bool = False  # numbers that count by their logarithms

    @classmethod
    def of(cls, data: TrainingData, setup: Setup, lengthscales: Tensor | None = None) -> PartInputs:
        """Return the inputs of parts for training data."""
        others: dict[str, Any] = {"weights": data.weights, "original": data.original, "blocks": data.blocks}
        others["has_far_values"] = has_far_values(data.x, data.categories)
        return cls(data.x, data.y, lengthscales, setup, data.categories, data.has_view, **others)

    def of_rows(self, rows: Tensor | np.ndarray | slice, **changes: Any) -> PartInputs:
        """Return the inputs of some rows, by their numbers, with new values of other fields."""
        tensors = {"original": self.original, "new_x": self.new_x}
        changes |= {name: None if values is None else values[rows] for name, values in tensors.items()}
        changes |= {"weights": some_of(self.weights, rows), "blocks": some_of(self.blocks, rows)}
        return replace(self, x=self.x[rows], y=self.y[rows], **changes)

    def x_without(self, held_out: np.ndarray | Tensor) -> Tensor:
        """Return the rows (`N x D`), held-out ones as if they were new (:func:`as_new_rows`)."""
        if self.new_x is None:
            return self.x
        found = self.x.clone()
        found[held_out] = self.new_x[held_out]
        return found

    @property
    def points(self) -> Tensor:
        """Return the rows on which a kernel without targets is built, those with targets first."""
        return self.x if self.unlabelled is None else torch.cat([self.x, self.unlabelled])

    @property
    def tree_weights(self) -> Tensor | None:
        """Return the weights (`N`) by which trees and views count rows; None if all rows count the same."""
        return None if self.weights is None else self.weights.capped

    @property
    def groups(self) -> Tensor | None:
        """Return the group of each row, or its stretch of time (`N`), which inner folds must not split; else None."""
        return None if self.blocks is None else self.blocks.groups

    @property
    def grown_x(self) -> Tensor:
        """Return the rows on which trees are grown."""
        return self.x if self.cross_fitted is None else self.cross_fitted

    def view(self) -> NumberView:
        """Return the view of the rows for parts that compare numbers."""
        return NumberView(self.x, self.categories, self.y, weights=self.tree_weights)

    def seen(self, view: NumberView) -> PartInputs:
        """Return the inputs of parts that see a view."""
        return replace(self, x=view(self.x), cross_fitted=self.seen_in_folds(), categories={}, has_view=False)

    def seen_in_folds(self) -> Tensor:
        """Return the rows as parts that compare numbers see them (`N x k`), with mean targets of other folds."""
        if not self.has_view:
            return self.x
        view, rows = view_in_folds(self.x, self.categories, self.y, self.setup.random, self.tree_weights, self.groups)
        return view(rows)


# Folds and the rows that choose: single rows at random, whole groups, or blocks of time.


def folds(num_rows: int, num_folds: int, random: np.random.RandomState, blocks: Blocks | None = None) -> list[Split]:
    """
    Return the rows kept and the rows held out of each fold.

    Without blocks each row is held out once, at random. Groups are held out once too, with folds of sizes as equal as
    possible. With times, the rows of all blocks but the first are predicted from earlier ones; the latest block comes
    first. There are fewer folds if there are fewer groups, times, or rows.

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
    Return training rows (`N x D`) with rare levels as missing cells, as new rows have them.

    A level is rare if at most one other row has it; with groups, or stretches of time, only rows of other groups count.
    New rows have levels that :class:`~gpytorch_partition.tables.TableEncoder` has not learned as often, in columns of
    more than ten levels. Without this, log densities of held-out rows are too good where levels are rare.
    """
    found = x.clone()
    for column, num_levels in categories.items():
        if num_levels > MOST_ONE_HOT:
            codes = x[:, column].nan_to_num(num_levels).long()  # missing cells are one level more
            others = torch.bincount(codes)[codes] - _in_own_block(codes, blocks)
            found[others <= 1, column] = torch.nan
    return found


def _in_own_block(codes: Tensor, blocks: Blocks | None) -> Tensor | int:
    """Count the rows of a row's block, itself included, that have its level (`N`)."""
    if blocks is None:
        return 1
    pairs, counts = torch.stack([codes, blocks.groups]).unique(dim=1, return_inverse=True, return_counts=True)[1:]
    return counts[pairs]


def random_rows(
    num_rows: int, most_rows: int, random: np.random.RandomState, blocks: Blocks | None = None
) -> np.ndarray:
    """Return the numbers of some rows, in random order: whole groups if these are five or more, else single rows."""
    order = random.permutation(num_rows)
    if blocks is None or blocks.are_times or most_rows >= num_rows:
        return order[:most_rows]
    _, numbers, sizes = np.unique(blocks.labels.numpy()[order], return_inverse=True, return_counts=True)
    shuffled = random.permutation(len(sizes))
    whole = shuffled[sizes[shuffled].cumsum() <= most_rows]
    return order[np.isin(numbers, whole)] if len(whole) >= _FEWEST_GROUPS else order[:most_rows]
