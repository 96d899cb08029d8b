"""`TableEncoder`, which turns tables with text, categories, dates and missing cells into one matrix of numbers."""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.inputs.numbers import like_holes
from gpytorch_partition.inputs.text_targets import composed
from gpytorch_partition.tables import cells as kinds
from gpytorch_partition.tables.cells import Cells, Level, as_frame, as_pandas, names_of, pandas_for, read_cells
from gpytorch_partition.tables.notations import ISO, NUMBER_NOTATIONS, as_in_fit, as_read, written_in
from gpytorch_partition.tables.number_view import MOST_ONE_HOT

logger = logging.getLogger(__name__)

_OF_NUMBERS = "numbers as categories"
_UNNAMED = re.compile(r"Unnamed: \d+|__index_level_\d+__|")  # columns without a name, as pandas and pyarrow call them
_FEWEST_IDS = 20  # rows from which texts that all differ are ids
_MOST_GAPS = 0.25  # numbers that a counter may lack, by rows that are left out, for each that it has
_MOST_COPIES = 0.1  # share of the rows that may be copies, whose ids are the same


class MisreadColumnWarning(UserWarning):
    """Warn of numbers or dates written as text that can be read in two ways, as `1,234`: convert them before `fit`."""


class _Column(NamedTuple):
    name: str
    kind: str
    levels: list[Level] | None = None  # of text, categories and ordered categories
    parts: tuple[str, ...] = ()  # of dates: the calendar parts that vary
    zone: str | None = None  # of dates with a time zone
    notation: str = ""  # of numbers and dates that were text
    is_open: bool = False  # whether another notation fits as well
    note: str = ""


