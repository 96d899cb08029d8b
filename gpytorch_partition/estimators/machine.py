"""The base class of kernel machines with the scikit-learn API, and checks of parameters and targets."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.estimators.given_kernels import name_of, sees_raw_columns
from gpytorch_partition.estimators.kernels import resolved_kernel
from gpytorch_partition.estimators.tables import ReadsTables
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.tables.cells import as_pandas

# Squares of larger numbers, or of one over them, may leave the range of floating point numbers.
LARGEST = 1e100
_ROUNDED = 100  # spacings of float64


class KernelMachine(ReadsTables, BaseEstimator):
    """
    A base class of estimators with the parameters `kernel`, `num_partitions`, `random_state` and `n_jobs`.

    Rows are standardized unless the kernel is built already, and held in float64. A machine calls :meth:`_checked` and
    :meth:`_build` in `fit`, and :meth:`_new_rows` for other rows; the kernel is in `kernel_`.
    """

    kernel: Any
    num_partitions: int
    random_state: Any
    n_jobs: int | None
    kernel_: Kernel
    _columns: Standardization | None

    def _checked(self, X: Any, y: Any = "no_validation", reset: bool = True, **options: Any) -> Any:
        return self._read(X, y, reset=reset, ensure_all_finite=self._finiteness, **options)

    def _build(self, rows: np.ndarray, targets: Tensor | None) -> Tensor:
        """
        Build the kernel on checked rows; return the rows (`N x D`) as the kernel sees them.

        :param targets: `N` numbers or `N x k` indicators, or None.
        """
        check_count(self.num_partitions, "num_partitions")
        check_n_jobs(self.n_jobs)
        x = self._training_rows(rows)
        self.kernel_ = resolved_kernel(
            self.kernel,
            x,
            targets,
            num_partitions=self.num_partitions,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
            categories=self._categories,
        )
        return x

    def _training_rows(self, rows: np.ndarray) -> Tensor:
        """Set the standardization by checked rows; return them as the kernel sees them."""
        check_magnitudes(rows, "X")
        self._columns = (
            None if sees_raw_columns(self.kernel) else Standardization.of_array(rows).without(self._categories)
        )
        return self._seen_by_kernel(rows)

    def _new_rows(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return self._seen_by_kernel(self._checked(X, reset=False))

    def _seen_by_kernel(self, rows: np.ndarray) -> Tensor:
        if self._columns is None:
            return torch.from_numpy(np.require(rows, requirements=["C", "W"]))
        return self._columns.apply_array(rows)

    @property
    def _takes_missing_values(self) -> bool:
        """Whether NaN is accepted: trees take missing values; a kernel that is built already checks rows itself."""
        return sees_raw_columns(self.kernel) or name_of(self.kernel) in ("auto", "forest")

    @property
    def _finiteness(self) -> bool | str:
        return "allow-nan" if self._takes_missing_values else True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_missing_values
        return tags


def check_count(number: Any, name: str) -> None:
    """
    Refuse anything but whole numbers from 1.

    :raises ValueError: If it is none.
    """
    if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
        raise ValueError(f"expected {name} to be a whole number, 1 or more, got {number!r}")


def check_n_jobs(n_jobs: Any) -> None:
    """
    Refuse anything but numbers of jobs.

    :raises ValueError: If it is neither None nor a whole number other than 0.
    """
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0):
        raise ValueError(f"expected n_jobs to be None or a whole number other than 0 (-1: all cores), got {n_jobs!r}")


def check_verbose(verbose: Any) -> None:
    """
    Refuse anything but levels of verbosity.

    :raises ValueError: If it is neither None, a flag, nor a whole number from 0.
    """
    if verbose is not None and (not isinstance(verbose, Integral) or verbose < 0):
        raise ValueError(f"expected verbose to be None, a flag or a whole number from 0, got {verbose!r}")


def check_flag(flag: Any, name: str) -> None:
    """
    Refuse anything but True and False, such as text, which always counts as True.

    :raises ValueError: If it is anything else.
    """
    if not isinstance(flag, bool | np.bool_):
        raise ValueError(f"expected {name} to be True or False, got {flag!r}")


def check_positive(number: Any, name: str) -> None:
    """
    Refuse anything but positive, finite numbers.

    :raises ValueError: If it is none.
    """
    if isinstance(number, bool) or not isinstance(number, Real) or not 0 < float(number) < np.inf:
        raise ValueError(f"expected {name} to be a positive number, got {number!r}")


def warn_of_rounding(y: np.ndarray) -> None:
    """Warn of targets (`N` or `N x T`, NaN where missing) that differ by about the rounding of float64."""
    spread, size = np.nanmax(y, 0) - np.nanmin(y, 0), np.nanmax(np.abs(y), 0)
    if bool(np.any((spread > 0) & (spread <= _ROUNDED * np.finfo(np.float64).eps * size))):
        warnings.warn(
            f"the targets differ by {np.max(spread):.3g}, which float64 hardly tells apart at their size, "
            f"{np.max(size):.3g}: what they say is lost. Subtract a constant before they are stored",
            UserWarning,
            stacklevel=level_of_caller(),
        )


def optional_targets(y: Any, num_rows: int) -> Tensor | None:
    """
    Return the targets that an unsupervised machine gives a supervised kernel.

    :param y: None, or `N` numbers, `N` labels of classes of any other kind, or `N x k` numbers.
    :param num_rows: N.
    :return: `N` numbers, or `N x k` indicators of k classes (float64).
    :raises ValueError: If there is not one for each row, or one is not finite.
    """
    if y is None:
        return None
    values = np.asarray(as_pandas(y))
    if values.shape[:1] != (num_rows,):
        raise ValueError(f"expected one target for each of {num_rows} rows, got targets of shape {values.shape}")
    if values.dtype.kind not in "fiub":
        if any(value is None or value != value for value in values.flat):
            raise ValueError("expected labels of classes, got None or NaN: drop such rows")
        return class_indicators(np.unique(values, return_inverse=True)[1])
    if not np.isfinite(values).all():
        raise ValueError("expected finite targets, got NaN or infinity: drop such rows")
    return torch.from_numpy(values.astype(np.float64))


def class_indicators(classes: np.ndarray) -> Tensor:
    """Return the targets for forests of classes: `N` zeros and ones, or `N x k` for k > 2 classes."""
    numbers = torch.from_numpy(classes)
    num_classes = int(numbers.max()) + 1
    return torch.nn.functional.one_hot(numbers).double() if num_classes > 2 else numbers.double()


def check_magnitudes(values: np.ndarray, name: str) -> None:
    """
    Refuse numbers whose squares leave the range of floating point numbers.

    :param values: `N` or `N x D` finite numbers, or NaN.
    :param name: Name of the numbers in the error.
    :raises ValueError: If one is beyond 1e100, or all differ by less than 1e-100 but are not the same.
    """
    values = np.where(np.isnan(values), 0.0, values)
    ranges = np.ptp(values, axis=0)
    if np.abs(values).max() > LARGEST or np.any((ranges > 0) & (ranges < 1 / LARGEST)):
        raise ValueError(
            f"expected {name} in units that make numbers between {1 / LARGEST:g} and {LARGEST:g}, got a column with "
            f"values up to {np.abs(values).max():.3g} and ranges from {ranges.min():.3g}: choose another unit"
        )
