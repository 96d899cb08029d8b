"""`TableEncoder`: tables with text, categories, dates and missing cells as one matrix of numbers."""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.tables.arrays import as_array
from gpytorch_partition.tables.cells import (
    CATEGORY,
    DATES,
    EMPTY,
    FEWEST_EXPLAINED,
    ID,
    LEFT_OUT,
    LEVELS,
    NUMBERS,
    ORDERED,
    SPACES,
    TEXT,
    UNIT,
    Cells,
    Level,
    explains,
    names_of,
    plain_level,
    read_cells,
)
from gpytorch_partition.tables.date_texts import ISO, hint_of_dates
from gpytorch_partition.tables.dated_cells import as_dates, as_dates_of_fit
from gpytorch_partition.tables.ids import are_ids
from gpytorch_partition.tables.number_view import MOST_ONE_HOT

logger = logging.getLogger(__name__)

_DAY, _HOUR = np.timedelta64(1, "D"), np.timedelta64(1, "h")
_CALENDAR = ("month", "day_of_year", "weekday", "hour")  # names of the calendar parts of dates
_MOST_CATEGORIES_SAID = 5
_WRITTEN_NUMBER = re.compile(
    r"\(?[+\u2212-]?\s*[$€£¥]?\s*[+\u2212-]?(\d+|\d{1,3}([., '\u2019\u00a0\u202f]\d{3})+)([.,]\d+)?\s*[%$€£¥]?\)?"
    rf"(?:[{SPACES}](?P<unit>{UNIT}))?"
)


class MisreadColumnWarning(UserWarning):
    """
    A column of a table holds numbers as text, which are categories unless it is converted, or dates of which days and
    months may be the other way round.

    Convert the column before `fit`, by `pandas.to_numeric` or by `pandas.to_datetime` with a `format`; of numbers that
    are names, such as codes of places, say so by `.astype("category")`.
    """


class _Column(NamedTuple):
    """What `fit` learned of a column of the table."""

    name: str
    kind: str
    levels: list[Level] | None = None  # of text, categories and ordered categories
    parts: tuple[str, ...] = ()  # of dates: the calendar parts that vary
    zone: str | None = None  # of dates with a time zone
    notation: str = ""  # of dates and times of day that came as text