@dataclass(eq=False, repr=False)
class TableEncoder(TransformerMixin, BaseEstimator):
    """
    Encode tables with columns of any kind as one matrix of float64 numbers (the *table matrix*, `N x D'`).

    Use it to give a table to a kernel (`RandomForestKernel(x, y, categories=[...])`); all estimators use it for tables.
    docs/tables.md has the kinds of columns. Categories are codes 0 ... C - 1 of their C levels, missing cells NaN.

    :param categorical_features: Names (or numbers, counted from 0, or a flag for each column) of columns of numbers or
        ordered levels to treat as categories. (Default: None.)
    :param decimal, thousands: The marks of numbers written as text: `"."` or `","`, and `","`, `"."`, `" "` or `"'"`
        between thousands. (Default: None, found for each column.)
    :param missing: Numbers that stand for missing cells, such as -999. (Default: none.)

    Example:
        >>> encoder = TableEncoder().fit({"price": np.array(["1.234,50 €", "7 €"]), "color": np.array(["red", "blue"])})
        >>> encoder.transform({"price": np.array(["0,5", "none"]), "color": np.array(["red", "green"])})
        array([[0.5, 1. ],
               [nan, nan]])
        >>> encoder.categories_
        {1: ['blue', 'red']}
    """

    categorical_features: Sequence[str | int] | None = None
    decimal: str | None = None
    thousands: str | None = None
    missing: Sequence[float] = ()
    _said = frozenset[str]()  # messages about new rows that were logged

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """
        Learn the columns and their levels, and return the encoder.

        :param X: A data frame of pandas, Polars or pyarrow, an array (`N x D`, also of objects), lists of rows, or a
            mapping from names to 1-D arrays.
        :param y: Ignored.
        :raises TypeError: If X is sparse, or a cell is no number, text, category or date.
        :raises ValueError: If X is no table, a column holds infinity, no column has a value, or `categorical_features`
            names an unknown column.
        """
        self._learn(X)
        return self

    @all_or_nothing
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Learn the columns as :meth:`fit` does, and return the table matrix (`N x D'`)."""
        cells = self._learn(X)
        return _matrix(list(zip(self._columns, cells)))

    @all_or_nothing
    def fit_read(self, X: Any) -> dict[str, np.ndarray]:
        """Learn the columns of a table as :meth:`fit` does, and return their values: numbers, dates or levels."""
        cells = self._learn(X)
        return {column.name: each.values for column, each in zip(self._columns, cells)}

    def transform(self, X: Any) -> np.ndarray:
        """
        Return the table matrix (`N x D'`, float64) of rows, in the columns and codes that :meth:`fit` has learned.

        :param X: A table with the same column names in the same order (a mapping may have any).
        :return: The matrix, NaN where a cell is missing or its level unknown.
        :raises ValueError: If columns are missing, too many or in another order, or one holds infinity.
        :raises TypeError: If a column holds another kind of values than in `fit`.
        """
        pairs, notes = self._read_new(self._checked(X, reset=False))
        for message in notes:
            if message not in self._said:  # each once, since tables of the same levels may come repeatedly
                self._said = self._said | {message}
                logger.info("%s", message)
        return _matrix(pairs)

    def read(self, X: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], list[str]]:
        """
        Return columns of other rows, read as in `fit`, and notes on cells that could not be read and became missing.

        :param X: Columns by name.
        :raises TypeError: If one is of another kind than in `fit`.
        """
        pairs, notes = self._read_new(X)
        return {column.name: cells.values for column, cells in pairs}, notes

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of the matrix: those of the table, and `date_month` for a part of a date."""
        return np.array([name for column in self._known for name in _names(column)], dtype=object)

    @property
    def categories_(self) -> dict[int, list[Level]]:
        """Return the levels of each column of categories, by the number of its column in the matrix."""
        columns, unordered = [self._known[number] for number in self.sources_], (kinds.TEXT, kinds.CATEGORY)
        return {number: list(each.levels or []) for number, each in enumerate(columns) if each.kind in unordered}

    def levels_of(self, name: str) -> list[Level]:
        """Return the levels of a column of the table, in the order that a category declares; none for others."""
        return next((list(column.levels or []) for column in self._known if column.name == name), [])

    @property
    def kinds_(self) -> dict[str, str]:
        """
        Return the kind of each column of the table, by name: `"numbers"`, `"text"`, `"category"`, `"ordered category"`
        or `"dates"`; of columns that are left out `"empty"`, `"id"` (other texts in all rows) or `"index"`.
        """
        return {column.name: column.kind for column in self._known}

    @property
    def readings_(self) -> dict[str, str]:
        """Return how each column of the table was read, in a few words, by name."""
        return {column.name: _reading(column) for column in self._known}

    @property
    def messages_(self) -> list[str]:
        """Return a sentence on each column that is not plain numbers."""
        return [f"column {name!r}: {reading}" for name, reading in self.readings_.items() if reading != kinds.NUMBERS]

    @property
    def sources_(self) -> list[int]:
        """Return, for each column of the matrix, the number of its column in the table."""
        return [number for number, column in enumerate(self._known) for _ in _names(column)]

    def to_state(self) -> dict[str, Any]:
        """Return the fitted encoder as plain values, for :meth:`from_state`."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "columns": [{**column._asdict(), "parts": list(column.parts)} for column in self._known],
            "feature_names": None if names is None else [str(name) for name in names],
            "missing": [float(number) for number in self.missing],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TableEncoder:
        """Return the encoder of a state."""
        encoder = cls(missing=state.get("missing", ()))
        encoder._columns = [_Column(**{**column, "parts": tuple(column["parts"])}) for column in state["columns"]]
        others, names = list(encoder.missing), state["feature_names"] or []
        is_list = isinstance(names, list) and _are(names, str) and _are(others, int | float)
        if not is_list or not all(map(_is_learned, encoder._columns)):
            raise ValueError("expected the state of a TableEncoder, got wrong values: fit again")
        encoder.n_features_in_ = len(encoder._columns)
        if state["feature_names"] is not None:
            encoder.feature_names_in_ = np.array(state["feature_names"], dtype=object)
        return encoder

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = True
        return tags

    @property
    def _known(self) -> list[_Column]:
        check_is_fitted(self, "_columns")
        return self._columns

    def _read_new(self, table: Mapping[str, Any]) -> tuple[list[tuple[_Column, Cells]], list[str]]:
        """Return the columns that a table has with their cells, and notes on cells that became missing."""
        known = [column for column in self._known if column.name in table]
        pairs = [(column, _of_fit(column, table[column.name], self.missing)) for column in known]
        return pairs, [note for pair in pairs for note in _said_of_new(*pair)]

    def _learn(self, X: Any) -> list[Cells]:
        table = self._checked(X, reset=True)
        chosen = self._chosen(list(table))
        cells = self._cells({name: read_cells(values, name) for name, values in table.items()}, chosen)
        self._columns: list[_Column] = [_learned(name, each) for name, each in zip(table, cells)]
        self._leave_ids_out(cells, chosen)
        self._said = frozenset()
        if all(column.kind in kinds.LEFT_OUT for column in self._columns):
            raise ValueError(
                "expected a column with a value that other rows may have, got missing cells and ids (other texts in "
                "all rows) only: .astype('category') makes a column stay"
            )
        return cells

    def _cells(self, table: Mapping[str, Cells], chosen: set[int]) -> list[Cells]:
        """Return chosen columns as categories, text as read: where the decimal mark is open, as in other columns."""
        notations = self._notations()
        raw = [_as_category(each, name) if n in chosen else each for n, (name, each) in enumerate(table.items())]
        are_text = [each.kind == kinds.TEXT and number not in chosen for number, each in enumerate(raw)]
        cells = [as_read(each, notations) if is_text else each for each, is_text in zip(raw, are_text)]
        if {each.mark for each in cells if each.kind == kinds.NUMBERS and not each.doubt} - {""} == {","}:
            notations = [each for each in notations if each[0] == ","]
            for number, each in enumerate(cells):
                if each.kind == kinds.NUMBERS and each.doubt and each.notation:
                    cells[number] = as_read(raw[number], notations)
        cells = [each.without(self.missing) for each in cells]
        for name, each in zip(table, cells):
            if each.doubt:
                warnings.warn(_warning(name, each), MisreadColumnWarning, stacklevel=level_of_caller())
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

    def _leave_ids_out(self, cells: list[Cells], chosen: set[int]) -> None:
        values = [each.values for each in cells]
        for number, (name, kind, *_) in enumerate(self._columns):
            is_id = kind == kinds.TEXT and _are_ids(values[number], values)
            is_index = kind == kinds.NUMBERS and bool(_UNNAMED.fullmatch(name)) and _are_index(values[number])
            if number not in chosen and (is_id or is_index):
                self._columns[number] = _Column(name, kinds.ID if is_id else kinds.INDEX)
                told = f"column {name!r}: {_reading(self._columns[number])}, which tells nothing about other rows"
                warnings.warn(f"{told}; .astype('category') of the column keeps it", stacklevel=level_of_caller())

    def _checked(self, X: Any, reset: bool) -> dict[str, Any]:
        names = [] if reset else [column.name for column in self._known]
        X = as_table(X, names)
        is_frame = hasattr(X, "columns")
        X = validate_data(self, X, dtype=None, ensure_all_finite=False, skip_check_array=is_frame, reset=reset)
        if not len(X):
            raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
        columns = _columns_of(X)
        if names and list(columns) != names:  # scikit-learn compares names only if all are texts
            raise ValueError(
                f"expected columns in the order of fit, {names_of(names)}, got {names_of(list(columns))}: give them in "
                "that order, X[names]"
            )
        return columns

    def _chosen(self, names: list[str]) -> set[int]:
        given = self.categorical_features
        if not (given is None or isinstance(given, Iterable)):
            raise ValueError(f"expected categorical_features as a list of names or numbers of columns, got {given!r}")
        wanted = composed([given] if isinstance(given, str) else [] if given is None else list(given))
        if len(wanted) == len(names) and all(isinstance(one, bool | np.bool_) for one in wanted):
            wanted = [*np.flatnonzero(wanted)]
        known: dict[Any, int] = {key: number for number, name in enumerate(names) for key in (name, number)}
        if unknown := [one for one in wanted if isinstance(one, bool | np.bool_) or one not in known]:
            raise ValueError(
                f"expected categorical_features among {names_of(names)}, or as numbers of columns from 0 to "
                f"{len(names) - 1} or a flag for each, got {names_of(unknown)}"
            )
        return {known[one] for one in wanted}


def _warning(name: str, cells: Cells) -> str:
    told = f"column {name!r}: its {cells.kind}"
    if cells.kind == kinds.TEXT:
        return f"{told} could have {cells.doubt}: write all cells alike"
    if not cells.notation:
        return f"{told} could have {cells.doubt}: convert the column to text, which keeps them"
    read = f"are text, read as {written_in(cells.notation)}, and could have {cells.doubt}"
    return f"{told} {read}: convert the column, so that it can be read in one way only"


def _is_learned(column: _Column) -> bool:
    """Return whether the fields of a column, which a state may hold, are of the types and words of a fit."""
    is_level, is_date = column.kind in kinds.LEVELS, column.kind == kinds.DATES
    levels = column.levels if isinstance(column.levels, list) else [None] * (column.levels is not None or is_level)
    parts = {"month", "day_of_year", "weekday", "hour"} if is_date else set()
    return (
        _are([column.name, column.kind, column.notation, column.note, *column.parts, column.zone or ""], str)
        and (is_level or is_date or column.kind in (kinds.NUMBERS, *kinds.LEFT_OUT))
        and _are(levels, str if column.kind == kinds.TEXT else str | int | float)
        and parts >= {*column.parts}
        and (is_date or column.zone is None)
    )


def _are(values: Iterable[Any], types: Any) -> bool:
    return all(isinstance(value, types) for value in values)


def is_table(X: Any) -> bool:
    """Return whether a :class:`TableEncoder` is to read X: a frame, a mapping, or an array of other than numbers."""
    if isinstance(X, Mapping) or hasattr(X, "columns"):
        return True
    try:
        rows = np.empty(0) if issparse(X) else np.asarray(X)
    except (TypeError, ValueError, RuntimeError):  # scikit-learn raises the error
        return False
    return rows.ndim == 2 and rows.dtype.kind in "OUMmS"


def as_table(X: Any, names: Sequence[str]) -> Any:
    """Return a table as a pandas frame or an array; a mapping with exactly the columns `names`, in their order."""
    if isinstance(X, Mapping):
        X = as_frame(X)
        return X[list(names)] if {*names} == {*X.columns} else X
    # Lists are objects, since 1 beside "a" would be "1".
    return as_pandas(X) if hasattr(X, "columns") or hasattr(X, "dtype") else np.array(X, dtype=object)


def _columns_of(X: Any) -> dict[str, Any]:
    if isinstance(X, np.ndarray):
        return {f"x{number}": X[:, number] for number in range(X.shape[1])}
    names = [str(name) for name in X.columns]
    if len(set(names)) < len(names):
        raise ValueError(f"expected columns of different names, got {names_of(names)}")
    return {name: X.iloc[:, number] for number, name in enumerate(names)}


def _as_category(cells: Cells, name: str) -> Cells:
    if cells.kind == kinds.ORDERED:
        return cells._replace(kind=kinds.CATEGORY)
    if cells.kind == kinds.NUMBERS:
        if (largest := np.nanmax(np.abs(cells.values), initial=0.0)) >= 2**53:
            raise ValueError(
                f"expected numbers below 2**53 in {name!r} of categorical_features, got {largest:.17g}: float64 cannot "
                "tell such numbers apart; make the column text"
            )
        levels = [None if x != x else int(x) if x.is_integer() else x for x in cells.values.tolist()]
        return Cells(kinds.CATEGORY, np.array(levels, dtype=object))
    if cells.kind == kinds.DATES:
        raise ValueError(f"expected numbers, text or categories in {name!r} of categorical_features, got dates")
    return cells


def _are_ids(texts: np.ndarray, columns: Iterable[np.ndarray]) -> bool:
    """Return whether texts differ in all rows but copies of rows, a tenth of them at most, as joined tables have."""
    first: dict[str | None, int] = {}
    firsts = np.array([first.setdefault(text, number) for number, text in enumerate(texts.tolist())])
    again = np.flatnonzero(firsts != np.arange(len(texts)))
    if None in first or len(first) < _FEWEST_IDS or len(again) > _MOST_COPIES * len(texts):
        return False
    pairs = ((cells[again], cells[firsts[again]]) for cells in columns)
    return all(bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in pairs)


def _are_index(numbers: np.ndarray) -> bool:
    """Return whether numbers are whole, and half of them differ at least, as in two files one after another."""
    distinct = len(np.unique(numbers))
    return bool((numbers % 1 == 0).all()) and distinct >= max(_FEWEST_IDS, 0.5 * len(numbers))


def _learned(name: str, cells: Cells) -> _Column:
    _check_finite(name, cells)
    doubt = f"it could have {cells.doubt}" if cells.doubt else ""
    note = "; ".join(filter(None, [cells.note, doubt, *_remarks(cells)]))
    column = _Column(name, cells.kind, cells.levels, (), cells.zone, cells.notation, bool(cells.doubt), note)
    if cells.kind == kinds.DATES:
        parts = _calendar(cells.values)
        return column._replace(parts=tuple(part for part in parts if np.nanmin(parts[part]) < np.nanmax(parts[part])))
    return column._replace(levels=_levels_to_learn(cells)) if cells.kind in (kinds.TEXT, kinds.CATEGORY) else column


def _remarks(cells: Cells) -> Iterator[str]:
    """Yield what is said of numbers that count rows, and of numbers and dates that may stand for missing cells."""
    if cells.kind == kinds.DATES:
        for told in like_holes(_days(cells), True):
            yield f"{told}, far from all others (leave them empty if unknown)"
    if cells.kind != kinds.NUMBERS:
        return
    numbers = cells.values
    levels, counts = np.unique(numbers[~np.isnan(numbers)], return_counts=True)
    are_whole = len(levels) == len(numbers) >= _FEWEST_IDS and (levels % 1 == 0).all()
    if are_whole and levels[0] >= 0 and levels[-1] <= (1 + _MOST_GAPS) * len(levels):
        yield f"from {levels[0]:g} to {levels[-1]:g}, each once, as a counter of rows has (leave it out if it is)"
    for told in like_holes(numbers):
        yield f"{told}, far from all others (missing={told.split()[-1]} if they stand for holes)"


def _levels_to_learn(cells: Cells) -> list[Level]:
    """Return all levels; of more than ten, those of several rows: trees would learn a single row's own target by it."""
    counts = Counter(cell for cell in cells.values.tolist() if cell is not None)
    levels = sorted(counts) if cells.levels is None else cells.levels
    common = [level for level in levels if counts[level] > 1]
    return common if common and len(counts) > MOST_ONE_HOT else levels


