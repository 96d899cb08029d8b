"""Columns of tables as cells of a few kinds (numbers, text, categories, dates), for input of any dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from gpytorch_partition.inputs.text_targets import composed

NUMBERS, TEXT, CATEGORY, ORDERED, DATES, EMPTY = "numbers", "text", "category", "ordered category", "dates", "empty"
ID, INDEX = "id", "index"  # text that differs in every row; whole numbers without a name
LEVELS = (TEXT, CATEGORY, ORDERED)  # kinds of columns whose cells are names
# Kinds of columns without information on other rows, and what is said of them.
LEFT_OUT = {
    EMPTY: "left out: empty",
    ID: "left out: another text in every row, as an id has",
    INDEX: "left out: numbers of rows without a name, as an index has",
}
# Texts that stand for missing cells beside numbers or dates, in lower case.
MARKS = {"", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none", "nat", "?", "-", "--", ".", "k.a.", "k. a."}

Level = str | int | float | bool

_DAY = np.timedelta64(1, "D")
_SCALARS = (bool, np.bool_, int, float, np.integer, np.floating, Decimal, Fraction)


class Cells(NamedTuple):
    """Hold one column's N cells as numbers, levels or dates, with notes on how they were read."""

    kind: str
    values: np.ndarray  # float64, NaN is missing; levels, None is missing; or datetime64, NaT is missing
    levels: list[Level] | None = None  # all that a category declares, in its order
    zone: str | None = None  # of dates that have one
    note: str = ""  # for the log, on how cells were read
    notation: str = ""  # of numbers or dates that were text
    mark: str = ""  # the decimal mark of numbers that were text, if they have any mark
    doubt: str = ""  # how numbers or dates that were text could be read otherwise, or what whole numbers lose

    def without(self, missing: Sequence[float]) -> Cells:
        if self.kind != NUMBERS or not len(missing):
            return self
        values = np.where(np.isin(self.values, missing), np.nan, self.values)
        return self._replace(kind=_numbers(values).kind, values=values)

    def distinct_texts(self) -> list[str]:
        """Return the texts without spaces around, each once, and without marks of missing cells."""
        texts = dict.fromkeys(text.strip() for text in self.values.tolist() if text is not None)
        return [text for text in texts if len(text) > 5 or text.casefold() not in MARKS]


def read_cells(column: Any, name: str, zone: str | None = None) -> Cells:
    """
    Return the cells of a NumPy array or a pandas Series, dates in the time of a zone (default: their own).

    :raises TypeError: If cells are of an unknown kind (lists, complex numbers, bytes).
    :raises ImportError: Without pandas, if the column is no array of numbers.
    """
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return _numbers(column.astype(np.float64))
    pandas = pandas_for("columns that are no arrays of numbers")
    column = pandas.Series(column)
    if isinstance(column.dtype, pandas.CategoricalDtype):
        return _category(column, name)
    if isinstance(column.dtype, pandas.PeriodDtype):
        column = column.dt.to_timestamp()
    if pandas.api.types.is_numeric_dtype(column.dtype) and column.dtype.kind != "c":
        numbers = _numbers(column.to_numpy(dtype=np.float64, na_value=np.nan))
        return numbers._replace(doubt=_rounding(column, numbers.values) if column.dtype.kind in "iu" else "")
    if isinstance(column.dtype, np.dtype | pandas.DatetimeTZDtype) and column.dtype.kind == "M":
        return _dates(column, {str(column.dt.tz)} if column.dt.tz else set(), zone)
    return _objects(column.astype(object), column.isna().to_numpy(), name, zone)


def pandas_for(what: str) -> Any:
    """Return the module pandas, or raise an `ImportError` that says what needs pandas and how to install it."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f'{what} are read by pandas: pip install "gpytorch_partition[tables]"') from error
    return pandas


def as_pandas(values: Any) -> Any:
    """Return a frame or column of Polars or pyarrow as one of pandas, with names in Unicode's composed form (NFC)."""
    values = values.to_pandas() if hasattr(values, "to_pandas") else values
    if not hasattr(values, "columns") or not hasattr(values, "set_axis"):
        return values
    names = composed([*values.columns])
    return values if names == list(values.columns) else values.set_axis(names, axis=1)


def as_frame(X: Mapping[Any, Any]) -> Any:
    """Return columns by name as a data frame, row by row, whatever their indexes are."""
    pandas = pandas_for("mappings from names to columns")
    columns = {str(name): as_pandas(values) for name, values in X.items()}
    plain = {name: each.array if hasattr(each, "array") else each for name, each in columns.items()}
    return as_pandas(pandas.DataFrame(plain))