class TableEncoder(TransformerMixin, BaseEstimator):
    r"""
    One matrix of float64 numbers (the *table matrix*, `N x D'`) from a table of columns of any kind.

    Use it to give a table to a kernel (`RandomForestKernel(x, y, categories=[...])`). All estimators of this package
    read tables by it themselves.

    - Numbers and booleans (0 and 1) stay as they are; pandas' nullable dtypes and objects that are all numbers are
      numbers, durations numbers of days, times of day numbers of hours.
    - Text and categories become codes 0 ... C - 1 of their C levels: text in alphabetical order, pandas categories in
      the order in which they are declared, with levels that no row has. Codes stand for names and have no order:
      :attr:`categories_` says which columns hold them. Text that looks like numbers is text, and a warning says so
      where there are many. Ordered categories are numbers, the ranks of their levels.
    - Dates become days since 1970-01-01 (with a fraction) and those of month, day of year, weekday (Monday is 0) and
      hour that vary in `fit`, on the clock of their time zone. Text is dates, or times of day, if all cells are (or all
      but a few among many, which are missing then): :mod:`gpytorch_partition.tables.date_texts` knows the formats. A
      warning says so where day and month could be the other way round; new rows are read in the order of `fit`.
    - Where there are more than ten levels, one that a single row has is a missing cell: trees would split that row off
      by its own target, and learn nothing for the new levels of other rows, which are missing cells as well.
    - A missing cell (None, NaN, NA, NaT) is NaN, and so is a level that `fit` did not see, which the log (level INFO)
      says once. A column of which every cell is missing is left out.
    - A column of as many different texts as rows (20 or more; copies of rows do not count) is taken for an id, and left
      out with a warning.

    Costs a look-up per cell: a second per million texts.

    :param categorical_features: Names (or numbers, counted from 0, or a flag for each column) of columns to be taken as
        categories although they hold numbers or have an order. (Default: None.)

    Fitted attributes:

    - `categories_`: the levels of each column of categories, by its number in the matrix.
    - `messages_`: what was done that one should know, a sentence each.
    - `n_features_in_`, `feature_names_in_`: of the table, as in scikit-learn.

    Example:
        >>> table = {"size": np.array([1.5, np.nan]), "color": np.array(["red", "blue"])}
        >>> encoder = TableEncoder().fit(table)
        >>> encoder.transform(table)
        array([[1.5, 1. ],
               [nan, 0. ]])
        >>> encoder.categories_
        {1: ['blue', 'red']}
        >>> encoder.transform({"size": np.array([2.0]), "color": np.array(["green"])})
        array([[ 2., nan]])
    """

    def __init__(self, categorical_features: Sequence[str | int] | None = None) -> None:
        self.categorical_features = categorical_features

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """
        Learn the columns and their levels.

        :param X: A pandas DataFrame (or another that has names and columns, as Polars' and pyarrow's), an array
            (`N x D`, also of objects), lists of rows, or a mapping from names to 1-D arrays.
        :param y: Ignored.
        :return: The encoder itself.
        :raises TypeError: If X is sparse, or a column holds what is no number, text, category or date.
        :raises ValueError: If X is no table, a column holds infinity, no column has a value, or `categorical_features`
            names a column that does not exist.
        """
        self._fitted_matrix(X)
        return self

    @all_or_nothing
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """The table matrix (`N x D'`) of the table that is learned; parameters are those of :meth:`fit`."""
        return self._fitted_matrix(X)

    def transform(self, X: Any) -> np.ndarray:
        """
        The table matrix of other rows.

        :param X: A table with the same columns: the same names in the same order, as scikit-learn wants them (a mapping
            has no order).
        :return: `N x D'` (float64), NaN where a cell is missing or its level unknown.
        :raises ValueError: If columns are missing, too many or in another order, or one holds infinity.
        :raises TypeError: If a column holds another kind of values than in `fit`.
        :raises sklearn.exceptions.NotFittedError: Before :meth:`fit`.
        """
        check_is_fitted(self, "_columns")
        return self._transformed(self._checked(X, reset=False))

    def transform_checked(self, X: Any) -> np.ndarray:
        """The same of a table whose names an estimator has checked, as it speaks of itself in errors."""
        return self._transformed(self._checked_mapping(X, False) if isinstance(X, Mapping) else _columns_of(X))

    def read_column(self, number: int, values: Any) -> np.ndarray:
        """
        A column of other rows as `fit` has read it: numbers, dates or levels.

        :param number: Its number in the table.
        :param values: Its cells.
        :raises TypeError: If they are of another kind than in `fit`.
        :raises sklearn.exceptions.NotFittedError: Before :meth:`fit`.

        Example:
            >>> encoder = TableEncoder().fit({"at": np.array(["13:45", "7:30"])})
            >>> encoder.read_column(0, np.array(["6:15 PM"]))
            array([18.25])
        """
        check_is_fitted(self, "_columns")
        column = self._columns[number]
        return _same_kind(read_cells(values, column.name, column.zone), column).values

    def _transformed(self, table: dict[str, Any]) -> np.ndarray:
        blocks = []
        for column, values in zip(self._columns, table.values()):
            if column.kind not in LEFT_OUT:
                cells = _same_kind(read_cells(values, column.name, column.zone), column)
                blocks.append(_encoded(column, cells))
                self._say_once(_said_of_unseen(column, cells, blocks[-1]))
        return np.concatenate(blocks, axis=1)

    def _say_once(self, messages: list[str]) -> None:
        """In the log, since `fit`: tables of the same levels may come again and again, as in permutations."""
        for message in messages:
            if message not in self._said:
                self._said = self._said | {message}
                logger.info("%s", message)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """
        The names of the columns of the matrix: those of the table, and `date_month` for a part of a date.

        :param input_features: Ignored, as the names are known.
        """
        check_is_fitted(self, "_columns")
        return np.array([name for column in self._columns for name in _names(column)], dtype=object)

    @property
    def categories_(self) -> dict[int, list[Level]]:
        """The levels of each column of categories, by its number in the matrix."""
        check_is_fitted(self, "_columns")
        columns = [column for column in self._columns for _ in _names(column)]
        return {
            number: list(column.levels or [])
            for number, column in enumerate(columns)
            if column.kind in (TEXT, CATEGORY)
        }

    @property
    def kinds_(self) -> list[str]:
        """The kind of each column of the table, as :mod:`gpytorch_partition.tables.cells` calls them."""
        check_is_fitted(self, "_columns")
        return [column.kind for column in self._columns]

    @property
    def input_names_(self) -> list[str]:
        """The names of the columns of the table."""
        check_is_fitted(self, "_columns")
        return [column.name for column in self._columns]

    @property
    def sources_(self) -> list[int]:
        """For each column of the matrix, the number of the column of the table that it was made from."""
        check_is_fitted(self, "_columns")
        return [number for number, column in enumerate(self._columns) for _ in _names(column)]

    # Tensors and plain values.

    def to_state(self) -> dict[str, Any]:
        """
        The fitted encoder as plain values.

        Example:
            >>> encoder = TableEncoder().fit({"color": np.array(["red", "blue"])})
            >>> TableEncoder.from_state(encoder.to_state()).categories_
            {0: ['blue', 'red']}
        """
        check_is_fitted(self, "_columns")
        names = getattr(self, "feature_names_in_", None)
        return {
            "columns": [{**column._asdict(), "parts": list(column.parts)} for column in self._columns],
            "feature_names": None if names is None else [str(name) for name in names],
            "messages": list(self.messages_),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TableEncoder:
        """
        The encoder that :meth:`to_state` described, which has an example.

        :raises KeyError: If a part is missing.
        """
        encoder = cls()
        encoder._columns = [_Column(**{**column, "parts": tuple(column["parts"])}) for column in state["columns"]]
        encoder.n_features_in_ = len(encoder._columns)
        if state["feature_names"] is not None:
            encoder.feature_names_in_ = np.array(state["feature_names"], dtype=object)
        encoder.messages_ = list(state["messages"])
        return encoder

    # Inside.

    _columns: list[_Column]
    _said: frozenset[str] = frozenset()  # what the log was told of new rows

    def _fitted_matrix(self, X: Any) -> np.ndarray:
        table = self._checked(X, reset=True)
        chosen = self._chosen(list(table))
        cells = [
            (_as_category if number in chosen else _with_dates)(read_cells(values, name), name)
            for number, (name, values) in enumerate(table.items())
        ]
        self._columns = [
            _learned(name, each) if number in chosen else _learned_as_read(name, each, cells)
            for number, (name, each) in enumerate(zip(table, cells))
        ]
        self._said, read = frozenset(), list(zip(self._columns, cells))
        self.messages_ = [message for column, each in read for message in _said(column, each)]
        blocks = [_encoded(column, each) for column, each in read if column.kind not in LEFT_OUT]
        if not blocks:
            raise ValueError(
                "expected a column with a value that other rows may have, got missing cells and ids (as many different "
                "texts as rows) only: make columns that are no ids categories, by .astype('category')"
            )
        return np.concatenate(blocks, axis=1)

    def _checked(self, X: Any, reset: bool) -> dict[str, Any]:
        """The columns by name; names and their number are checked, and remembered if reset."""
        if isinstance(X, Mapping):
            return self._checked_mapping(X, reset)
        if issparse(X):
            raise TypeError(
                "expected a dense table, got a sparse matrix: its rows would be held with their zeros, 8 bytes each; "
                "give X.toarray() if they fit into memory, and categories as a column each instead of one-hot columns"
            )
        X = X if hasattr(X, "columns") else _as_rows(X)
        validate_data(self, X, skip_check_array=True, reset=reset)
        columns = _columns_of(X)
        if not columns or not len(next(iter(columns.values()))):
            raise ValueError(
                f"Found array with {0 if columns else X.shape[0]} sample(s) and {len(columns)} feature(s) while a "
                "minimum of 1 is required."
            )
        return columns

    def _checked_mapping(self, X: Mapping[Any, Any], reset: bool) -> dict[str, Any]:
        columns = {str(name): _as_column(values, name) for name, values in X.items()}
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) != 1 or not next(iter(lengths.values())):
            raise ValueError(f"expected columns of the same length, of one row or more, got the lengths {lengths}")
        if reset:
            self.feature_names_in_, self.n_features_in_ = np.array(list(columns), dtype=object), len(columns)
        names = [column.name for column in self._columns] if not reset else list(columns)
        if set(names) != set(columns):
            missing, more = [n for n in names if n not in columns], [n for n in columns if n not in names]
            raise ValueError(
                f"expected the columns that fit was given, got none of the name(s) {names_of(missing)}"
                if missing
                else f"expected the columns that fit was given, got unknown one(s): {names_of(more)}; drop them"
            )
        return {name: columns[name] for name in names}

    def _chosen(self, names: list[str]) -> set[int]:
        """Numbers of the columns that are to be categories."""
        given = self.categorical_features
        if given is not None and (isinstance(given, str) or not isinstance(given, Iterable)):
            raise ValueError(f"expected categorical_features as a list of names or numbers of columns, got {given!r}")
        wanted = [] if given is None else list(given)
        if wanted and all(isinstance(one, bool | np.bool_) for one in wanted):
            if len(wanted) != len(names):
                raise ValueError(f"expected categorical_features as {len(names)} flags, got {len(wanted)}")
            return {number for number, is_chosen in enumerate(wanted) if is_chosen}
        known = {name: number for number, name in enumerate(names)}
        numbers = {int(one) if isinstance(one, Integral) else known.get(str(one), -1) for one in wanted}
        if unknown := [one for one in wanted if not isinstance(one, Integral) and one not in known]:
            raise ValueError(f"expected categorical_features among {names_of(names)}, got {names_of(unknown)}")
        if not numbers <= set(range(len(names))):
            raise ValueError(f"expected categorical_features from 0 to {len(names) - 1}, got {sorted(numbers)}")
        return numbers

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = True
        return tags