def _check_finite(name: str, cells: Cells) -> None:
    if cells.kind == kinds.NUMBERS and (infinite := int(np.isinf(cells.values).sum())):
        raise ValueError(
            f"expected finite numbers, got infinity in {infinite} cell(s) of column {name!r}: leave cells empty (NaN) "
            "where the value is not known, or drop the rows"
        )


def _of_fit(column: _Column, values: Any, missing: Sequence[float]) -> Cells:
    """Return cells of new rows, if their kind is that of the column in `fit`; text is read as its numbers or dates."""
    cells = read_cells(values, column.name, column.zone)
    is_text_in_fit = column.zone is None or column.notation
    if cells.kind == kinds.TEXT and is_text_in_fit and column.kind in (kinds.NUMBERS, kinds.DATES):
        notation = column.notation or (ISO if column.kind == kinds.DATES else NUMBER_NOTATIONS[0])
        cells = as_in_fit(cells, notation, column.name)
    cells = cells.without(missing)
    if cells.kind == kinds.EMPTY or column.kind in kinds.LEFT_OUT:
        return cells
    if cells.kind in kinds.LEVELS and all(level is None for level in cells.values):
        return cells._replace(kind=kinds.EMPTY)
    wanted, got = _shown(column.kind, column.levels, column.zone), _shown(cells.kind, cells.values, cells.zone)
    if wanted == got:
        return cells
    if (wanted, got) == (_OF_NUMBERS, kinds.NUMBERS):
        return _as_category(cells, column.name)
    written = f" ({written_in(column.notation)})" if column.notation else ""
    first = next((cell for cell in cells.values.tolist() if cell is not None), None)
    raise TypeError(
        f"expected {wanted}{written} in column {column.name!r}, as in fit, got {got} ({first!r:.50}): convert the "
        "column, to the dtype that it had in the table given to fit"
    )


