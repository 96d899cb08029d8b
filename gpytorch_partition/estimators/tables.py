"""Readers of estimators' data: arrays of numbers as in scikit-learn, tables by a `TableEncoder`."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import validate_data
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.inputs.missing import decode_missing
from gpytorch_partition.inputs.text_targets import Remedies, odd_targets, told_of_odd
from gpytorch_partition.tables import NumberView, TableEncoder
from gpytorch_partition.tables.cells import as_pandas, is_missing, names_of
from gpytorch_partition.tables.encoder import is_table

logger = logging.getLogger(__name__)

_REMEDIES = Remedies(
    words="leave these rows out, X[keep] and y[keep] with keep = pandas.to_numeric(y, errors='coerce').notna()",
    units="take off what is beside the number, y.str.strip({0!r}){1}.astype(float)",
    commas="write decimal points for commas, y.str.replace(',', '.').astype(float)",
    classes="PartitionGPClassifier and PartitionSVC learn classes",
)


class ReadsTables:
    """
    A mixin for estimators that take tables: data frames, mappings from names to columns, arrays of objects or text.

    Arrays of numbers are checked by scikit-learn's `validate_data`. The
    :class:`~gpytorch_partition.tables.TableEncoder` in `encoder_` (None for arrays) turns a table into a matrix of
    numbers; its messages go to the log.
    """

    encoder_: TableEncoder | None = None
    categorical_features: Sequence[str | int] | None = None
    _constant_columns: tuple[str, ...] = ()  # the same in all training rows, or empty
    _constants: np.ndarray | None = None  # values of such columns in the matrix; NaN in all others
    _for_new_holes = "the prediction is that of a typical value, as sure as if it were known"

    def _read(self, X: Any, y: Any = "no_validation", *, reset: bool, **options: Any) -> Any:
        """
        Return rows (`N x D`, float64) and, if given, targets; options are those of `validate_data`.

        Missing cells of tables are NaN, with any options.
        """
        _refuse_sparse(X)
        _check_rows(X)
        if not (isinstance(y, str) and y == "no_validation"):
            check_targets(y, bool(options.get("y_numeric")))
            y = as_pandas(y)
        if reset:
            vars(self).pop("encoder_", None)
        encodes = (is_table(X) or self.categorical_features is not None) if reset else self.encoder_ is not None
        if not encodes:
            if options.get("ensure_all_finite", True) is True:
                refuse_holes(X, self._shown)
            found = validate_data(self, X, y, dtype=np.float64, reset=reset, **options)
            if isinstance(found, tuple):
                return self._with_constants(found[0], reset), found[1]
            return self._with_constants(found, reset)
        if not isinstance(X, Mapping):
            X = X if hasattr(X, "columns") or isinstance(X, np.ndarray) else np.array(X, dtype=object)
            validate_data(self, X, skip_check_array=True, reset=reset)
        matrix = self._with_constants(self._encoded(X, reset), reset)
        options = {**options, "dtype": np.float64, "ensure_all_finite": "allow-nan", "estimator": self}
        if isinstance(y, str) and y == "no_validation":
            return check_array(matrix, **options)
        return check_X_y(matrix, y, **options)

    @property
    def _shown(self) -> str:
        kernel = getattr(self, "kernel", None)
        return type(self).__name__ + (f" with kernel={kernel!r}" if isinstance(kernel, str) else "")

    def _encoded(self, X: Any, reset: bool) -> np.ndarray:
        if not reset:
            assert self.encoder_ is not None
            return self.encoder_.transform_checked(X)
        self.encoder_ = TableEncoder(self.categorical_features)
        matrix = self.encoder_.fit_transform(X)
        if isinstance(X, Mapping):
            self.feature_names_in_, self.n_features_in_ = self.encoder_.feature_names_in_, self.encoder_.n_features_in_
        for message in self.encoder_.messages_:
            logger.info("%s", message)
        return matrix

    def _with_constants(self, matrix: np.ndarray, reset: bool) -> np.ndarray:
        """
        Return the matrix with missing cells filled in columns that were constant in training: they tell nothing there.

        Such columns are found, and reported, in training rows (`reset`).
        """
        if reset:
            self._say_what_is_constant(matrix)
        elif self._constants is not None:
            matrix = np.where(np.isnan(matrix), self._constants, matrix)
        return matrix

    def _say_what_is_constant(self, matrix: np.ndarray) -> None:
        """Find the columns that are the same in all training rows, or empty, and name them in the log."""
        is_constant = (matrix == matrix[:1]).all(0) | np.isnan(matrix).all(0)
        self._constants = np.where(is_constant, matrix[0], np.nan) if is_constant.any() and len(matrix) > 1 else None
        if self.encoder_ is None:
            names = getattr(self, "feature_names_in_", [f"x{number}" for number in range(matrix.shape[1])])
            constant = np.flatnonzero(is_constant)
        else:  # a date is constant if all its columns are; an empty one has none
            names, sources = list(self.encoder_.kinds_), np.array(self.encoder_.sources_)
            constant = np.setdiff1d(np.arange(len(names)), sources[~is_constant])
        self._constant_columns = tuple(str(names[number]) for number in constant) if len(matrix) > 1 else ()
        if self._constant_columns:
            names = names_of(self._constant_columns)
            logger.info("columns that are the same in all rows, empty or ids, tell nothing: %s", names)

    @property
    def _categories(self) -> dict[int, int]:
        """Number of levels of each column that holds codes, by its number."""
        categories = {} if self.encoder_ is None else self.encoder_.categories_
        return {column: len(levels) for column, levels in categories.items()}

    def _warn_of_new_holes(self, x: Tensor, train_x: Tensor) -> None:
        """Warn of missing cells in columns of numbers where no training row missed any: the model cannot use them."""
        is_new = x.isnan().any(0)
        is_new[list(self._categories)] = False
        if not bool(is_new.any()):
            return
        new = (is_new & ~decode_missing(train_x).isnan().any(0)).nonzero()[:, 0].tolist()
        if new:
            known = None if self.encoder_ is None else self.encoder_.get_feature_names_out()
            names = [f"x{number}" if known is None else known[number] for number in new]
            warnings.warn(
                f"cells are missing in {names_of(names)}, where no training row missed any: {self._for_new_holes}. Fit "
                "to rows that miss some as well, or drop such rows",
                UserWarning,
                stacklevel=level_of_caller(),
            )


class ReadsNumbers(ReadsTables):
    """A mixin for estimators that compare numbers: they see the `NumberView` of a table."""

    _view: NumberView | None = None

    def _read_numbers(self, X: Any, y: Any = "no_validation", *, reset: bool, **options: Any) -> Any:
        """Read as :meth:`_read`, without NaN; after a reset :meth:`_fit_view` must follow."""
        found = self._read(X, y, reset=reset, **options)
        if not reset and self._view is not None:
            return (self._viewed(found[0]), found[1]) if isinstance(found, tuple) else self._viewed(found)
        return found

    def _fit_view(self, rows: np.ndarray, targets: Tensor) -> np.ndarray:
        """Fit the view with targets (`N`, or `N x k` indicators of classes); return it of the rows."""
        self._view = None
        if self.encoder_ is None:
            return rows
        self._view = NumberView(torch.from_numpy(rows), self._categories, targets)
        return self._viewed(rows)

    def _viewed(self, rows: np.ndarray) -> np.ndarray:
        assert self._view is not None
        return self._view(torch.from_numpy(rows)).numpy()


def _check_rows(X: Any) -> None:
    if isinstance(X, str | os.PathLike):
        raise ValueError(
            f"expected an array or a table of rows, got the path {os.fspath(X)!r}: PartitionGPRegressor().fit_chunks("
            "path, 'target') reads parquet files without holding them, and pandas.read_parquet(path) holds them"
        )
    if hasattr(X, "iloc") and X.ndim == 1:
        raise ValueError(
            "Expected 2D array, got 1D array instead: expected a table, got a Series; give X.iloc[[0]] for a row of a "
            "DataFrame and X[['name']] for a column. Reshape your data by X.to_numpy().reshape(-1, 1) if it is an array"
        )


def check_targets(y: Any, are_numbers: bool) -> None:
    """
    Refuse missing targets, and text, dates and durations for numbers; scikit-learn makes all other checks.

    :param y: One target as given.
    :param are_numbers: Whether numbers are expected.
    :raises ValueError: With a remedy.
    """
    is_arrow, y = hasattr(y, "is_valid"), as_pandas(y)
    values = np.asarray(y) if hasattr(y, "dtype") or hasattr(y, "iloc") or isinstance(y, list) else np.empty(0)
    if are_numbers:
        refuse_times(values)
    if values.dtype.kind not in "fOUT" or values.ndim != 1:
        return
    missing = np.array([is_missing(value) for value in values]) if values.dtype.kind == "O" else values != values
    if missing.any():
        keep = (
            "y.filter(keep) with keep = numpy.asarray(y.is_valid())"
            if is_arrow
            else "y[keep] with keep = ~pandas.isna(y)"
        )
        raise ValueError(
            f"Input y contains NaN. Of {len(values)} targets {int(missing.sum())} are missing, the first in row "
            f"{int(missing.argmax())}: leave these rows out, X[keep] and {keep}"
        )
    if are_numbers and values.dtype.kind != "f" and (odd := odd_targets(values)):
        raise ValueError(f"expected targets that are numbers: {told_of_odd(odd, len(values), _REMEDIES)}")


def refuse_times(targets: np.ndarray) -> None:
    """
    Refuse dates and durations, which NumPy converts to numbers in their unit of storage.

    :param targets: Targets as an array.
    :raises ValueError: With a remedy.
    """
    if targets.dtype.kind in "mM":
        raise ValueError(
            f"expected targets that are real numbers, got {targets.dtype.name}: give durations in a unit that you "
            "choose, as days, y / numpy.timedelta64(1, 'D'), and dates as durations since one of them, y - y.min()"
        )


def _refuse_sparse(X: Any) -> None:
    if issparse(X):
        size = X.shape[0] * X.shape[-1] * 8 / 2**30
        raise TypeError(
            f"Sparse data was passed for X, but dense data is required: with its zeros it takes {size:.3g} GiB. Give "
            "X.toarray() if that fits into memory; instead of one-hot columns give the categories themselves, a column "
            "of text each, which forests split into sets of levels"
        )


def refuse_holes(X: Any, estimator: str) -> None:
    """
    Refuse arrays with missing values where numbers are compared; other errors are left to scikit-learn.

    :param X: `N x D` rows that are no table.
    :param estimator: Name of the estimator in the error.
    :raises ValueError: With the first such cell, and a remedy.

    Example:
        >>> refuse_holes([[1.0, 2.0], [np.nan, 0.0]], "PartitionSVC")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: Input X contains NaN: 1 of 2 rows miss values, the first of them row 1, in column 0. ...
    """
    try:
        values = np.asarray(X)
    except (TypeError, ValueError, RuntimeError):  # for scikit-learn to refuse
        return
    if values.dtype.kind != "f" or values.ndim != 2 or not np.isnan(values).any():
        return
    row, column = np.argwhere(np.isnan(values))[0]
    raise ValueError(
        f"Input X contains NaN: {int(np.isnan(values).any(1).sum())} of {len(values)} rows miss values, the first of "
        f"them row {row}, in column {column}. {estimator} takes missing cells of data frames only: fit and "
        "predict these, pandas.DataFrame(X); or drop or impute these rows. kernel='forest' and 'auto', where an "
        "estimator has them, take those of arrays too"
    )
