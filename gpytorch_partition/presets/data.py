"""Training data in their own units and standardized, shared by all steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from gpytorch_partition.inputs.standardization import Standardization


@dataclass(frozen=True, eq=False)
class TrainingData:
    """
    Rows and targets in any units; moments and standardized values are computed when they are first asked for.

    :param rows: `N x D` (float64); NaN is a missing value.
    :param targets: `N` (float64).
    """

    rows: Tensor
    targets: Tensor

    @cached_property
    def columns(self) -> Standardization:
        """Means and standard deviations of the columns."""
        return Standardization.of(self.rows)

    @cached_property
    def unit(self) -> Standardization:
        """Mean and standard deviation of the targets."""
        return Standardization.of(self.targets)

    @cached_property
    def x(self) -> Tensor:
        """The standardized rows (`N x D`)."""
        return self.columns.apply(self.rows)

    @cached_property
    def y(self) -> Tensor:
        """The standardized targets (`N`)."""
        return self.unit.apply(self.targets)

    def part(self, numbers: Tensor | np.ndarray) -> TrainingData:
        """Some rows, by their numbers, with their standardized targets."""
        return TrainingData(self.rows[numbers], self.y[numbers])
