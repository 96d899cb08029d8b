"""`TableEncoder`, which turns tables with text, categories, dates and missing cells into one matrix of numbers."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.tables.cells import (
    CATEGORY,
    DATES,
    EMPTY,
    ID,
    LEFT_OUT,
    LEVELS,
    NUMBERS,
    ORDERED,
    TEXT,
    Cells,
    Level,
    as_array,
    names_of,
    read_cells,
)
from gpytorch_partition.tables.ids import are_ids
from gpytorch_partition.tables.notations import (
    ISO,
    NUMBER_NOTATIONS,
    OPEN,
    as_in_fit,
    as_read,
    written_in,
)
from gpytorch_partition.tables.number_view import MOST_ONE_HOT

logger = logging.getLogger(__name__)

_DAY, _HOUR = np.timedelta64(1, "D"), np.timedelta64(1, "h")
_CALENDAR = ("month", "day_of_year", "weekday", "hour")  # names of the calendar parts of dates
_MOST_CATEGORIES_SAID = 5


class MisreadColumnWarning(UserWarning):
    """
    A warning that numbers or dates written as text can be read in two ways: `1,234` with a decimal comma or with
    thousands, `03/04/2024` in March or in April.

    Convert the column before `fit`, by `pandas.to_numeric` or by `pandas.to_datetime` with a `format`, or give the
    :class:`TableEncoder` the decimal mark.
    """


class _Column(NamedTuple):
    name: str
    kind: str
    levels: list[Level] | None = None  # of text, categories and ordered categories
    parts: tuple[str, ...] = ()  # of dates: the calendar parts that vary
    zone: str | None = None  # of dates with a time zone
    notation: str = ""  # of numbers and dates that were text
    is_open: bool = False  # whether another notation fits as well
    note: str = ""


class TableEncoder(TransformerMixin, BaseEstimator):
    r"""
    An encoder of tables, with columns of any kind, as one matrix of float64 numbers (the *table matrix*, `N x D'`).

    Use it to give a table to a kernel (`RandomForestKernel(x, y, categories=[...])`). All estimators of this package
    use it for tables.

    - Numbers and booleans (0 and 1) are unchanged, also in pandas' nullable dtypes and as objects. Durations become
      days, times of day hours.
    - Text is read as numbers or dates if all cells of the column fit one notation (or all but a few among many, which
      become missing cells): `1234.5`, `1.234,50`, `$1,234`, `12 %`, `2024-02-03`, `03.02.2024`, `02-Feb-24`. New rows
      are read in the notation of `fit`. Where two notations fit, a warning says so; numbers then have the decimal mark
      of the other columns, and dates the day first.
    - Other text and categories become codes 0 ... C - 1 of their C levels: text in alphabetical order, pandas
      categories in the order in which they are declared, with levels that no row has. Codes have no order;
      :attr:`categories_` has the columns that hold them. Ordered categories become the ranks of their levels.
    - Dates become days since 1970-01-01 (with a fraction), and columns for month, day of year, weekday (Monday is 0)
      and hour where these vary in `fit`, on the clock of their time zone.
    - In a column of more than ten levels, a level of a single row is a missing cell. Trees would split that row off by
      its own target, and learn nothing for the new levels of other rows, which are missing cells as well.
    - A missing cell (None, NaN, NA, NaT) is NaN. So is a level that `fit` did not see, which is logged once (level
      INFO). A column without any value is left out.
    - A column of as many different texts as rows (20 or more; copies of rows do not count) is taken for an id, and left
      out with a warning.

    Costs a look-up per cell: a second per million texts.

    :param categorical_features: Names (or numbers, counted from 0, or a flag for each column) of columns of numbers or
        ordered levels to treat as categories. (Default: None.)
    :param decimal: The decimal mark of numbers written as text, `"."` or `","`. (Default: None, found for each column.)
    :param thousands: The mark between their thousands, `","`, `"."`, `" "` or `"'"`. (Default: None, any.)

    Fitted attributes:

    - `categories_`: the levels of each column of categories, by its number in the matrix.
    - `messages_`, `readings_`: notes on columns that are not plain numbers, and the reading of each column.
    - `n_features_in_`, `feature_names_in_`: the table's, as in scikit-learn.

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

    def __init__(
        self,
        categorical_features: Sequence[str | int] | None = None,
        decimal: str | None = None,
        thousands: str | None = None,
    ) -> None:
        self.categorical_features = categorical_features
        self.decimal = decimal
        self.thousands = thousands

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """
        Learn the columns and their levels.

        :param X: A pandas DataFrame (or another with named columns, as Polars' and pyarrow's), an array (`N x D`, also
            of objects), lists of rows, or a mapping from names to 1-D arrays.
        :param y: Ignored.
        :return: The encoder itself.
        :raises TypeError: If X is sparse, or a cell is no number, text, category or date.
        :raises ValueError: If X is no table, a column holds infinity, no column has a value, or `categorical_features`
            names a column that does not exist.
        """
        self._learn(X)
        return self

    @all_or_nothing
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Learn the columns as :meth:`fit` does, and return the table matrix (`N x D'`)."""
        pairs = zip(self._learn(X), self._columns)
        return np.concatenate(
            [_encoded(column, cells) for cells, column in pairs if column.kind not in LEFT_OUT], axis=1
        )

    @all_or_nothing
    def fit_read(self, X: Any) -> dict[str, np.ndarray]:
        """Learn the columns of a table, and return their values: numbers, dates, or levels and None."""
        return {column.name: cells.values for cells, column in zip(self._learn(X), self._columns)}

    def transform(self, X: Any) -> np.ndarray:
        """
        Return the table matrix of other rows.

        :param X: A table with the same column names in the same order (a mapping may have any).
        :return: `N x D'` (float64), NaN where a cell is missing or its level unknown.
        :raises ValueError: If columns are missing, too many or in another order, or one holds infinity.
        :raises TypeError: If a column holds another kind of values than in `fit`.
        :raises sklearn.exceptions.NotFittedError: Before :meth:`fit`.
        """
        check_is_fitted(self, "_columns")
        return self._transformed(self._checked(X, reset=False))

    def transform_checked(self, X: Any) -> np.ndarray:
        """Return the table matrix of a table whose names an estimator has checked; errors then name the estimator."""
        return self._transformed(self._checked_mapping(X, False) if isinstance(X, Mapping) else _columns_of(X))

    def read(self, X: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], list[str]]:
        """
        Return some columns of other rows as `fit` reads them, and notes on cells that became missing.

        :param X: Columns by name.
        :raises TypeError: If one is of another kind than in `fit`.
        :raises sklearn.exceptions.NotFittedError: Before :meth:`fit`.

        Example:
            >>> encoder = TableEncoder().fit({"price": np.array(["1.234,50 €", "7 €"])})
            >>> encoder.read({"price": np.array(["0,5", "none"])})
            ({'price': array([0.5, nan])}, [])
        """
        pairs = [(column, _of_fit(column, X[column.name])) for column in self._known if column.name in X]
        notes = [note for column, cells in pairs for note in _said_of_new(column, cells)]
        return {column.name: cells.values for column, cells in pairs}, notes

    def _transformed(self, table: dict[str, Any]) -> np.ndarray:
        """The matrix; each message is logged once, since tables of the same levels may come repeatedly."""
        pairs = [(each, _of_fit(each, values)) for each, values in zip(self._columns, table.values())]
        pairs = [(column, cells) for column, cells in pairs if column.kind not in LEFT_OUT]
        for message in [note for column, cells in pairs for note in _said_of_new(column, cells)]:
            if message not in self._said:
                self._said = self._said | {message}
                logger.info("%s", message)
        return np.concatenate([_encoded(column, cells) for column, cells in pairs], axis=1)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """
        Return the names of the columns of the matrix: those of the table, and `date_month` for a part of a date.

        :param input_features: Ignored.
        """
        return np.array([name for column in self._known for name in _names(column)], dtype=object)

    @property
    def categories_(self) -> dict[int, list[Level]]:
        """Return the levels of each column of categories, by its number in the matrix."""
        columns = [self._known[number] for number in self.sources_]
        return {number: list(each.levels or []) for number, each in enumerate(columns) if each.kind in (TEXT, CATEGORY)}

    @property
    def kinds_(self) -> dict[str, str]:
        """Return the kind of each column of the table by name, as :mod:`gpytorch_partition.tables.cells` calls them."""
        return {column.name: column.kind for column in self._known}

    @property
    def readings_(self) -> dict[str, str]:
        """Return a short description of how each column of the table was read, by name."""
        return {column.name: _reading(column) for column in self._known}

    @property
    def messages_(self) -> list[str]:
        """Return a sentence on each column that is not plain numbers."""
        return [f"column {name!r}: {reading}" for name, reading in self.readings_.items() if reading != NUMBERS]

    @property
    def sources_(self) -> list[int]:
        """Return, for each column of the matrix, the number of its column in the table."""
        return [number for number, column in enumerate(self._known) for _ in _names(column)]

    @property
    def _known(self) -> list[_Column]:
        check_is_fitted(self, "_columns")
        return self._columns

    # Tensors and plain values.

    def to_state(self) -> dict[str, Any]:
        """
        Return the fitted encoder as plain values.

        Example:
            >>> encoder = TableEncoder().fit({"color": np.array(["red", "blue"])})
            >>> TableEncoder.from_state(encoder.to_state()).categories_
            {0: ['blue', 'red']}
        """
        names = getattr(self, "feature_names_in_", None)
        return {
            "columns": [{**column._asdict(), "parts": list(column.parts)} for column in self._known],
            "feature_names": None if names is None else [str(name) for name in names],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TableEncoder:
        """
        Return the encoder of a state of :meth:`to_state`, which has an example.

        :raises KeyError: If a part is missing.
        """
        encoder = cls()
        encoder._columns = [_Column(**{**column, "parts": tuple(column["parts"])}) for column in state["columns"]]
        encoder.n_features_in_ = len(encoder._columns)
        if state["feature_names"] is not None:
            encoder.feature_names_in_ = np.array(state["feature_names"], dtype=object)
        return encoder

    # Inside.

    _columns: list[_Column]
    _said: frozenset[str] = frozenset()  # messages about new rows that were logged

    def _learn(self, X: Any) -> list[Cells]:
        table = self._checked(X, reset=True)
        chosen = self._chosen(list(table))
        cells = self._cells({name: read_cells(values, name) for name, values in table.items()}, chosen)
        self._columns = [_learned(name, each) for name, each in zip(table, cells)]
        self._leave_ids_out(cells, chosen)
        self._said = frozenset()
        if all(column.kind in LEFT_OUT for column in self._columns):
            raise ValueError(
                "expected a column with a value that other rows may have, got missing cells and ids (as many different "
                "texts as rows) only: make columns that are no ids categories, by .astype('category')"
            )
        return cells

    def _leave_ids_out(self, cells: list[Cells], chosen: set[int]) -> None:
        for number, column in enumerate(self._columns):
            if number in chosen or column.kind != TEXT or not are_ids(cells[number].values, [e.values for e in cells]):
                continue
            self._columns[number] = _Column(column.name, ID)
            warnings.warn(
                f"column {column.name!r} has as many different texts as rows, as an id has, which tells nothing about "
                "other rows: left out; .astype('category') keeps it, or categorical_features of PartitionGPRegressor",
                stacklevel=level_of_caller(),
            )

    def _cells(self, table: Mapping[str, Cells], chosen: set[int]) -> list[Cells]:
        """The cells of all columns: chosen ones as categories, text as read, open notations as those of sure ones."""
        notations = self._notations()
        cells = [
            _as_category(each, name) if number in chosen else as_read(each, notations) if each.kind == TEXT else each
            for number, (name, each) in enumerate(table.items())
        ]
        if {each.mark for each in cells if each.kind == NUMBERS} - {"", OPEN} == {","}:
            notations = [each for each in notations if each[0] == ","]
            for number, raw in enumerate(table.values()):
                if (cells[number].kind, cells[number].mark) == (NUMBERS, OPEN):
                    cells[number] = as_read(raw, notations)
        for name, each in zip(table, cells):
            if each.mark == OPEN:
                other = (
                    "the other decimal mark" if each.kind == NUMBERS else "the month first (pd.to_datetime reads both)"
                )
                told = f"its {each.kind} are text, read as {written_in(each.notation)}, and could have {other}"
                warnings.warn(
                    f"column {name!r}: {told}: convert the column, so that it can be read in one way only",
                    MisreadColumnWarning,
                    stacklevel=level_of_caller(),
                )
        return cells

    def _notations(self) -> list[str]:
        wanted = self.decimal, self.thousands
        found = [each for each in NUMBER_NOTATIONS if all(mark in (None, own) for mark, own in zip(wanted, each))]
        if not found:
            raise ValueError(
                "expected different marks, decimal as '.' or ',' and thousands as ',', '.', ' ' or \"'\", got "
                f"decimal={self.decimal!r} and thousands={self.thousands!r}"
            )
        return found

    def _checked(self, X: Any, reset: bool) -> dict[str, Any]:
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
        given = self.categorical_features
        if given is not None and (isinstance(given, str) or not isinstance(given, Iterable)):
            raise ValueError(f"expected categorical_features as a list of names or numbers of columns, got {given!r}")
        wanted = [] if given is None else list(given)
        if wanted and all(isinstance(one, bool | np.bool_) for one in wanted):
            if len(wanted) != len(names):
                raise ValueError(f"expected categorical_features as {len(names)} flags, got {len(wanted)}")
            return {number for number, is_chosen in enumerate(wanted) if is_chosen}
        known: dict[Any, int] = {key: number for number, name in enumerate(names) for key in (name, number)}
        if unknown := [one for one in wanted if one not in known]:
            raise ValueError(
                f"expected categorical_features among {names_of(names)}, or numbers of columns from 0 to "
                f"{len(names) - 1}, got {names_of(unknown)}"
            )
        return {known[one] for one in wanted}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = True
        return tags


def is_table(X: Any) -> bool:
    """
    Return whether a :class:`TableEncoder` is to read X: a data frame, a mapping, or cells such as objects, text, dates.

    Numbers in one array need no encoder.
    """
    if isinstance(X, Mapping) or hasattr(X, "columns"):
        return True
    if issparse(X):
        return False
    try:
        rows = np.asarray(X)
    except (TypeError, ValueError, RuntimeError):  # scikit-learn raises the error
        return False
    return rows.ndim == 2 and rows.dtype.kind in "OUMmS"


def _as_rows(X: Any) -> np.ndarray:
    rows = np.asarray(X)
    if rows.ndim == 2 and rows.dtype.kind == "U" and not isinstance(X, np.ndarray):
        rows = np.array(X, dtype=object)  # NumPy turns numbers of a mixed list into text
    if rows.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {rows.ndim}D array instead: expected a table, N rows of D columns. Reshape your "
            "data by X.reshape(-1, 1) if it is a single column"
        )
    return rows


def _columns_of(X: Any) -> dict[str, Any]:
    if isinstance(X, np.ndarray):
        return {f"x{number}": X[:, number] for number in range(X.shape[1])}
    names = list(X.column_names if hasattr(X, "column_names") else X.columns)
    if len(set(map(str, names))) < len(names):
        raise ValueError(f"expected columns of different names, got {names_of(names)}")
    if hasattr(X, "iloc"):
        return {str(name): X.iloc[:, number] for number, name in enumerate(names)}
    return {str(name): _as_column(X[name], name) for name in names}


def _as_column(values: Any, name: Any) -> Any:
    values = values if hasattr(values, "iloc") else as_array(values)
    if values.ndim != 1:
        raise ValueError(f"expected column {str(name)!r} as a 1-D array, got {values.ndim} dimensions")
    return values


def _as_category(cells: Cells, name: str) -> Cells:
    if cells.kind == ORDERED:
        return cells._replace(kind=CATEGORY)
    if cells.kind == NUMBERS:
        if (largest := np.nanmax(np.abs(cells.values), initial=0.0)) >= 2**53:
            raise ValueError(
                f"expected numbers below 2**53 in {name!r} of categorical_features, got {largest:.17g}: float64 cannot "
                "tell such numbers apart; make the column text"
            )
        numbers = cells.values.tolist()
        levels = [None if x != x else int(x) if x.is_integer() else x for x in numbers]
        return Cells(CATEGORY, np.array(levels, dtype=object))
    if cells.kind == DATES:
        raise ValueError(f"expected numbers, text or categories in {name!r} of categorical_features, got dates")
    return cells


def _learned(name: str, cells: Cells) -> _Column:
    column = _Column(name, cells.kind, cells.levels, (), cells.zone, cells.notation, cells.mark == OPEN, cells.note)
    if cells.kind == NUMBERS:
        _check_finite(name, cells.values)
    if cells.kind == DATES:
        parts = _calendar(cells.values)
        varying = tuple(part for part in _CALENDAR if len(np.unique(parts[part][~np.isnan(parts[part])])) > 1)
        return column._replace(parts=varying)
    return column._replace(levels=_levels_to_learn(cells)) if cells.kind in (TEXT, CATEGORY) else column


def _levels_to_learn(cells: Cells) -> list[Level]:
    """All levels; of more than ten, those of several rows, so that a level of one row is missing, as a new level is."""
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


def _of_fit(column: _Column, values: Any) -> Cells:
    cells = read_cells(values, column.name, column.zone)
    return cells if column.kind in LEFT_OUT else _same_kind(cells, column)


def _same_kind(cells: Cells, column: _Column) -> Cells:
    """Cells of new rows, if their kind is that of the column in `fit`; text is read as its numbers or dates."""
    if cells.kind == TEXT and column.zone is None and column.kind in (NUMBERS, DATES):
        notation = column.notation or (ISO if column.kind == DATES else NUMBER_NOTATIONS[0])
        cells = as_in_fit(cells, notation, column.name)
    if cells.kind == EMPTY or cells.kind == column.kind or (cells.kind in LEVELS and column.kind in LEVELS):
        _check_comparable(cells, column)
        return cells
    if cells.kind == NUMBERS and not all(isinstance(level, str) for level in column.levels or [""]):
        return _as_category(cells, column.name)
    written = f" ({written_in(column.notation)})" if column.notation else ""
    first = next((cell for cell in cells.values.tolist() if cell is not None), None)
    example = f" ({first!r:.50})" if cells.kind == TEXT else ""
    raise TypeError(
        f"expected {column.kind}{written} in column {column.name!r}, as in fit, got {cells.kind}{example}: convert the "
        "column, to the dtype that it had in the table given to fit"
    )


def _check_comparable(cells: Cells, column: _Column) -> None:
    """Refuse dates with a time zone where `fit` had none (or the reverse), and levels none of which can be known."""
    if DATES == cells.kind == column.kind and (column.zone is None) != (cells.zone is None):
        raise TypeError(f"expected dates with a time zone in both fit and here, or in neither, in {column.name!r}")
    levels = column.levels if cells.kind in LEVELS and column.levels else []
    here = {isinstance(level, str) for level in cells.values if level is not None} if levels else set()
    if here and here.isdisjoint(isinstance(level, str) for level in levels):
        got, wanted = ("text", "numbers") if True in here else ("numbers", "text")
        raise TypeError(
            f"expected categories that are {wanted} in column {column.name!r}, as in fit, got {got}: convert the "
            "column, or no level would be known"
        )


def _encoded(column: _Column, cells: Cells) -> np.ndarray:
    if cells.kind == EMPTY:
        return np.full((len(cells.values), len(_names(column))), np.nan)
    if column.kind == NUMBERS:
        _check_finite(column.name, cells.values)
        return cells.values[:, None]
    if column.kind == DATES:
        days, parts = (cells.values - np.datetime64(0, "us")) / _DAY, _calendar(cells.values)
        return np.stack([days, *(parts[part] for part in column.parts)], axis=1)
    codes = {level: float(code) for code, level in enumerate(column.levels or [])}
    return np.array([codes.get(level, np.nan) for level in cells.values.tolist()])[:, None]


def _names(column: _Column) -> list[str]:
    return [] if column.kind in LEFT_OUT else [column.name, *(f"{column.name}_{part}" for part in column.parts)]


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


def _reading(column: _Column) -> str:
    if column.kind in LEFT_OUT:
        return "left out: " + {EMPTY: "empty", ID: "another text in every row, as an id has"}[column.kind]
    if column.kind in LEVELS:
        return f"{CATEGORY if column.kind == TEXT else column.kind} of {len(column.levels or []):,} levels"
    is_usual = column.notation in ("", NUMBER_NOTATIONS[0]) and not column.is_open
    shown = column.kind + ("" if is_usual else f" as {written_in(column.notation)}")
    shown += f" ({', '.join(['days', *column.parts])})" * (column.kind == DATES)
    shown += f" on the clock of {column.zone}" if column.zone else ""
    return "; ".join(filter(None, [shown, "another notation fits as well" * column.is_open, column.note]))


def _said_of_new(column: _Column, cells: Cells) -> list[str]:
    if cells.notation and cells.note:
        return [f"column {column.name!r}: {cells.note}"]
    if column.levels is None or cells.kind == EMPTY:
        return []
    known = {None, *column.levels}
    if not (new := [value for value in cells.values.tolist() if value not in known]):
        return []
    unseen = sorted(set(map(str, new)))
    some = names_of(unseen[:_MOST_CATEGORIES_SAID]) + (", ..." if len(unseen) > _MOST_CATEGORIES_SAID else "")
    return [f"column {column.name!r}: fit did not learn {some}: taken for missing cells ({len(new):,} in all)"]