def _shown(kind: str, levels: Any, zone: str | None) -> str:
    """Return the kind of a column as far as other cells can be compared with it."""
    if kind in kinds.LEVELS:
        return kinds.TEXT if any(isinstance(level, str) for level in levels) else _OF_NUMBERS
    return kind + " with a time zone" * (zone is not None)


def _matrix(pairs: list[tuple[_Column, Cells]]) -> np.ndarray:
    parts = [_encoded(column, cells) for column, cells in pairs if column.kind not in kinds.LEFT_OUT]
    return np.concatenate(parts, axis=1)


def _encoded(column: _Column, cells: Cells) -> np.ndarray:
    if cells.kind == kinds.EMPTY:
        return np.full((len(cells.values), len(_names(column))), np.nan)
    if column.kind == kinds.NUMBERS:
        _check_finite(column.name, cells)
        return cells.values[:, None]
    if column.kind == kinds.DATES:
        parts = _calendar(cells.values)
        return np.stack([_days(cells), *(parts[part] for part in column.parts)], axis=1)
    codes = {level: float(code) for code, level in enumerate(column.levels or [])}
    return np.array([codes.get(level, np.nan) for level in cells.values.tolist()])[:, None]


def _days(cells: Cells) -> np.ndarray:
    return (cells.values - np.datetime64(0, "us")) / np.timedelta64(1, "D")


