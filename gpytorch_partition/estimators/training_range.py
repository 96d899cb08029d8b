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
from gpytorch_partition.inputs.missing import decode_missing
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

# At points beyond all rows the first answer as at the nearest rows; inducing points know nothing there, and are sure.
_BLIND = (RandomForestKernel, FastClusterKernel, ClusteringKernel, LandmarkKernel)
_VANISHING = (MondrianKernel, GammaMondrianKernel, RandomBinningKernel)
# In 20 random splits of 17 sets into 9 to 1 these gave a warning in more than one only where columns have outliers.
_MARGIN = 0.25  # of a column's range, beyond which a row is outside
_FAR = 1.0  # of a column's range, beyond which a single row counts
_MOST_OUTSIDE = 0.01  # share of the rows that may be outside without being far; of 20 or more, one in any case
_FEW = 20
_ROUNDING = 1e-6  # of a number's size, by which constant columns may differ
_MOST_NAMES = 3


class OutsideRangeWarning(UserWarning):
    """
    Rows lie outside the range of the training rows, and the model is as sure there as inside.

    Leave these rows out, fit to some from there, or take `kernel="auto"`, whose smooth part widens intervals there.
    """


class TrainingRange(NamedTuple):
    """The least and largest values of the training rows, NaN where a column has none."""

    low: Tensor  # (D,)
    high: Tensor  # (D,)

    @classmethod
    def of(cls, train_x: Tensor) -> TrainingRange:
        """That of `N x D` rows, with NaN or its code for missing values."""
        x = decode_missing(train_x.detach())
        low, high = x.nan_to_num(nan=torch.inf).amin(0), x.nan_to_num(nan=-torch.inf).amax(0)
        return cls(*(torch.where(low <= high, each, torch.nan).double() for each in (low, high)))

    def beyond(self, x: Tensor) -> Tensor:
        """
        How far outside values lie (`N x D`), in ranges of their columns; 0 within, and where a value is missing.

        In a column that is constant, another value is outside, but not far: half a range.
        """
        width = self.high - self.low
        excess = torch.maximum(self.low - x, x - self.high).nan_to_num(nan=0.0).clamp_min(0.0)
        other = excess > _ROUNDING * self.high.abs().clamp_min(1.0)
        return torch.where(width > 0, excess / width, 0.5 * other.to(excess))


def is_blind(kernel: Kernel, likelihood: Any = None) -> bool:
    """
    Whether a kernel cannot tell points far from all rows from those among them.

    Forests and nearest centers answer there as at the nearest rows, and covariances through inducing points vanish,
    with all variance, unless the likelihood adds what they leave out. Mondrian and smooth kernels widen, and linear
    ones and slopes grow.

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
    """Whether all covariances vanish far from the rows, so that a classifier answers with the classes' frequencies."""
    return all(isinstance(part, _VANISHING) for part in _innermost(kernel))


def warn_of_rows_outside(beyond: Tensor, names: Sequence[str], remedy: str, *, ignored: Sequence[int] = ()) -> bool:
    """
    Warn, once, if rows lie outside the range of the training rows.

    A row is outside if a column has a value beyond the range by more than a quarter of it. There is a warning where
    more than one row of a hundred is outside (of 20 to 200, more than one), or any by more than the whole range.

    :param beyond: How far outside values are, by :meth:`TrainingRange.beyond`.
    :param names: Names of the columns.
    :param remedy: What to do.
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
    """Mixin for estimators that say so where rows lie outside the training range and the model cannot know it."""

    _range: TrainingRange  # of the rows that the model was fitted to
    _tells_once = False
    _has_told = False

    def _telling_once(self) -> Self:
        """The estimator, for many predictions that belong together, wherever they are made: one warning is enough."""
        found = copy(self)
        found._tells_once = True
        return found

    def _warn_of_rows_outside(self, x: Tensor, remedy: str) -> None:
        """
        An :class:`OutsideRangeWarning` if there are such rows; for models that cannot know it. O(N D).

        :param x: `N x D` new rows, as the model sees them.
        :param remedy: What to do.
        """
        if self._has_told:
            return
        names, ignored = model_column_names(self), tuple(getattr(self, "_categories", ()))
        has_told = warn_of_rows_outside(self._range.beyond(x.double()), names, remedy, ignored=ignored)
        if self._tells_once:
            self._has_told = has_told


def _innermost(kernel: Kernel) -> Iterator[Kernel]:
    """The kernels that a kernel is made of, as far as they know where rows are."""
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