def is_missing(cell: Any) -> bool:
    """Return whether a cell is None, NaN, pandas' NA or NaT, or NumPy's NaT."""
    return cell is None or type(cell).__name__ == "NAType" or (not hasattr(cell, "__len__") and bool(cell != cell))


def names_of(names: Sequence[Any]) -> str:
    """Return at most ten names for a message, and the number of others."""
    more = len(names) - 10
    return ", ".join(map(repr, map(str, names[:10]))) + (f" and {more} more" if more > 0 else "")


def _numbers(values: np.ndarray, note: str = "") -> Cells:
    return Cells(EMPTY if len(values) and np.isnan(values).all() else NUMBERS, values, note=note)


def _rounding(column: Any, numbers: np.ndarray) -> str:
    if not np.nanmax(np.abs(numbers), initial=0.0) >= 2**53:
        return ""
    before, after = column.nunique(), len(np.unique(numbers[~np.isnan(numbers)]))
    told = f"differences that float64 does not hold ({before:,} whole numbers become {after:,})"
    return told if after < before else ""


def _category(column: Any, name: str) -> Cells:
    levels = [_level(level, name) for level in column.dtype.categories]
    codes = np.asarray(column.cat.codes, np.int64)
    if not levels:
        return _numbers(np.full(len(codes), np.nan))
    values = np.array([*levels, None], dtype=object)[codes]
    return Cells(ORDERED if column.dtype.ordered else CATEGORY, values, list(dict.fromkeys(levels)))


def _level(level: Any, name: str) -> Level:
    """Return a level as text, number or boolean; other objects (dates, intervals) as their text."""
    if isinstance(level, complex | bytes):
        raise _unreadable(name, type(level).__name__)
    level = level.item() if isinstance(level, np.generic) else level
    return level if isinstance(level, bool | int | float) else composed(str(level))


def _objects(column: Any, missing: np.ndarray, name: str, zone: str | None) -> Cells:
    present = column.to_numpy()[~missing]
    types = set(map(type, present))

    def all_are(*kinds: type) -> bool:
        return all(issubclass(kind, kinds) for kind in types)

    def filled(convert: Callable[[Any], Any], dtype: Any = np.float64) -> np.ndarray:
        found = np.full(len(column), None if dtype is object else np.nan, dtype=dtype)
        found[~missing] = [convert(cell) for cell in present]
        return found

    if all_are(*_SCALARS):
        return _numbers(filled(_number))
    if all_are(str, *_SCALARS):
        note = "" if all_are(str) else "text and numbers are mixed: all are text"
        return Cells(TEXT, filled(lambda cell: composed(str(cell)), object), note=note)
    if all_are(date, np.datetime64):
        return _dates(column, {str(cell.tzinfo) for cell in present if getattr(cell, "tzinfo", None) is not None}, zone)
    if all_are(timedelta, np.timedelta64):
        return _numbers(filled(lambda cell: np.timedelta64(cell) / _DAY), "durations are numbers of days")
    if all_are(time):
        seconds = filled(lambda cell: cell.second + cell.microsecond * 1e-6)
        minutes, hours = filled(lambda cell: cell.minute), filled(lambda cell: cell.hour)
        return _numbers(hours + minutes / 60 + seconds / 3600, "times of day are numbers of hours")
    raise _unreadable(name, ", ".join(sorted(kind.__name__ for kind in types)[:5]))


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:
        return np.inf if cell > 0 else -np.inf


def _dates(column: Any, zones: set[str], zone: str | None) -> Cells:
    """Return dates on the clock of the given zone, else of the only one that they have, else of UTC."""
    import pandas

    dates = pandas.to_datetime(column, utc=True)
    zone = (zone or (next(iter(zones)) if len(zones) == 1 else "UTC")) if zones else None
    try:
        dates = dates.dt.tz_convert(zone or "UTC")
    except (KeyError, ValueError):  # no name that pandas knows
        zone = "UTC"
    values = dates.dt.tz_localize(None).to_numpy("datetime64[us]")
    return Cells(EMPTY if column.isna().all() else DATES, values, zone=zone)


def _unreadable(name: str, got: str) -> TypeError:
    told = "argument must be a string, a number, a boolean, a date or a missing cell; convert the column, or drop it"
    return TypeError(f"column {name!r} holds {got}: {told}")
