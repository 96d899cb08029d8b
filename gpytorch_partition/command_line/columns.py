"""What the cells of a column are (numbers, dates or text), and their values as one array."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import NamedTuple

import numpy as np

from gpytorch_partition.command_line import numbers
from gpytorch_partition.command_line.errors import listed
from gpytorch_partition.command_line.raw_table import Cells, RawTable
from gpytorch_partition.descriptions import counted
from gpytorch_partition.tables import date_texts as dates
from gpytorch_partition.tables.cells import FEWEST_EXPLAINED, MARKS, explains

NUMBER, DATE, TEXT, CATEGORY = "number", "date", "text", "category"

_FIRST_INEXACT = 2**53  # the next whole number is not one of float64
_CANONICAL = re.compile(r"[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)")  # without zeros in front and exponents
_PADDED = re.compile(r"0+[1-9]\d*")
_DAY = re.compile(r"(19|20)\d{2}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_ROWS_TRIED = 2_000  # rows by which the decimal mark is recognized


class Kind(NamedTuple):
    """
    What a column holds: numbers, dates, text, or numbers that are categories; and how it is written.

    The notation is one of :mod:`numbers <gpytorch_partition.command_line.numbers>` or
    :mod:`dates <gpytorch_partition.tables.date_texts>`; the unit of numbers such as kg or $.
    """

    name: str
    notation: str = ""
    unit: str = ""


_NOTATIONS = {
    NUMBER: ("", numbers.POINT, numbers.COMMA, numbers.THOUSANDS, numbers.FLAGS, dates.TIMES),
    DATE: ("", dates.ISO, dates.DAY_FIRST, dates.MONTH_FIRST),
    TEXT: ("",),
    CATEGORY: ("",),
}


def check_kind(kind: Kind) -> None:
    """
    Refuse a kind that is none of those above, or in an unknown notation.

    :param kind: The kind, of a model file.
    :raises ValueError: If it is none.
    """
    if kind.notation not in _NOTATIONS.get(kind.name, ()) or not isinstance(kind.unit, str):
        raise ValueError(f"expected a kind of columns among {listed(_NOTATIONS)} and its notation, got {kind!r:.100}")


class Column(NamedTuple):
    """
    A column of `N` cells.

    Values are float64 with NaN, `datetime64[us]` with NaT, or texts (object) with None where a cell is missing.
    """

    values: np.ndarray
    kind: Kind
    notes: list[str]
    example: str = ""  # a number in a notation that is not that of programs, and what it was read as

    @property
    def missing(self) -> np.ndarray:
        """Where cells are missing: `N` booleans."""
        return missing_cells(self.values)


def missing_cells(values: np.ndarray) -> np.ndarray:
    """
    Where the cells of a column are missing.

    :param values: Values of a :class:`Column`.
    """
    if values.dtype == object:
        return np.array([value is None for value in values], dtype=bool)
    return np.isnat(values) if values.dtype.kind == "M" else np.isnan(values)


def sure_mark(table: RawTable) -> str:
    """
    The decimal mark of a file's numbers, or nothing where these leave it open.

    :param table: The file's columns.
    """
    texts = [column for column in table.columns.values() if isinstance(column, list) or column.dtype == object]
    return numbers.decimal_mark(cell.strip() for column in texts for cell in islice(column, _ROWS_TRIED) if cell)


def default_mark(table: RawTable) -> str:
    """
    The decimal mark of a file's numbers, or of files with semicolons, or nothing where that leaves it open.

    :param table: The file's columns.
    """
    return sure_mark(table) or (numbers.COMMA if table.has_semicolons else "")


def typed_column(name: str, cells: Cells, mark: str = "", kind: Kind | None = None, guess: str = "") -> Column:
    """
    A column's values, of the kind that its cells have, or of a given one.

    Cells such as an empty one, NA, NaN, null, None, ? and - are missing. A column is one of numbers or dates if all
    other cells are, or all but a few texts among many numbers, which are taken for missing ones, with a note.

    :param name: Its name, for notes.
    :param cells: Its cells.
    :param mark: The file's decimal mark, if known.
    :param kind: The kind that is wanted: cells that are of another one are taken for missing, with a note; all of
        them, if none fits. (Default: None, whatever the cells are.)
    :param guess: The mark that is likely where neither the file nor the kind has one. (Default: nothing.)
    """
    if isinstance(cells, np.ndarray):
        return _of_array(name, cells, mark, kind)
    cells = [cell.strip() for cell in cells]
    texts = _texts(cells)
    if kind is not None and kind.name in (TEXT, CATEGORY):
        return _text(cells, texts, kind)
    if kind is not None and kind.name == DATE:
        return _dates_as_in_fit(name, cells, texts, kind.notation)
    if kind is not None and kind.notation == dates.TIMES:
        return _dated(name, cells, texts, dates.DateTexts(dates.parsed_times(texts), dates.TIMES))
    column = _flags_of(name, cells, texts, kind) or _numbers_of(name, cells, texts, mark, kind, guess)
    return column or _dates_of(name, cells, texts) or _text(cells, texts, Kind(TEXT))


def _texts(cells: list[str]) -> list[str]:
    """The distinct texts that stand for no missing cells."""
    return [text for text in dict.fromkeys(cells) if text.casefold() not in MARKS]


def cells_of(raw: RawTable, name: str, kind: Kind | None) -> Cells:
    """
    A column's cells for :func:`typed_column`: numbers that are categories as they are written, where float64 does not
    tell them apart.

    :param raw: The file's columns.
    :param name: The column's name.
    :param kind: The kind that is wanted.
    """
    cells = raw.columns[name]
    if kind is None or kind.name != CATEGORY or isinstance(cells, list) or cells.dtype.kind != "f":
        return cells
    return raw.texts(name) if (np.abs(cells) >= _FIRST_INEXACT).any() else cells


def notation_notes(columns: Mapping[str, Column]) -> list[str]:
    """
    A note for each way of writing numbers that is not that of programs.

    :param columns: Columns by name.
    """
    notes = []
    for notation in (numbers.POINT, numbers.COMMA, numbers.THOUSANDS):
        examples = {
            name: column.example
            for name, column in columns.items()
            if column.example and column.kind.notation == notation
        }
        if examples:
            what = "units" if notation == numbers.POINT else notation
            notes.append(f"numbers with {what} ({next(iter(examples.values()))}) in column {listed(examples)}")
    return notes


def _of_array(name: str, values: np.ndarray, mark: str, kind: Kind | None) -> Column:
    """Values of a file that knows types; texts are read as those of a CSV file, and stay as they are if no others."""
    natural = {"M": DATE, "O": TEXT}.get(values.dtype.kind, NUMBER)
    if kind is None and natural == TEXT:
        column = typed_column(name, _written(values), mark)
        return Column(values, Kind(TEXT), []) if column.kind.name == TEXT else column
    if kind is None or kind.name == natural:
        return Column(values, kind or Kind(natural), [])
    return typed_column(name, _written(values), mark, kind)


def _written(cells: np.ndarray) -> list[str]:
    """The values of a column as they would be in a CSV file; missing ones are empty."""
    missing = missing_cells(cells)
    whole = cells.dtype.kind == "f" and bool((missing | (np.trunc(cells) == cells)).all())
    written = [f"{value:.0f}" if whole else str(value) for value in cells]
    return ["" if absent else text for text, absent in zip(written, missing)]


def _flags_of(name: str, cells: list[str], texts: list[str], kind: Kind | None) -> Column | None:
    """True and false as 1 and 0, if a column holds nothing else, or did in `fit`."""
    found = numbers.parsed_flags(texts)
    was_so = kind is not None and kind.notation == numbers.FLAGS
    if not found or (len(found) < len(texts) and not was_so):
        return None
    values = np.array([found.get(cell, np.nan) for cell in cells])
    return Column(values, Kind(NUMBER, numbers.FLAGS), _others(name, numbers.FLAGS, found, texts, cells))


def _numbers_of(
    name: str, cells: list[str], texts: list[str], mark: str, kind: Kind | None, guess: str
) -> Column | None:
    marks = [each for each in (mark or (kind.notation if kind else ""), guess) if each in numbers.NOTATIONS]
    found, notation, unit = numbers.parsed_numbers(texts, marks, kind.unit if kind else None)
    if kind is None and not explains(len(found), len(texts)):
        return None
    notes = [*_others(name, "numbers", found, texts, cells), *(_as_names(name, found) if kind is None else ())]
    unusual = next((text for text in found if not numbers.is_number(text) or float(text) != found[text]), None)
    is_told = kind is None or bool(mark)  # by the file
    open_text = None if is_told else next((text for text in found if numbers.is_open(text)), None)
    if open_text is not None:
        as_in_fit = ", as in the file that the model was fitted to" * (kind is not None and kind.notation == notation)
        notes.append(
            f"column {name!r}: {open_text!r} is read as {found[open_text]:.12g}{as_in_fit}, since no number of this "
            "file tells points from commas: write it with another number of digits if that is wrong"
        )
    example = "" if unusual is None else f"{unusual!r} is {found[unusual]:.12g}"
    values = np.fromiter((found.get(cell, np.nan) for cell in cells), np.float64, len(cells))
    return Column(values, Kind(NUMBER, notation, unit), notes, example)


def _as_names(name: str, found: Collection[str]) -> list[str]:
    """A note where numbers are written as names of things are, such as places by their post codes, or as dates are."""
    if len(found) >= FEWEST_EXPLAINED and all(map(_is_day, found)):
        day = next(iter(found))
        return [f"column {name!r}: if {day!r} is a date, write {day[:4]}-{day[4:6]}-{day[6:]}: it is read as a number"]
    first = next((text for text in found if _PADDED.fullmatch(text)), None)
    return [
        f"column {name!r}: {first!r} has zeros in front, as names of things have: name the column in --categorical if "
        "its numbers are no quantities"
    ] * (first is not None)


def _is_day(text: str) -> bool:
    """Whether a number has the digits of a day, as 20240203."""
    return _DAY.fullmatch(text) is not None


def _dates_of(name: str, cells: list[str], texts: list[str]) -> Column | None:
    """Dates or times of day, if a column holds such."""
    if (found := dates.dates_of_column(texts)) is None:
        return None
    column = _dated(name, cells, texts, found)
    if found.is_open:
        column.notes.append(_told_of_order(name, found.notation, "could be month-day-year as well"))
    if found.notation == dates.TIMES:
        text, hours = next(iter(found.values.items()))
        column.notes.append(
            f"column {name!r} holds times of day or durations, taken as hours ({text!r} is {hours:.6g})"
        )
    return column


def _dates_as_in_fit(name: str, cells: list[str], texts: list[str], order: str) -> Column:
    """Dates in the order that the model was fitted to, or with a note in another one that reads more of them."""
    found = dates.parsed_dates(texts, order)
    column = _dated(name, cells, texts, found)
    if found.notation != order:
        why = (
            "could be month-day-year as well" if found.is_open else f"were {order or 'dates'} when the model was fitted"
        )
        column.notes.append(_told_of_order(name, found.notation, why))
    return column


def _told_of_order(name: str, order: str, why: str) -> str:
    return f"column {name!r}: its dates are read as {order}, and {why}: write them as YYYY-MM-DD if that is wrong"


def _dated(name: str, cells: list[str], texts: list[str], found: dates.DateTexts) -> Column:
    """Cells as the dates, or hours, of their texts."""
    if found.notation == dates.TIMES:
        kind, values = Kind(NUMBER, dates.TIMES), np.array([found.values.get(cell, np.nan) for cell in cells])
    else:
        kind = Kind(DATE, found.notation)
        values = np.array([found.values.get(cell) for cell in cells], dtype="datetime64[us]")
    what = found.notation if kind.name == NUMBER else "dates"
    return Column(values, kind, _others(name, what, found.values, texts, cells))


def _others(name: str, what: str, found: Collection[str], texts: list[str], cells: list[str]) -> list[str]:
    others = dict.fromkeys(texts).keys() - set(found)
    if not others:
        return []
    count = counted(sum(cell in others for cell in cells), "cell")
    return [f"column {name!r}: {listed(sorted(others)[:5])} among its {what} are taken for missing cells ({count})"]


def _text(cells: list[str], texts: list[str], kind: Kind) -> Column:
    levels = {text: _category(text) if kind.name == CATEGORY else text for text in texts}
    values = np.empty(len(cells), dtype=object)
    values[:] = [levels.get(cell) for cell in cells]
    return Column(values, kind, [])


def _category(text: str) -> str:
    """
    A number that is a category: 1 and 1.0 are the same; others are as they are written, with zeros in front or
    exponents, or whole numbers that float64 does not tell apart.
    """
    if not _CANONICAL.fullmatch(text) or abs(number := float(text)) >= _FIRST_INEXACT:
        return text
    return f"{number:.15g}"
