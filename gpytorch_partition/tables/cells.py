"""Columns of tables as cells of a few kinds (numbers, text, categories, dates), for input of any dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

NUMBERS, TEXT, CATEGORY, ORDERED, DATES, EMPTY = "numbers", "text", "category", "ordered category", "dates", "empty"
ID = "id"  # text that differs in every row
LEVELS = (TEXT, CATEGORY, ORDERED)  # kinds of columns whose cells are names
LEFT_OUT = (EMPTY, ID)  # kinds of columns without information on other rows

Level = str | int | float | bool

_DAY = np.timedelta64(1, "D")
_SCALARS = (bool, np.bool_, int, float, np.integer, np.floating, Decimal, Fraction)
_READABLE = "a string, a number, a boolean, a date or a missing cell"


class Cells(NamedTuple):
    """
    A column of N cells.

    :param kind: `NUMBERS`, `TEXT`, `CATEGORY`, `ORDERED`, `DATES` or `EMPTY` (only missing cells).
    :param values: Numbers (float64, NaN is missing); levels (`N` objects, None is missing) of text and categories;
        dates (datetime64, NaT is missing).
    :param levels: All levels that a category declares, in its order. (Default: None.)
    :param zone: The time zone of dates that have one. (Default: None.)
    :param note: A note for the log on how cells were read. (Default: nothing.)
    :param notation: The notation of numbers or dates that were text. (Default: nothing, they were not.)
    :param mark: The certain decimal mark of numbers written as text, or that it is open. (Default: nothing.)
    """

    kind: str
    values: np.ndarray
    levels: list[Level] | None = None
    zone: str | None = None
    note: str = ""
    notation: str = ""
    mark: str = ""


def read_cells(column: Any, name: str, zone: str | None = None) -> Cells:
    """
    Return the cells of a column.

    :param column: A NumPy array of any dtype, or a pandas Series.
    :param name: Name of the column in errors.
    :param zone: Time zone of the dates returned. (Default: None, their own.)
    :raises TypeError: If cells are of an unknown kind (lists, complex numbers, bytes).

    Example:
        >>> read_cells(np.array(["b", None, "a"], dtype=object), "letter").kind
        'text'
        >>> read_cells(np.array([1, None, True], dtype=object), "count").values
        array([ 1., nan,  1.])
    """
    dtype = column.dtype
    if hasattr(dtype, "categories"):
        return _category(column, name)
    if dtype.kind == "M":
        return _dates(column, zone)
    if hasattr(dtype, "freq"):  # periods
        return _dates(column.dt.to_timestamp(), None)
    if dtype.kind in "biuf":
        return _numbers(column)
    if dtype.kind == "m":
        return _kept(NUMBERS, np.asarray(column) / _DAY, "durations are numbers of days")
    if dtype.kind == "U" and isinstance(dtype, np.dtype):
        return _kept(TEXT, np.asarray(column).astype(object))
    if dtype.kind in "OU":  # pyarrow's texts are "U", and may be missing
        values = _array_of_objects(column)
        missing = column.isna() if hasattr(column, "isna") else map(is_missing, values)
        return _objects(values, np.fromiter(missing, bool, len(values)), name, zone)
    raise TypeError(_unreadable(name, str(dtype)))


def as_array(values: Any) -> np.ndarray:
    """
    Return a column as an array; times of pyarrow and Polars with a zone become objects, since arrays of times have no
    zone.

    Dictionaries of pyarrow are read by value, since NumPy gives a missing cell of a chunked one the last value.

    :param values: A column of Polars or pyarrow, an array, or a list.

    Example:
        >>> as_array([1.5, 2.0])
        array([1.5, 2. ])
    """
    kind = getattr(values, "type", getattr(values, "dtype", None))
    if kind is not None and hasattr(kind, "index_type") and hasattr(kind, "value_type"):
        return as_array(values.cast(kind.value_type))
    if getattr(kind, "tz", None) or getattr(kind, "time_zone", None):
        return np.array(values.to_pylist() if hasattr(values, "to_pylist") else values.to_list(), dtype=object)
    return np.asarray(values)


def plain_targets(y: Any) -> Any:
    """Return targets of pyarrow as an array, with None or NaN where they are missing; all others unchanged."""
    return as_array(y) if hasattr(y, "to_pylist") and hasattr(y, "type") else y


def _numbers(column: Any) -> Cells:
    if isinstance(column.dtype, np.dtype):
        return _kept(NUMBERS, np.asarray(column, np.float64))
    sparse = "sparse columns are held with their zeros" if hasattr(column.dtype, "fill_value") else ""
    return _kept(NUMBERS, column.to_numpy(dtype=np.float64, na_value=np.nan), sparse)


def _kept(kind: str, values: np.ndarray, note: str = "", zone: str | None = None) -> Cells:
    is_empty = kind != TEXT and len(values) > 0 and bool((values != values).all())
    return Cells(EMPTY if is_empty else kind, values, note=note, zone=zone)


def _dates(column: Any, zone: str | None) -> Cells:
    """Times on the clock of their own time zone, or of a given one."""
    column = _without_arrow(column)
    own = getattr(column.dtype, "tz", None)
    if own is None:
        return _kept(DATES, np.asarray(column, "datetime64[us]"))
    zone = str(own) if zone is None else zone
    values = np.asarray(column.dt.tz_convert(zone).dt.tz_localize(None), "datetime64[us]")
    return _kept(DATES, values, zone=zone)


def _without_arrow(dates: Any) -> Any:
    if not hasattr(dates.dtype, "pyarrow_dtype"):
        return dates
    zone = getattr(dates.dtype.pyarrow_dtype, "tz", None)
    return dates.astype("datetime64[us]" if zone is None else f"datetime64[us, {zone}]")


def _category(column: Any, name: str) -> Cells:
    declared = column.dtype.categories
    levels = [plain_level(level, name) for level in declared]
    table = np.array([*levels, None], dtype=object)
    codes = np.asarray(column.cat.codes, np.int64)
    if len(codes) and (codes < 0).all() and not levels:
        return Cells(EMPTY, np.full(len(codes), np.nan))
    return Cells(ORDERED if column.dtype.ordered else CATEGORY, table[codes], levels)


def plain_level(level: Any, name: str) -> Level:
    """Return a level as text, number or boolean; other objects (dates, intervals) as their text."""
    if isinstance(level, str | bool | int | float):
        return level
    if isinstance(level, np.bool_ | np.integer | np.floating):
        return level.item()
    if isinstance(level, list | dict | set | complex | bytes):
        raise TypeError(_unreadable(name, type(level).__name__))
    return str(level)


def _array_of_objects(column: Any) -> np.ndarray:
    values = column.to_numpy(dtype=object) if hasattr(column, "to_numpy") else np.asarray(column)
    return np.asarray(values, dtype=object)


def is_missing(cell: Any) -> bool:
    """Return whether a cell is None, NaN, pandas' NA or NaT, or NumPy's NaT."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(cell, float | np.floating | Decimal):
        return bool(cell != cell)
    return isinstance(cell, np.datetime64 | np.timedelta64) and bool(np.isnat(cell))