def _names(column: _Column) -> list[str]:
    return [] if column.kind in kinds.LEFT_OUT else [column.name, *(f"{column.name}_{part}" for part in column.parts)]


def _calendar(dates: np.ndarray) -> dict[str, np.ndarray]:
    """Return month 1 ... 12, day of the year 1 ... 366, weekday 0 (Monday) ... 6, and hour with a fraction."""
    index = pandas_for("dates").DatetimeIndex(dates)
    days = {"month": index.month, "day_of_year": index.day_of_year, "weekday": index.day_of_week}
    hours = (dates - dates.astype("datetime64[D]")) / np.timedelta64(1, "h")
    return {**{name: np.asarray(part, np.float64) for name, part in days.items()}, "hour": hours}


def _reading(column: _Column) -> str:
    if column.kind in kinds.LEFT_OUT:
        return kinds.LEFT_OUT[column.kind]
    if column.kind in kinds.LEVELS:
        return f"{kinds.CATEGORY if column.kind == kinds.TEXT else column.kind} of {len(column.levels or []):,} levels"
    is_usual = not column.notation or (column.notation == NUMBER_NOTATIONS[0] and not column.is_open)
    shown = column.kind + ("" if is_usual else f" as {written_in(column.notation)}")
    shown += f" ({', '.join(['days', *column.parts])})" * (column.kind == kinds.DATES)
    shown += f" on the clock of {column.zone}" if column.zone else ""
    return "; ".join(filter(None, [shown, column.note]))


def _said_of_new(column: _Column, cells: Cells) -> list[str]:
    if cells.notation and cells.note:
        return [f"column {column.name!r}: {cells.note}"]
    if column.kind in kinds.LEFT_OUT or column.levels is None or cells.kind == kinds.EMPTY:
        return []
    known = {None, *column.levels}
    new = [value for value in cells.values.tolist() if value not in known]
    unseen = names_of(sorted(set(map(str, new))))
    told = f"column {column.name!r}: fit did not learn {unseen}: taken for missing cells ({len(new):,} in all)"
    return [told] if new else []
