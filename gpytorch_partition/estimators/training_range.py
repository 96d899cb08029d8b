"""Rows outside the range of the training rows, where some kernels are as sure as inside."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple, Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.explain.given_columns import model_column_names
from gpytorch_partition.inputs.training_rows import decode_missing
from gpytorch_partition.kernels import (
    ClusteringKernel,
    FastClusterKernel,
    GammaMondrianKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    RandomBinningKernel,
    RandomForestKernel,
)
from gpytorch_partition.likelihoods import FITCGaussianLikelihood

# Far from all rows, forests and centers predict as at the nearest rows; covariances through inducing points vanish.
_BLIND = (RandomForestKernel, FastClusterKernel, ClusteringKernel, LandmarkKernel)
_VANISHING = (MondrianKernel, GammaMondrianKernel, RandomBinningKernel)
# In 20 random 9 to 1 splits of each of 17 sets, more than one split warned only where columns have outliers.
_MARGIN = 0.25  # of a column's range; a row beyond is outside
_FAR = 1.0  # of a column's range; beyond, a single row counts
_MOST_OUTSIDE = 0.01  # share of the rows that may be outside without being far; of 20 or more, one in any case
_FEW = 20
_ROUNDING = 1e-6  # of a number's size, by which constant columns may differ
_MOST_NAMES = 3


class OutsideRangeWarning(UserWarning):
    """
    A warning of rows outside the range of the training rows, where the model is as sure as inside.

    Leave these rows out, fit to some from there, or use `kernel="auto"`, whose smooth part widens intervals there.
    """


class TrainingRange(NamedTuple):
    """The least and largest values of the training rows, NaN where a column has none."""

    low: Tensor  # (D,)
    high: Tensor  # (D,)

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


def is_blind(kernel: Kernel, likelihood: Any = None) -> bool:
    """
    Return whether a kernel has no more variance far from all rows than among them.

    Forests and nearest centers predict there as at the nearest rows. Covariances through inducing points vanish, with
    all variance, unless the likelihood adds the variance that they leave out. Mondrian and smooth kernels widen
    intervals, and linear ones and slopes grow.

    Example:
        >>> from gpytorch_partition import MondrianKernel
        >>> x = torch.rand(20, 1, generator=torch.Generator().manual_seed(0))
        >>> forest, mondrian = RandomForestKernel(x, x[:, 0], 5, random_state=0), MondrianKernel(x, 5, random_state=0)
        >>> is_blind(forest), is_blind(mondrian), is_blind(forest + mondrian)
        (True, False, False)
    """
    return not isinstance(likelihood, FITCGaussianLikelihood) and all(
        isinstance(part, _BLIND) for part in _innermost(kernel)
    )


def tends_to_frequencies(kernel: Kernel) -> bool:
    """Return whether covariances vanish far from the rows: a classifier predicts the classes' frequencies there."""
    return all(isinstance(part, _VANISHING) for part in _innermost(kernel))


def warn_of_rows_outside(beyond: Tensor, names: Sequence[str], remedy: str, *, ignored: Sequence[int] = ()) -> bool:
    """
    Warn, once, if rows lie outside the range of the training rows.

    A row is outside if a column has a value beyond the range by more than a quarter of it. There is a warning where
    more than one row of a hundred is outside (of 20 to 200, more than one), or any by more than the whole range.

    :param beyond: Distances from the range, by :meth:`TrainingRange.beyond`.
    :param names: Names of the columns.
    :param remedy: Advice in the warning.
    :param ignored: Numbers of columns that hold codes. (Default: none.)
    :return: Whether there was a warning.
    """
    beyond = beyond.clone()
    beyond[:, list(ignored)] = 0.0
    outside = beyond > _MARGIN
    count = int(outside.any(1).sum())
    allowed = max(_MOST_OUTSIDE * len(beyond), len(beyond) >= _FEW)
    if count <= allowed and not bool((beyond > _FAR).any()):
        return False
    farthest = beyond.amax(0)
    told = [
        f"{names[column]!r} ({float(farthest[column]):.3g} times its range beyond)"
        for column in farthest.argsort(descending=True).tolist()[:_MOST_NAMES]
        if bool(outside[:, column].any())
    ]
    more = int(outside.any(0).sum()) - len(told)
    told += [f"{more} more"] if more else []
    warnings.warn(
        f"{count:,} of {len(beyond):,} rows lie outside the range of the training rows, in {', '.join(told)}: the "
        f"model answers there as at the nearest rows it knows, and as surely. {remedy}",
        OutsideRangeWarning,
        stacklevel=level_of_caller(),
    )
    return True


class ToldOfRange:
    """A mixin for estimators that warn of rows outside the training range."""

    _range: TrainingRange  # of the rows that the model was fitted to
    _tells_once = False
    _has_told = False

    def _telling_once(self) -> Self:
        """Return a copy of the estimator that warns once, for many predictions that belong together."""
        found = copy(self)
        found._tells_once = True
        return found

    def _warn_of_rows_outside(self, x: Tensor, remedy: str) -> None:
        """
        Warn if there are such rows, at O(N D).

        :param x: `N x D` new rows, as the model sees them.
        :param remedy: Advice in the warning.
        """
        if self._has_told:
            return
        names, ignored = model_column_names(self), tuple(getattr(self, "_categories", ()))
        has_told = warn_of_rows_outside(self._range.beyond(x.double()), names, remedy, ignored=ignored)
        if self._tells_once:
            self._has_told = has_told


def _innermost(kernel: Kernel) -> Iterator[Kernel]:
    """Yield the innermost kernels; those in `_BLIND` and local linear kernels are not opened."""
    inside = [part for child in kernel.children() for part in _kernels_in(child)]
    if not inside or isinstance(kernel, (*_BLIND, LocalLinearKernel)):
        yield kernel
    else:
        for part in inside:
            yield from _innermost(part)


def _kernels_in(module: torch.nn.Module) -> list[Kernel]:
    if isinstance(module, Kernel):
        return [module]
    return [each for each in module if isinstance(each, Kernel)] if isinstance(module, torch.nn.ModuleList) else []