def is_table(X: Any) -> bool:
    """
    Whether X has columns of their own kinds (a data frame, a mapping), or cells of any kind (objects, text, dates), so
    that a :class:`TableEncoder` is to read it; numbers in one array need none.
    """
    if isinstance(X, Mapping) or hasattr(X, "columns"):
        return True
    if issparse(X):
        return False
    try:
        rows = np.asarray(X)
    except (TypeError, ValueError, RuntimeError):  # for scikit-learn to refuse
        return False
    return rows.ndim == 2 and rows.dtype.kind in "OUMmS"


def _as_rows(X: Any) -> np.ndarray:
    rows = np.asarray(X)
    if rows.ndim == 2 and rows.dtype.kind == "U" and not isinstance(X, np.ndarray):
        rows = np.array(X, dtype=object)  # of a list NumPy makes numbers text
    if rows.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {rows.ndim}D array instead: expected a table, N rows of D columns. Reshape your "
            "data by X.reshape(-1, 1) if it is a single column"
        )
    return rows


def _columns_of(X: Any) -> dict[str, Any]:
    """The columns by name, as arrays or pandas' Series."""
    if isinstance(X, np.ndarray):
        return {f"x{number}": X[:, number] for number in range(X.shape[1])}
    names = list(X.column_names if hasattr(X, "column_names") else X.columns)
    if len(set(map(str, names))) < len(names):
        raise ValueError(f"expected columns of different names, got {names_of(names)}")
    if hasattr(X, "iloc"):
        return {str(name): X.iloc[:, number] for number, name in enumerate(names)}
    return {str(name): _as_column(X[name], name) for name in names}


