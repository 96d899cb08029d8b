"""Readers of data: arrays of numbers as in scikit-learn, tables by a `TableEncoder`, targets, rows that count."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing, check_array, check_consistent_length, check_X_y
from sklearn.utils.validation import validate_data
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.estimators.checks import check_magnitudes
from gpytorch_partition.estimators.kernel_parameter import OF_STATE, check_takes_unlabelled, name_of, sees_raw_columns
from gpytorch_partition.explain.given_columns import model_column_names
from gpytorch_partition.inputs.numbers import like_holes, refuse_mask
from gpytorch_partition.inputs.row_choice import rows_without_copies, told_of_copies
from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.inputs.text_targets import composed, told_of_odd
from gpytorch_partition.inputs.training_rows import decode_missing
from gpytorch_partition.presets.data import Blocks, some_of
from gpytorch_partition.tables import MisreadColumnWarning, NumberView, TableEncoder
from gpytorch_partition.tables.cells import DATES, as_pandas, is_missing, names_of
from gpytorch_partition.tables.encoder import as_table, is_table

logger = logging.getLogger(__name__)

NO_TARGETS = "no_validation"  # scikit-learn's word


class ReadsTables:
    """
    A base of estimators that take tables: data frames, mappings from names to columns, arrays of objects or text.

    The :class:`~gpytorch_partition.tables.TableEncoder` in `encoder_` (None for arrays) makes numbers of a table.
    """

    encoder_: TableEncoder | None = None
    categorical_features: Sequence[str | int] | None = None
    _constant_columns: tuple[str, ...] = ()  # the same in all training rows, or empty
    _constants: np.ndarray | None = None  # values of such columns in the matrix; NaN in all others
    _counted_rows: np.ndarray | None = None  # numbers of the training rows among all that were given; None for all
    _told: list[str] | None = None  # warnings of new rows, where they are given once
    _for_new_holes = "the prediction is that of a typical value, and as sure as if the cell were known"

    @np.errstate(over="ignore", invalid="ignore")  # of sums of huge numbers, by which scikit-learn looks for NaN
    def _read(self, X: Any, y: Any = NO_TARGETS, *, reset: bool, y_numeric: bool = False) -> Any:
        """Return rows (`N x D`, float64) and, if given, targets; in new rows missing cells of constants are filled."""
        _check_rows(X)
        if has_targets := not (isinstance(y, str) and y == NO_TARGETS):
            check_targets(y, y_numeric)
            y = composed(as_pandas(y))
            is_text = y_numeric and (cells := np.asarray(y)).dtype.kind in "UT" and cells.ndim == 1
            y = cells.astype(np.float64) if is_text else y
        if reset:
            vars(self).pop("encoder_", None)
        options: dict[str, Any] = {"y_numeric": y_numeric} if has_targets else {}
        if (is_table(X) or self.categorical_features is not None) if reset else self.encoder_ is not None:
            matrix = self._encoded(X, reset)
            options |= {"dtype": np.float64, "ensure_all_finite": "allow-nan", "estimator": self}
            found = check_X_y(matrix, y, **options) if has_targets else check_array(matrix, **options)
        else:
            if not self._takes_missing_values:
                _refuse_holes(X, self)
            options |= {"dtype": np.float64, "ensure_all_finite": "allow-nan" if self._takes_missing_values else True}
            found = validate_data(self, X, y, reset=reset, **options)
        rows = found[0] if has_targets else found
        if reset:
            self._warn_of_holes(rows, found[1] if y_numeric else None)
            self._say_what_is_constant(rows)
        elif self._constants is not None:
            rows = np.where(np.isnan(rows), self._constants, rows)
        return (rows, found[1]) if has_targets else rows

    def _read_unlabelled(self, unlabelled: Any) -> np.ndarray | None:
        """Return more rows without targets (`M x D`), after those of training were read."""
        if unlabelled is None:
            return None
        check_takes_unlabelled(getattr(self, "kernel", None))
        rows = self._read(unlabelled, reset=False)
        check_magnitudes(rows, "unlabelled")
        return rows

    @property
    def _takes_missing_values(self) -> bool:
        """Whether NaN is accepted in arrays: trees take missing values; a kernel that is built checks rows itself."""
        kernel = getattr(self, "kernel", None)
        return name_of(kernel) in ("auto", "forest", OF_STATE) or sees_raw_columns(kernel)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # that of BaseEstimator
        tags.input_tags.allow_nan = self._takes_missing_values
        return tags

    def _encoded(self, X: Any, reset: bool) -> np.ndarray:
        X = as_table(X, () if reset else getattr(self, "feature_names_in_", ()))
        validate_data(self, X, skip_check_array=True, reset=reset)
        if not reset:
            assert self.encoder_ is not None
            return self.encoder_.transform(X)
        self.encoder_ = TableEncoder(self.categorical_features)
        matrix = self.encoder_.fit_transform(X)
        for message in self.encoder_.messages_:
            logger.info("%s", message)
        return matrix

    def _warn_of_holes(self, rows: np.ndarray, y: np.ndarray | None) -> None:
        kinds = {} if self.encoder_ is None else self.encoder_.kinds_
        told = {} if y is None else {"the target": like_holes(y)}
        for number, name in enumerate(model_column_names(self)):
            if number not in self._categories:
                told[f"column {name!r}"] = like_holes(rows[:, number], kinds.get(name) == DATES)
        remedy = "make them NaN, X.mask(X.isin([...]))" if kinds else "X[numpy.isin(X, [...])] = numpy.nan"
        warn_of_holes(told, remedy + ", and leave rows without a target out" * bool(told.get("the target")))

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
            told = names_of(self._constant_columns)
            logger.info("columns that are the same in all rows, empty or ids, tell nothing: %s", told)

    @property
    def _categories(self) -> dict[int, int]:
        categories = {} if self.encoder_ is None else self.encoder_.categories_
        return {column: len(levels) for column, levels in categories.items()}

    def _warn_of_new_holes(self, x: Tensor, train_x: Tensor) -> None:
        """Warn of missing cells in columns of numbers where no training row missed any: the model cannot use them."""
        is_new = x.isnan().any(0)
        is_new[list(self._categories)] = False
        if not bool(is_new.any()) or any("cells are missing" in each for each in self._told or ()):
            return
        is_new &= ~decode_missing(train_x).isnan().any(0)
        if new := [name for name, one_is_new in zip(model_column_names(self), is_new.tolist()) if one_is_new]:
            told = f"cells are missing in {names_of(new)}, where no training row missed any: {self._for_new_holes}"
            message = f"{told}. Fit to rows that miss some as well, or drop such rows"
            warnings.warn(message, stacklevel=level_of_caller())
            if self._told is not None:
                self._told.append(message)


class ReadsNumbers(ReadsTables):
    """A base of estimators that compare numbers: they see the `NumberView` of a table."""

    _view: NumberView | None = None

    def _read_numbers(self, X: Any, y: Any = NO_TARGETS, *, reset: bool) -> Any:
        """Read as :meth:`_read`, without NaN; after a reset :meth:`_fit_view` must follow."""
        found = self._read(X, y, reset=reset)
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


def warn_of_holes(told: Mapping[str, list[str]], remedy: str) -> None:
    if any(told.values()):
        found = "; ".join(f"in {where} {' and '.join(cells)}" for where, cells in told.items() if cells)
        message = f"{found}, far from all others: if they stand for missing cells, {remedy}"
        warnings.warn(message, MisreadColumnWarning, stacklevel=level_of_caller())


def _check_rows(X: Any) -> None:
    refuse_mask(X, "X", "give X.filled(numpy.nan), with missing cells")
    if issparse(X):
        size = X.shape[0] * X.shape[-1] * 8 / 2**30
        raise TypeError(
            f"Sparse data was passed for X, but dense data is required: with its zeros it takes {size:.3g} GiB; give "
            "X.toarray(), or the categories of one-hot columns"
        )
    if hasattr(X, "iloc") and X.ndim == 1:
        raise ValueError(
            "Expected 2D array, got 1D array instead: expected a table, got a Series; give X.iloc[[0]] for a row of a "
            "DataFrame and X[['name']] for a column. Reshape your data by X.to_numpy().reshape(-1, 1) if it is an array"
        )
    told = ""
    if getattr(getattr(X, "dtype", None), "names", None):
        told = "a structured array: give pandas.DataFrame(X)"
    elif getattr(X, "is_meta", False):
        told = "a tensor of the meta device: give one that holds numbers"
    elif hasattr(X, "collect") and not hasattr(X, "__len__"):
        told = "a lazy frame: give X.collect()"
    elif isinstance(X, str | os.PathLike):
        told = f"the path {os.fspath(X)!r}: give pandas.read_parquet(path), or call fit_chunks(path, 'target')"
    elif getattr(getattr(X, "columns", None), "is_unique", True) is False:
        told = f"two columns called {X.columns[X.columns.duplicated()][0]!r}: rename one, or leave it out"
    if told:
        raise ValueError(f"expected an array or a table of rows, got {told}")


def _refuse_holes(X: Any, estimator: ReadsTables) -> None:
    """Refuse arrays with missing values where numbers are compared; other errors are left to scikit-learn."""
    try:
        values = np.asarray(X)
    except (TypeError, ValueError, RuntimeError):  # for scikit-learn to refuse
        return
    if values.dtype.kind != "f" or values.ndim != 2 or not np.isnan(values).any():
        return
    row, column = np.argwhere(np.isnan(values))[0]
    kernel = getattr(estimator, "kernel", None)
    shown = type(estimator).__name__ + (f" with kernel={kernel!r}" if isinstance(kernel, str) else "")
    raise ValueError(
        f"Input X contains NaN: {np.isnan(values).any(1).sum()} of {len(values)} rows miss values, the first row "
        f"{row}, in column {column}: {shown} takes missing cells of data frames only, so give pandas.DataFrame(X), "
        "drop or impute these rows, or use kernel='forest' or 'auto'"
    )


def check_targets(y: Any, are_numbers: bool) -> None:
    """Refuse missing targets, text, dates and durations for numbers, and text among other classes."""
    refuse_mask(y, "y", "leave these rows out, X[~y.mask] and y[~y.mask]")
    is_arrow, y = hasattr(y, "is_valid"), as_pandas(y)
    values = np.asarray(y) if hasattr(y, "dtype") or hasattr(y, "iloc") or isinstance(y, list) else np.empty(0)
    if are_numbers:
        _refuse_times(values)
    if values.dtype.kind not in "fOUT" or values.ndim != 1:
        return
    missing = np.array([is_missing(value) for value in values]) if values.dtype.kind == "O" else values != values
    if missing.any():
        of_arrow, of_others = "y.filter(keep), keep = numpy.asarray(y.is_valid())", "y[keep], keep = ~pandas.isna(y)"
        told = f"Of {len(values)} targets {int(missing.sum())} are missing, the first in row {int(missing.argmax())}"
        keep = of_arrow if is_arrow else of_others
        raise ValueError(f"Input y contains NaN. {told}: leave these rows out, X[keep] and {keep}")
    if are_numbers and values.dtype.kind != "f" and (odd := told_of_odd(values)):
        raise ValueError(f"expected targets that are numbers: {odd}")
    if not are_numbers and len({isinstance(value, str) for value in values.tolist()}) > 1:
        raise ValueError("expected classes of one kind, got some that are text: give y.astype(str)")


def _refuse_times(targets: np.ndarray) -> None:
    if targets.dtype.kind in "mM":
        raise ValueError(
            f"expected targets that are real numbers, got {targets.dtype.name}: give durations as days, y / "
            "numpy.timedelta64(1, 'D'), and dates as durations, y - y.min()"
        )


def has_several(y: Any) -> bool:
    shape = getattr(y, "shape", None)
    if shape is None and isinstance(y, Sequence) and len(y) and isinstance(y[0], Sequence | np.ndarray):
        shape = (len(y), len(y[0])) if not isinstance(y[0], str) else (len(y),)
    return shape is not None and len(shape) == 2 and shape[1] > 1


def name_of_target(y: Any) -> list[str] | None:
    """Return the name of one target, such as a Series, in a list; None if it has none."""
    name = getattr(y, "name", None)
    return [composed(str(name))] if isinstance(name, str | int) and name != "" else None


def read_targets(X: Any, y: Any) -> tuple[NDArray[np.float64], list[str] | None]:
    """Return several targets as `N x T` numbers, NaN for missing entries, and their names where y is a data frame."""
    values, names = target_values(y), [composed(str(name)) for name in y.columns] if hasattr(y, "columns") else None
    check_consistent_length(*X.values() if isinstance(X, Mapping) else [X], values)
    numbered = [f"y[:, {number}]" for number in range(values.shape[1])]
    check_entries(~np.isnan(values), names or numbered, "drop this target, which nothing can be learned about")
    return values, names


def check_entries(known: NDArray[np.bool_], names: Sequence[str], remedy: str) -> None:
    """Refuse targets with fewer than two known entries (`N x T`), which have no variance."""
    for name, count in zip(names, known.sum(0)):
        if count < 2:
            raise ValueError(f"expected two known entries or more of every target, got {count} of {name}: {remedy}")


def target_values(y: Any) -> NDArray[np.float64]:
    """Return several targets (`N x T`, an array, data frame or list of rows) as numbers, NaN for missing entries."""
    refuse_mask(y, "y", "give y.filled(numpy.nan), with missing entries")
    values = y.to_numpy() if hasattr(y, "columns") and hasattr(y, "to_numpy") else np.asarray(y)
    if values.dtype.kind == "c":
        raise ValueError("Complex data not supported: expected targets that are real numbers")
    _refuse_times(values)
    if values.dtype.kind == "O":
        values = np.where(np.vectorize(is_missing, otypes=[bool])(values), np.nan, values)
    if values.dtype.kind in "OUT" and (odd := told_of_odd(values, "row {0} of y[:, {1}]")):
        raise ValueError(f"expected targets that are numbers: {odd}")
    values = np.ascontiguousarray(values, dtype=np.float64)  # the memory layout changes the rounding of sums
    if np.isinf(values).any():
        raise ValueError("Input y contains infinity: expected finite targets, or NaN for missing ones; drop the others")
    return values


def known_rows(y: NDArray[np.float64]) -> NDArray[np.bool_]:
    known = np.asarray(~np.isnan(y).all(1))
    if not known.all():
        told = f"{int((~known).sum())} of {len(y)} rows are left out, the first of them row {int((~known).argmax())}"
        warnings.warn(f"{told}: none of their {y.shape[1]} targets is known", stacklevel=level_of_caller())
    return known


class CountedRows(NamedTuple):
    """Hold rows that a model learns from, before or after they are read."""

    X: Any
    y: Any
    weights: RowWeights | None  # None where all are 1
    numbers: np.ndarray | None  # of the rows among all that were given; None where no row is left out

    def without_copies(self, *, are_classes: bool = False) -> CountedRows:
        """Return the rows without copies, with a warning, where copies would count as rows without noise."""
        rows = rows_without_copies(self.X, self.y, are_classes=are_classes)
        if rows is None:
            return self
        warnings.warn(told_of_copies(len(self.X) - len(rows), len(self.X)), stacklevel=level_of_caller())
        return self._of_rows(rows)

    def besides(self, kept: CountedRows) -> CountedRows:
        rows = np.arange(len(self.y))
        if kept.numbers is None:
            return self._of_rows(rows[:0])
        given = rows if self.numbers is None else self.numbers
        return self._of_rows(np.flatnonzero(~np.isin(given, kept.numbers)))

    def _of_rows(self, rows: np.ndarray) -> CountedRows:
        numbers = rows if self.numbers is None else self.numbers[rows]
        return CountedRows(self.X[rows], self.y[rows], some_of(self.weights, rows), numbers)

    def blocks(self, blocks: Blocks | None) -> Blocks | None:
        if blocks is not None:
            blocks = blocks if self.numbers is None else blocks.of_rows(self.numbers)
            blocks.check()
        return blocks


def counted_rows(X: Any, y: Any, weights: np.ndarray | None) -> CountedRows:
    """Return the rows of weight above 0, as they were given; nothing is learned from the others, not even levels."""
    if weights is None:
        return CountedRows(X, y, None, None)
    numbers = np.flatnonzero(weights)
    row_weights = None if (weights[numbers] == 1).all() else RowWeights.of(torch.from_numpy(weights[numbers]))
    if len(numbers) == len(weights):
        return CountedRows(X, y, row_weights, None)
    if isinstance(X, Mapping):
        some: Any = {name: _safe_indexing(values, numbers) for name, values in X.items()}
    else:
        check_consistent_length(X, y)
        some = _safe_indexing(X, numbers)
    return CountedRows(some, _safe_indexing(y, numbers), row_weights, numbers)
