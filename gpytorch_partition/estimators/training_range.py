"""Rows outside the range of the training rows, where some kernels are as sure as inside."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple, TypeVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.inputs.training_rows import decode_missing
from gpytorch_partition.kernels import (
    LocalLinearKernel,
)
from gpytorch_partition.likelihoods import FITCGaussianLikelihood
from gpytorch_partition.models.partition_gp import innermost_kernels

# In 20 random 9 to 1 splits of each of 17 sets, more than one split warned only where columns have outliers.
_MARGIN = 0.25  # of a column's range; a row beyond is outside
_FAR = 1.0  # of a column's range; beyond, a single row counts
_MOST_OUTSIDE = 0.01  # share of the rows that may be outside without being far; of 20 or more, one in any case
_FEW = 20
_ROUNDING = 1e-6  # of a number's size, by which constant columns may differ
_MOST_NAMES = 3

Estimator = TypeVar("Estimator")


class OutsideRangeWarning(UserWarning):
    """
    A warning of rows outside the range of the training rows, where the model is as sure as inside.

    Leave these rows out, fit to some from there, or use `kernel="auto"`, whose smooth part widens intervals there.
    """


def telling_once(estimator: Estimator) -> Estimator:
    """Return a copy of an estimator that warns once of rows outside, in many predictions that belong together."""
    found = copy(estimator)
    found._told = []  # type: ignore[attr-defined]
    return found


class TrainingRange(NamedTuple):
    """The least and largest values of the training rows (`D` each), NaN where a column has none."""

    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, train_x: Tensor) -> TrainingRange:
        """Return the range of `N x D` rows, with NaN or its code for missing values."""
        x = decode_missing(train_x.detach())
        low, high = x.nan_to_num(nan=torch.inf).amin(0), x.nan_to_num(nan=-torch.inf).amax(0)
        return cls(*(torch.where(low <= high, each, torch.nan).double() for each in (low, high)))

    def beyond(self, x: Tensor) -> Tensor:
        """
        Return the distances of values from the range (`N x D`), in ranges of their columns; 0 for missing values.

        In a constant column other values have half a range: outside, but not far.
        """
        width = self.high - self.low
        excess = torch.maximum(self.low - x, x - self.high).nan_to_num(nan=0.0).clamp_min(0.0)
        other = excess > _ROUNDING * self.high.abs().clamp_min(1.0)
        return torch.where(width > 0, excess / width, 0.5 * other.to(excess))

    def warn_of_rows_outside(
        self, x: Tensor, names: Sequence[str], codes: Sequence[int], remedy: str, told: list[str] | None = None
    ) -> None:
        """
        Warn, once, if rows (`N x D`) lie outside, at O(N D).

        A row is outside if a column has a value beyond the range by more than a quarter of it. There is a warning where
        more than one row of a hundred is outside (of 20 to 200, more than one), or any by more than the whole range.

        :param names: Names of the columns.
        :param codes: Numbers of columns that hold codes, which have no range.
        :param remedy: Advice in the warning.
        :param told: A list that the warning is added to; there is none if it has one. (Default: None.)
        """
        if told:
            return
        beyond = self.beyond(x.double())
        beyond[:, list(codes)] = 0.0
        count = int((beyond > _MARGIN).any(1).sum())
        if count <= max(_MOST_OUTSIDE * len(beyond), len(beyond) >= _FEW) and not bool((beyond > _FAR).any()):
            return
        message = (
            f"{count:,} of {len(beyond):,} rows lie outside the range of the training rows, in "
            f"{_farthest_columns(beyond, names)}: the model answers there as at the nearest rows it knows, and as "
            f"surely. {remedy}"
        )
        warnings.warn(message, OutsideRangeWarning, stacklevel=level_of_caller())
        if told is not None:
            told.append(message)


def _farthest_columns(beyond: Tensor, names: Sequence[str]) -> str:
    farthest = beyond.amax(0)
    columns = [column for column in farthest.argsort(descending=True).tolist() if bool(farthest[column] > _MARGIN)]
    told = [f"{names[each]!r} ({float(farthest[each]):.3g} times its range beyond)" for each in columns[:_MOST_NAMES]]
    return ", ".join(told + [f"{len(columns) - len(told)} more"] * (len(columns) > len(told)))


def is_blind(kernel: Kernel, likelihood: Any = None) -> bool:
    """
    Return whether a kernel has no more variance far from all rows than among them.

    Forests and nearest centers predict there as at the nearest rows. Covariances through inducing points vanish, with
    all variance, unless the likelihood adds the variance that they leave out. Mondrian and smooth kernels widen
    intervals, and linear ones and slopes grow.
    """
    return not isinstance(likelihood, FITCGaussianLikelihood) and all(map(_is_narrow, _innermost(kernel)))


def tends_to_frequencies(kernel: Kernel) -> bool:
    """Return whether covariances vanish far from the rows: a classifier predicts the classes' frequencies there."""
    return all(getattr(part, "vanishes_far_away", False) for part in _innermost(kernel))


def _innermost(kernel: Kernel) -> Iterator[Kernel]:
    return innermost_kernels(kernel, lambda each: _is_narrow(each) or isinstance(each, LocalLinearKernel))


def _is_narrow(kernel: Kernel) -> bool:
    return not getattr(kernel, "widens_far_away", True)
