"""Checks of the parameters and numbers that estimators are given."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np

from gpytorch_partition.callers import level_of_caller

# Squares of larger numbers, or of one over them, may leave the range of floating point numbers.
LARGEST = 1e100
_ROUNDED = 100  # spacings of float64


def check_count(number: Any, name: str, least: int = 1, most: float = np.inf) -> None:
    """Refuse anything but whole numbers within bounds."""
    if _is_number(number, Integral) and number > most:
        raise ValueError(f"expected {name} to be {most:,} at most, got {number:,}")
    if not _is_number(number, Integral) or number < least:
        raise ValueError(f"expected {name} to be a whole number, {least} or more, got {number!r}")


def check_n_jobs(n_jobs: Any) -> None:
    """Refuse anything but None and whole numbers other than 0."""
    if n_jobs is not None and (not _is_number(n_jobs, Integral) or n_jobs == 0):
        raise ValueError(f"expected n_jobs to be None or a whole number other than 0 (-1: all cores), got {n_jobs!r}")


def check_verbose(verbose: Any) -> None:
    """Refuse anything but None, flags and whole numbers from 0."""
    if verbose is not None and (not isinstance(verbose, Integral) or verbose < 0):
        raise ValueError(f"expected verbose to be None, a flag or a whole number from 0, got {verbose!r}")


def check_flag(flag: Any, name: str) -> None:
    """Refuse anything but True and False, such as text, which always counts as True."""
    if not isinstance(flag, bool | np.bool_):
        raise ValueError(f"expected {name} to be True or False, got {flag!r}")


def check_positive(number: Any, name: str) -> None:
    """Refuse anything but positive, finite numbers."""
    if not _is_number(number, Real) or not 0 < float(number) < np.inf:
        raise ValueError(f"expected {name} to be a positive number, got {number!r}")


def check_share(number: Any, name: str) -> None:
    """Refuse anything but numbers from 0 to 1."""
    if not _is_number(number, Real) or not 0 <= float(number) <= 1:
        raise ValueError(f"expected {name} to be a number from 0 to 1, got {number!r}")


def check_word(value: Any, name: str, words: tuple[str, ...]) -> None:
    """Refuse anything but one of several words."""
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"expected {name} to be one of {words}, got {value!r}")


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def check_magnitudes(values: np.ndarray, name: str) -> None:
    """
    Refuse numbers beyond 1e100, and those that all differ by less than 1e-100 but are not the same.

    :param values: `N` or `N x D` finite numbers, or NaN.
    :param name: Name of the numbers in the error.
    """
    values = np.where(np.isnan(values), 0.0, values)
    ranges = np.ptp(values, axis=0)
    if np.abs(values).max() > LARGEST or np.any((ranges > 0) & (ranges < 1 / LARGEST)):
        raise ValueError(
            f"expected {name} in units that make numbers between {1 / LARGEST:g} and {LARGEST:g}, got a column with "
            f"values up to {np.abs(values).max():.3g} and ranges from {ranges.min():.3g}: choose another unit"
        )


def warn_of_rounding(values: np.ndarray, name: str = "targets") -> None:
    """Warn of a column of numbers (`N` or `N x D`, NaN where missing) that differ by about the rounding of float64."""
    low, high = np.fmin.reduce(values), np.fmax.reduce(values)
    spread, size = np.atleast_1d(high - low), np.atleast_1d(np.fmax(np.abs(low), np.abs(high)))
    is_lost = (spread > 0) & (spread <= _ROUNDED * np.finfo(np.float64).eps * size)
    if is_lost.any():
        warnings.warn(
            f"{name} differ by {spread[is_lost].max():.3g}, which float64 hardly tells apart at their size, "
            f"{size[is_lost].max():.3g}: what they say is lost. Subtract a constant before they are stored",
            UserWarning,
            stacklevel=level_of_caller(),
        )
