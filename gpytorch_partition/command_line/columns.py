"""What the cells of a column are (numbers, dates or text), and their values as one array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from itertools import islice
from typing import NamedTuple

import numpy as np

from gpytorch_partition.command_line import dates, numbers
from gpytorch_partition.command_line.errors import listed
from gpytorch_partition.command_line.raw_table import Cells, RawTable

NUMBER, DATE, TEXT, CATEGORY = "number", "date", "text", "category"

_MISSING = {"", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none", "nat", "?", "-", "--", "."}
_FEWEST_NUMBERS = 20  # distinct ones, among which a few other texts are marks of missing cells or mistakes,
_NUMBERS_PER_TEXT = 10  # if there are at least so many distinct numbers for each of them
_ROWS_TRIED = 2_000  # rows by which the decimal mark is recognized


class Kind(NamedTuple):
    """
    What a column holds: numbers, dates, text, or numbers that are categories; and how it is written.

    The notation is one of :mod:`numbers <gpytorch_partition.command_line.numbers>` or
    :mod:`dates <gpytorch_partition.command_line.dates>`.
    """

    name: str
    notation: str = ""


_NOTATIONS = {
    NUMBER: ("", numbers.POINT, numbers.COMMA, numbers.THOUSANDS),
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
    if kind.notation not in _NOTATIONS.get(kind.name, ()):
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


def default_mark(table: RawTable) -> str:
    """
    The decimal mark of a file's numbers, or nothing where they leave it open.

    :param table: The file's columns.
    """
    cells = (cell.strip() for column in table.columns.values() for cell in islice(column, _ROWS_TRIED))
    found = numbers.decimal_mark(cells) if all(isinstance(column, list) for column in table.columns.values()) else ""
    return found or (numbers.COMMA if table.has_semicolons else "")


def typed_column(name: str, cells: Cells, mark: str = "", kind: Kind | None = None) -> Column:
    """
    A column's values, of the kind that its cells have, or of a given one.

    Cells such as an empty one, NA, NaN, null, None, ? and - are missing. A column is one of numbers or dates if all
    other cells are, or all but a few texts among many numbers, which are taken for missing ones, with a note.

    :param name: Its name, for notes.
    :param cells: Its cells.
    :param mark: The file's decimal mark, if known.
    :param kind: The kind that is wanted: cells that are of another one are taken for missing, with a note; all of
        them, if none fits. (Default: None, whatever the cells are.)
    """
    if isinstance(cells, np.ndarray):
        return _of_array(name, cells, kind)
    cells = [cell.strip() for cell in cells]
    texts = [text for text in dict.fromkeys(cells) if text.casefold() not in _MISSING]
    if kind is not None and kind.name in (TEXT, CATEGORY):
        return _text(cells, texts, kind)
    column = _numbers_of(name, cells, texts, mark, kind) or _dates_of(name, cells, texts, kind)
    return column or _text(cells, texts, Kind(TEXT))


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


def _of_array(name: str, values: np.ndarray, kind: Kind | None) -> Column:
    """Values of a file that knows types; texts are looked at as those of a CSV file if they are to be another kind."""
    natural = {"M": DATE, "O": TEXT}.get(values.dtype.kind, NUMBER)
    if kind is None or kind.name == natural:
        return Column(values, kind or Kind(natural), [])
    return typed_column(name, as_texts(values), "", kind)


def as_texts(cells: Cells) -> list[str]:
    """
    A column's cells as they are written; missing ones are empty.

    :param cells: The cells.
    """
    if isinstance(cells, list):
        return cells
    missing = missing_cells(cells)
    whole = cells.dtype.kind == "f" and bool((missing | (np.trunc(cells) == cells)).all())
    written = [f"{value:.0f}" if whole else str(value) for value in cells]
    return ["" if absent else text for text, absent in zip(written, missing)]


def _numbers_of(name: str, cells: list[str], texts: list[str], mark: str, kind: Kind | None) -> Column | None:
    if kind is not None and kind.name != NUMBER:
        return None
    notation = mark or (kind.notation if kind else "") or numbers.POINT
    found, notation = numbers.parsed_numbers(texts, notation)
    if kind is None and not _explain(found, texts):
        return None
    notes = _others(name, "numbers", found, texts)
    unusual = next((text for text in found if not numbers.is_number(text) or float(text) != found[text]), None)
    is_told = kind is None or bool(mark)  # by the file
    open_text = None if is_told else next((text for text in found if numbers.is_open(text)), None)
    if open_text is not None:
        notes.append(
            f"column {name!r}: {open_text!r} is read as {found[open_text]:.12g}, as in the file that the model was "
            "fitted to, since no number of this file tells points from commas: write it with another number of digits "
            "if that is wrong"
        )
    example = "" if unusual is None else f"{unusual!r} is {found[unusual]:.12g}"
    values = np.fromiter((found.get(cell, np.nan) for cell in cells), np.float64, len(cells))
    return Column(values, Kind(NUMBER, notation), notes, example)


def _dates_of(name: str, cells: list[str], texts: list[str], kind: Kind | None) -> Column | None:
    found, order, is_open = dates.parsed_dates(texts, kind.notation if kind else dates.ISO)
    if kind is None and not _explain(found, texts):
        return None
    notes = _others(name, "dates", found, texts)
    if is_open and kind is None:
        notes.append(
            f"column {name!r}: its dates are read as {order}, and could be month-day-year as well: write them as "
            "YYYY-MM-DD if that is wrong"
        )
    values = np.array([found.get(cell) for cell in cells], dtype="datetime64[us]")
    return Column(values, Kind(DATE, order), notes)


def _explain(found: Sized, texts: list[str]) -> bool:
    """Whether the values found explain a column, up to a few other texts."""
    others = len(texts) - len(found)
    return not others or len(found) >= max(_FEWEST_NUMBERS, _NUMBERS_PER_TEXT * others)


def _others(name: str, what: str, found: Iterable[str], texts: list[str]) -> list[str]:
    others = list(dict.fromkeys(texts).keys() - set(found))
    if not others:
        return []
    return [f"column {name!r}: {listed(sorted(others)[:5])} among its {what} are taken for missing cells"]


def _text(cells: list[str], texts: list[str], kind: Kind) -> Column:
    levels = {text: _category(text) if kind.name == CATEGORY else text for text in texts}
    values = np.empty(len(cells), dtype=object)
    values[:] = [levels.get(cell) for cell in cells]
    return Column(values, kind, [])


def _category(text: str) -> str:
    """A number that is a category: 1 and 1.0 are the same."""
    return f"{float(text):.15g}" if numbers.is_number(text) else text
