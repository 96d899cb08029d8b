"""Training data in their own units and standardized, which all steps share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from torch import Tensor

from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.presets.folds import Blocks, as_new_rows


@dataclass(frozen=True, eq=False)
class TrainingData:
    """
    Rows and targets in any units; moments and standardized values are computed when they are first used.

    :param rows: `N x D` rows (float64); NaN is a missing value.
    :param targets: `N` targets (float64).
    :param categories: Numbers of levels of columns of codes, by column number. (Default: none.)
    :param has_view: Whether smooth, linear and boosted parts see a :class:`~gpytorch_partition.tables.NumberView` of
        the rows. (Default: no.)
    :param weights: Weights by which the noise's variance at each row is divided. (Default: None, 1.)
    :param original: `N` targets in the units of a user's ensemble, with which columns are not standardized. (Default:
        None, no ensemble.)
    :param blocks: Groups or times by which rows are held out. (Default: None, single rows.)
    """

    rows: Tensor
    targets: Tensor
    categories: Mapping[int, int] = field(default_factory=dict)
    has_view: bool = False
    weights: RowWeights | None = None
    original: Tensor | None = None
    blocks: Blocks | None = None

    @cached_property
    def columns(self) -> Standardization:
        """Return means and standard deviations of the columns; codes do not change."""
        columns = Standardization.of(self.rows)
        if self.original is not None:
            return columns.without(range(self.rows.shape[1]))
        return columns.without(self.categories) if self.categories else columns

    @cached_property
    def unit(self) -> Standardization:
        """Return mean and standard deviation of the targets."""
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
        """Return the rows as others predict them (`N x D`), with rare levels as missing cells (:func:`as_new_rows`)."""
        return as_new_rows(self.rows, self.categories, self.blocks)

    def part(self, numbers: Tensor | np.ndarray) -> TrainingData:
        """Return some rows, by their numbers, with their standardized targets."""
        weights = None if self.weights is None else self.weights.of_rows(numbers)
        original = None if self.original is None else self.original[numbers]
        blocks = None if self.blocks is None else self.blocks.of_rows(numbers)
        columns = self.categories, self.has_view
        return TrainingData(self.rows[numbers], self.y[numbers], *columns, weights, original, blocks)