def _objects(values: np.ndarray, missing: np.ndarray, name: str, zone: str | None) -> Cells:
    """Cells of any type: the kind is that of all cells that are not missing."""
    present = values[~missing]
    if not len(present):
        return Cells(EMPTY, np.full(len(values), np.nan))
    types = set(map(type, present))

    def all_are(*kinds: type) -> bool:
        return all(issubclass(kind, kinds) for kind in types)

    if all_are(*_SCALARS):
        return _kept(NUMBERS, _filled(present, missing, np.float64, _number))
    if all_are(str):
        values = values.copy()
        values[missing] = None
        return Cells(TEXT, values)
    if all_are(str, *_SCALARS):
        return Cells(TEXT, _filled(present, missing, object, str), note="text and numbers are mixed: all are text")
    if all_are(date, np.datetime64):
        return _date_objects(present, missing, zone)
    if all_are(timedelta, np.timedelta64):
        days = _filled(present, missing, np.float64, lambda cell: np.timedelta64(cell) / _DAY)
        return Cells(NUMBERS, days, note="durations are numbers of days")
    if all_are(time):
        return Cells(NUMBERS, _filled(present, missing, np.float64, _hours), note="times of day are numbers of hours")
    raise TypeError(_unreadable(name, ", ".join(sorted({type(cell).__name__ for cell in present})[:5])))


def _filled(present: np.ndarray, missing: np.ndarray, dtype: Any, convert: Callable[[Any], Any]) -> np.ndarray:
    filled = np.full(len(missing), None if dtype is object else np.nan, dtype=dtype)
    filled[~missing] = [convert(cell) for cell in present]
    return filled


def _number(cell: Any) -> float:
    """A number as float64; one beyond its range is infinite."""
    try:
        return float(cell)
    except OverflowError:
        return np.inf if cell > 0 else -np.inf


def _date_objects(present: np.ndarray, missing: np.ndarray, zone: str | None) -> Cells:
    """Dates of Python, NumPy or pandas, on the clock of the given zone, else of their common one, or UTC."""
    zones = {str(cell.tzinfo) for cell in present if getattr(cell, "tzinfo", None) is not None}
    zone = zone or _shared_zone(zones)
    clock = _time_zone(zone)
    values = np.full(len(missing), np.datetime64("NaT"), "datetime64[us]")
    values[~missing] = [_on_clock(cell, clock) for cell in present]
    return Cells(DATES, values, zone=zone if zones else None)


def _shared_zone(zones: set[str]) -> str:
    """The time zone of all dates, or UTC where they have several, or an unknown one."""
    (zone,) = zones if len(zones) == 1 else {"UTC"}
    try:
        _time_zone(zone)
    except (ValueError, KeyError, OSError):
        return "UTC"
    return zone


def _on_clock(cell: Any, clock: tzinfo) -> np.datetime64:
    if isinstance(cell, datetime) and cell.tzinfo is not None:
        cell = cell.astimezone(clock).replace(tzinfo=None)
    return np.datetime64(cell, "us")


def _time_zone(name: str) -> tzinfo:
    """A time zone as pandas writes it: `Europe/Berlin`, `UTC`, or an offset such as `UTC+02:00`."""
    if name.startswith("UTC"):
        return datetime.strptime(name.removeprefix("UTC") or "+0000", "%z").tzinfo or UTC
    return ZoneInfo(name)


def _hours(cell: time) -> float:
    return cell.hour + cell.minute / 60 + (cell.second + cell.microsecond * 1e-6) / 3600


def _unreadable(name: str, got: str) -> str:
    return (
        f"column {name!r} holds {got}: argument must be {_READABLE} in every cell; turn the column into columns of "
        "such, or drop it"
    )


def names_of(names: Sequence[Any]) -> str:
    """Return at most ten names for a message, and the number of others."""
    more = len(names) - 10
    return ", ".join(map(repr, map(str, names[:10]))) + (f" and {more} more" if more > 0 else "")
