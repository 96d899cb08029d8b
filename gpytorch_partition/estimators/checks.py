"""Checks of what estimators are given: parameters, numbers, and rows outside the range of the training rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.inputs.numbers import is_whole
from gpytorch_partition.inputs.training_rows import decode_missing
from gpytorch_partition.kernels import LocalLinearKernel
from gpytorch_partition.likelihoods import FITCGaussianLikelihood
from gpytorch_partition.models.partition_gp import innermost_kernels

# Squares of larger numbers, or of one over them, may leave the range of floating point numbers.
LARGEST = 1e100
_ROUNDED = 100  # spacings of float64
# In 20 random 9 to 1 splits of each of 17 sets, more than one split warned only where columns have outliers.
_MARGIN = 0.25  # of a column's range; a row beyond is outside
_FAR = 1.0  # of a column's range; beyond, a single row counts
_MOST_OUTSIDE = 0.01  # share of the rows that may be outside without being far; of 20 or more, one in any case
_FEW = 20
_ROUNDING = 1e-6  # of a number's size, by which constant columns may differ
_MOST_NAMES = 3

Estimator = TypeVar("Estimator")


def check_count(number: Any, name: str, least: int = 1, most: float = np.inf) -> None:
    if is_whole(number, least) and number > most:
        raise ValueError(f"expected {name} to be {most:,} at most, got {number:,}")
    if not is_whole(number, least):
        raise ValueError(f"expected {name} to be a whole number, {least} or more, got {number!r}")


def check_n_jobs(n_jobs: Any) -> None:
    if n_jobs is not None and (not is_whole(n_jobs, -np.inf) or n_jobs == 0):
        raise ValueError(f"expected n_jobs to be None or a whole number other than 0 (-1: all cores), got {n_jobs!r}")


def check_verbose(verbose: Any) -> None:
    if verbose is not None and (not isinstance(verbose, Integral) or verbose < 0):
        raise ValueError(f"expected verbose to be None, True, False or a whole number from 0, got {verbose!r}")


def check_flag(flag: Any, name: str) -> None:
    """Refuse anything but True and False, such as text, which always counts as True."""
    if not isinstance(flag, bool | np.bool_):
        raise ValueError(f"expected {name} to be True or False, got {flag!r}")


def check_positive(number: Any, name: str) -> None:
    if not _is_number(number) or not 0 < float(number) < np.inf:
        raise ValueError(f"expected {name} to be a positive number, got {number!r}")


def check_share(number: Any, name: str) -> None:
    if not _is_number(number) or not 0 <= float(number) <= 1:
        raise ValueError(f"expected {name} to be a number from 0 to 1, got {number!r}")


def check_word(value: Any, name: str, words: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"expected {name} to be one of {words}, got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


@np.errstate(over="ignore")
def check_magnitudes(values: np.ndarray, name: str) -> None:
    """Refuse numbers beyond 1e100, and numbers that are not the same but all differ by less than 1e-100."""
    values = np.where(np.isnan(values), 0.0, values)
    ranges = np.ptp(values, axis=0)
    if np.abs(values).max() > LARGEST or np.any((ranges > 0) & (ranges < 1 / LARGEST)):
        raise ValueError(
            f"expected {name} in units that make numbers between {1 / LARGEST:g} and {LARGEST:g}, got values up to "
            f"{np.abs(values).max():.3g} and ranges from {ranges.min():.3g}: choose another unit"
        )


def warn_of_rounding(values: np.ndarray, name: str = "targets") -> None:
    """Warn of columns (`N` or `N x D`) that differ by about the rounding of float64, or are equal from 2^53 on."""
    low, high = np.fmin.reduce(values), np.fmax.reduce(values)
    spread, size = np.atleast_1d(high - low), np.atleast_1d(np.fmax(np.abs(low), np.abs(high)))
    is_lost = (spread <= _ROUNDED * np.finfo(np.float64).eps * size) & ((spread > 0) | (size >= 2.0**53))
    if is_lost.any():
        told = f"{name} differ by {spread[is_lost].max():.3g}, which float64 hardly tells apart at their size"
        remedy = f"{size[is_lost].max():.3g}: subtract a constant before you store them"
        warnings.warn(f"{told}, {remedy}", stacklevel=level_of_caller())


class OutsideRangeWarning(UserWarning):
    """
    Warn of rows outside the range of the training rows, where the model is as sure as inside.

    Leave these rows out, fit to some from there, or use `kernel="auto"`, whose smooth part widens intervals there.
    """


def telling_once(estimator: Estimator) -> Estimator:
    """Return a copy of an estimator that warns of rows outside the training range, and of new holes, only once each."""
    found = copy(estimator)
    found._told = []  # type: ignore[attr-defined]
    return found


class TrainingRange(NamedTuple):
    """Hold the least and largest values of the training rows (`D` each), NaN where a column has none."""

    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, train_x: Tensor) -> TrainingRange:
        """Return the range of `N x D` rows, with NaN or its code for missing values."""
        x = decode_missing(train_x.detach())
        low, high = x.nan_to_num(nan=torch.inf).amin(0), x.nan_to_num(nan=-torch.inf).amax(0)
        return cls(*(torch.where(low <= high, each, torch.nan).double() for each in (low, high)))

    def beyond(self, x: Tensor) -> Tensor:
        """Return how far values lie outside the range (`N x D`), in its widths; 0.5 for new values of constants."""
        width = self.high - self.low
        excess = torch.maximum(self.low - x, x - self.high).nan_to_num(nan=0.0).clamp_min(0.0)
        other = excess > _ROUNDING * self.high.abs().clamp_min(1.0)
        return torch.where(width > 0, excess / width, 0.5 * other.to(excess))

    def warn_of_rows_outside(
        self, x: Tensor, names: Sequence[str], codes: Sequence[int], remedy: str, told: list[str] | None = None
    ) -> None:
        """
        Warn if rows (`N x D`) lie outside, unless the list `told` has such a warning; the warning is added to it.

        A row is outside if it lies a quarter of the range beyond it, in a column that holds no codes. More than one row
        in a hundred (more than one of 20 to 200) must be outside, or any row by more than the whole range.
        """
        if any("rows lie outside" in each for each in told or ()):
            return
        beyond = self.beyond(x.double())
        beyond[:, list(codes)] = 0.0
        count = int((beyond > _MARGIN).any(1).sum())
        if count <= max(_MOST_OUTSIDE * len(beyond), len(beyond) >= _FEW) and not bool((beyond > _FAR).any()):
            return
        where = f"outside the range of the training rows, in {_farthest_columns(beyond, names)}"
        how = "the model predicts there as at the nearest training rows, and is as sure"
        message = f"{count:,} of {len(beyond):,} rows lie {where}: {how}. {remedy}"
        warnings.warn(message, OutsideRangeWarning, stacklevel=level_of_caller())
        if told is not None:
            told.append(message)


def _farthest_columns(beyond: Tensor, names: Sequence[str]) -> str:
    farthest = beyond.amax(0)
    columns = [column for column in farthest.argsort(descending=True).tolist() if bool(farthest[column] > _MARGIN)]
    told = [f"{names[each]!r} ({float(farthest[each]):.3g} times its range beyond)" for each in columns[:_MOST_NAMES]]
    return ", ".join(told + [f"{len(columns) - len(told)} more"] * (len(columns) > len(told)))


def is_blind(kernel: Kernel, likelihood: Any = None) -> bool:
    """Return whether a kernel has no more variance far from all rows than among them, as forests have."""
    return not isinstance(likelihood, FITCGaussianLikelihood) and all(map(_is_narrow, _innermost(kernel)))


def tends_to_frequencies(kernel: Kernel) -> bool:
    """Return whether covariances vanish far from all rows."""
    return all(getattr(part, "vanishes_far_away", False) for part in _innermost(kernel))


def _innermost(kernel: Kernel) -> Iterator[Kernel]:
    return innermost_kernels(kernel, lambda each: _is_narrow(each) or isinstance(each, LocalLinearKernel))


def _is_narrow(kernel: Kernel) -> bool:
    return not getattr(kernel, "widens_far_away", True)