def _as_column(values: Any, name: Any) -> Any:
    """A pandas Series as it is, anything else as an array."""
    values = values if hasattr(values, "iloc") else as_array(values)
    if values.ndim != 1:
        raise ValueError(f"expected column {str(name)!r} as a 1-D array, got {values.ndim} dimensions")
    return values


def _as_category(cells: Cells, name: str) -> Cells:
    """Numbers as levels, and levels without their order."""
    if cells.kind == ORDERED:
        return cells._replace(kind=CATEGORY)
    if cells.kind == NUMBERS:
        _check_distinguishable(name, cells.values)
        levels = [None if value != value else plain_level(_whole(value), name) for value in cells.values.tolist()]
        return Cells(CATEGORY, np.array(levels, dtype=object))
    if cells.kind == DATES:
        raise ValueError(f"expected numbers, text or categories in {name!r} of categorical_features, got dates")
    return cells


def _with_dates(cells: Cells, name: str) -> Cells:
    """Text that is dates or times of day as such."""
    if cells.kind != TEXT:
        return cells
    cells, warning = as_dates(cells, name)
    if warning:
        warnings.warn(warning, MisreadColumnWarning, stacklevel=level_of_caller())
    return cells


def _check_distinguishable(name: str, values: np.ndarray) -> None:
    if (largest := np.nanmax(np.abs(values), initial=0.0)) >= 2**53:
        raise ValueError(
            f"expected numbers below 2**53 in {name!r} of categorical_features, got {largest:.17g}: float64 cannot "
            "tell such numbers apart; make the column text"
        )


def _whole(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _learned(name: str, cells: Cells) -> _Column:
    if cells.kind == NUMBERS:
        _check_finite(name, cells.values)
    if cells.kind == DATES:
        parts = _calendar(cells.values)
        varying = tuple(part for part in _CALENDAR if len(np.unique(parts[part][~np.isnan(parts[part])])) > 1)
        return _Column(name, DATES, parts=varying, zone=cells.zone, notation=cells.notation)
    levels = cells.levels
    if cells.kind in (TEXT, CATEGORY):
        levels = _levels_to_learn(cells)
    return _Column(name, cells.kind, levels, notation=cells.notation)


def _levels_to_learn(cells: Cells) -> list[Level]:
    """All levels; of more than ten, those of several rows, so that a level of one row is what a new level will be."""
    counts = Counter(cell for cell in cells.values.tolist() if cell is not None)
    levels = sorted(counts) if cells.levels is None else cells.levels
    common = [level for level in levels if counts[level] > 1]
    return common if common and len(counts) > MOST_ONE_HOT else levels


def _check_finite(name: str, values: np.ndarray) -> None:
    if infinite := int(np.isinf(values).sum()):
        raise ValueError(
            f"expected finite numbers, got infinity in {infinite} cell(s) of column {name!r}: leave cells empty (NaN) "
            "where the value is not known, or drop the rows"
        )


def _same_kind(cells: Cells, column: _Column) -> Cells:
    """Cells of new rows, if they are of the kind that the column had in `fit`; text as its dates."""
    if cells.kind == TEXT and column.zone is None and (column.notation or column.kind == DATES):
        cells = as_dates_of_fit(cells, column.notation or ISO)
    if cells.kind == EMPTY or cells.kind == column.kind or (cells.kind in LEVELS and column.kind in LEVELS):
        _check_comparable(cells, column)
        if column.kind == DATES and cells.kind == DATES and (column.zone is None) != (cells.zone is None):
            raise TypeError(f"expected dates with a time zone in both fit and here, or in neither, in {column.name!r}")
        return cells
    has_numbers = any(not isinstance(level, str) for level in column.levels or [])
    if cells.kind == NUMBERS and column.kind in LEVELS and has_numbers:
        return _as_category(cells, column.name)
    written = f" ({column.notation})" if column.notation else ""
    first = next((cell for cell in cells.values.tolist() if cell is not None), None)
    example = f" ({first!r:.50})" if cells.kind == TEXT else ""
    raise TypeError(
        f"expected {column.kind}{written} in column {column.name!r}, as in fit, got {cells.kind}{example}: convert the "
        "column, to the dtype that it had in the table given to fit"
    )


def _check_comparable(cells: Cells, column: _Column) -> None:
    """Refuse text where levels were numbers, or numbers where they were text: every level would be unknown."""
    if cells.kind not in LEVELS or not column.levels:
        return
    here, before = ({isinstance(one, str) for one in some if one is not None} for some in (cells.values, column.levels))
    if here and not here & before:
        got, wanted = ("text", "numbers") if True in here else ("numbers", "text")
        raise TypeError(
            f"expected categories that are {wanted} in column {column.name!r}, as in fit, got {got}: convert the "
            "column, or no level would be known"
        )


def _encoded(column: _Column, cells: Cells) -> np.ndarray:
    """The columns of the matrix (`N x k`)."""
    if cells.kind == EMPTY:
        return np.full((len(cells.values), len(_names(column))), np.nan)
    if column.kind == NUMBERS:
        _check_finite(column.name, cells.values)
        return cells.values[:, None]
    if column.kind == DATES:
        parts = _calendar(cells.values)
        return np.stack([_days(cells.values), *(parts[part] for part in column.parts)], axis=1)
    codes = {level: float(code) for code, level in enumerate(column.levels or [])}
    return np.array([codes.get(level, np.nan) for level in cells.values.tolist()])[:, None]


def _names(column: _Column) -> list[str]:
    """The names of the columns of the matrix that a column of the table makes."""
    return [] if column.kind in LEFT_OUT else [column.name, *(f"{column.name}_{part}" for part in column.parts)]


def _days(dates: np.ndarray) -> np.ndarray:
    return (dates - np.datetime64(0, "us")) / _DAY


def _calendar(dates: np.ndarray) -> dict[str, np.ndarray]:
    """Month 1 ... 12, day of the year 1 ... 366, weekday 0 (Monday) ... 6, and hour with a fraction."""
    day, month, year = (dates.astype(f"datetime64[{unit}]") for unit in "DMY")
    since = (day - np.datetime64("1970-01-01", "D")) / _DAY
    parts = {
        "month": (month - year.astype("datetime64[M]")) / np.timedelta64(1, "M") + 1,
        "day_of_year": (day - year.astype("datetime64[D]")) / _DAY + 1,
        "weekday": (since + 3) % 7,  # the first of January 1970 was a Thursday
        "hour": (dates - day) / _HOUR,
    }
    return {name: np.where(np.isnat(dates), np.nan, part) for name, part in parts.items()}


def _said(column: _Column, cells: Cells) -> list[str]:
    """What one should know about a column."""
    found = [f"column {column.name!r}: {cells.note}"] if cells.note else []
    if column.kind == EMPTY:
        found.append(f"column {column.name!r} has no value and is left out")
    if column.kind == ID:
        found.append(_said_of_id(column.name, cells.values.tolist()))
    if column.kind == DATES:
        parts = ", ".join(["days since 1970-01-01", *column.parts])
        zone = f" on the clock of {column.zone}" if column.zone else ""
        found.append(f"column {column.name!r} holds dates: taken as {parts}{zone}")
    if column.kind == TEXT and column.levels:
        found += _said_of_text(column.name, column.levels)
    return found


def _said_of_unseen(column: _Column, cells: Cells, block: np.ndarray) -> list[str]:
    """What one should know about levels that `fit` did not see, and texts that are no dates."""
    if cells.notation and cells.note:
        return [f"column {column.name!r}: {cells.note}"]
    if column.levels is None or cells.kind == EMPTY:
        return []
    new = [value for value in cells.values[np.isnan(block[:, 0])].tolist() if value is not None]
    if not new:
        return []
    unseen = sorted(set(map(str, new)))
    some = names_of(unseen[:_MOST_CATEGORIES_SAID]) + (", ..." if len(unseen) > _MOST_CATEGORIES_SAID else "")
    return [f"column {column.name!r}: fit did not learn {some}: taken for missing cells ({len(new):,} in all)"]


def _said_of_id(name: str, levels: list[Level]) -> str:
    return (
        f"column {name!r} has as many different texts as rows, as an id has, which tells nothing about other rows: "
        "left out; .astype('category') keeps it, or categorical_features of PartitionGPRegressor"
        + hint_of_dates([str(level) for level in levels])
    )


def _said_of_text(name: str, levels: list[Level]) -> list[str]:
    if all(map(_looks_like_a_number, levels)):
        return [f"column {name!r} holds numbers as text: taken as {len(levels)} categories; convert them if they count"]
    some = ", ".join(map(repr, levels[:_MOST_CATEGORIES_SAID])) + (", ..." if len(levels) > 5 else "")
    number = "a single category" if len(levels) == 1 else f"{len(levels)} categories"
    return [f"column {name!r} holds text: taken as {number} ({some})"]


def _learned_as_read(name: str, cells: Cells, table: list[Cells]) -> _Column:
    """A column that no one named as a category, with a warning where text is numbers, or ids, which are left out."""
    column = _learned(name, cells)
    if column.kind != TEXT:
        return column
    levels = column.levels or []
    if misread := _misread(name, levels):
        warnings.warn(misread, MisreadColumnWarning, stacklevel=level_of_caller())
    elif are_ids(cells.values, [each.values for each in table]):
        warnings.warn(_said_of_id(name, levels), UserWarning, stacklevel=level_of_caller())
        return _Column(name, ID)
    return column


def _misread(name: str, levels: list[Level]) -> str:
    """What is wrong where numbers came as text, as pandas reads them beside other texts, or with a unit."""
    numbers = [str(level) for level in levels if _looks_like_a_number(level)]
    units = {_unit_of(number) for number in numbers} - {""}
    if len(numbers) < FEWEST_EXPLAINED or not explains(len(numbers), len(levels)) or len(units) > 1:
        return ""
    others = [str(level) for level in levels if not _looks_like_a_number(level)]
    beside = f" beside {names_of(others[:_MOST_CATEGORIES_SAID])}" if others else ""
    return (
        f"column {name!r} holds numbers as text{beside}: taken as {len(levels)} categories. If they are numbers, "
        "convert the column by pd.to_numeric(..., errors='coerce') after decimal commas are points and "
        f"{names_of([*units]) if units else 'percent'} signs are off; if they are names, by .astype('category'), or "
        "name it in categorical_features of PartitionGPRegressor"
    )


def _unit_of(number: str) -> str:
    found = _WRITTEN_NUMBER.fullmatch(number.strip())
    return "" if found is None else found["unit"] or ""


def _looks_like_a_number(level: Level) -> bool:
    try:
        float(level)
    except ValueError:
        return _WRITTEN_NUMBER.fullmatch(str(level).strip()) is not None
    return True
