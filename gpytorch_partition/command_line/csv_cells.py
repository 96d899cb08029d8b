"""CSV files as columns of texts: the delimiter, the header, and every line that does not fit it."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpytorch_partition.command_line.errors import CommandError, listed
from gpytorch_partition.command_line.numbers import is_number
from gpytorch_partition.command_line.raw_table import RawTable
from gpytorch_partition.command_line.text_files import Text
from gpytorch_partition.descriptions import counted

DELIMITERS = (",", ";", "\t", "|")
_RECORDS_TRIED = 200  # records by which the delimiter is recognized
_LEAST_FIT = 0.5  # share of the lines that a delimiter divides as the header, below which spaces are tried
_IN_SINGLE_QUOTES = re.compile(r"(?:^|[,;\t|])\s*'[^']*'\s*(?=[,;\t|']|$)")
_NUMBER = re.compile(r"[+-]?[.,]?\d[\d.,]*(e[+-]?\d+)?$", re.IGNORECASE)
_MOST_WITH_OTHERS = 0.8  # share of the lines that may agree on another number of cells than the header has

Record = tuple[int, list[str]]  # the number of its first line in the file, and its cells


def read_cells(path: Path, text: Text) -> RawTable:
    """
    The columns of a CSV file whose first line names them.

    The delimiter is a comma, semicolon, tab or bar, whichever divides most lines as it divides the header; spaces, one
    or more, if none of these does, and spaces divide all lines alike. Cells are in double quotes, or in single ones if
    names of columns are. Empty lines are skipped, and so are lines that repeat the header, which is noted.

    :param path: The file, for messages.
    :param text: Its text.
    :return: Columns of texts, and what is wrong with the file.
    :raises CommandError: If there is no header, no rows, a quote that is not closed, or spaces that divide most lines.
    """
    with _cells_of_any_length(text.text):
        return _read_cells(path, text)


@contextmanager
def _cells_of_any_length(text: str) -> Iterator[None]:
    """The csv module takes cells of up to 131,072 characters, unless it is told another number."""
    before = csv.field_size_limit(max(len(text), csv.field_size_limit()))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _read_cells(path: Path, text: Text) -> RawTable:
    form, body, line = _form(path, text.text)
    records = _records(path, body, form, line)
    _, cells = next(records, (0, []))
    if not any(cell.strip() for cell in cells):
        raise CommandError(f"{path} is empty: expected a first line with the names of the columns")
    if all(is_number(cell) for cell in cells):
        raise CommandError(f"{path} begins with numbers: expected a first line with the names of the columns")
    return _table(path, cells, list(records), form.delimiter, list(text.notes))


class _Form(NamedTuple):
    """How lines are divided into cells."""

    delimiter: str
    quote: str

    def reader(self, lines: Iterator[str]) -> Any:
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote, skipinitialspace=True)


def _form(path: Path, text: str) -> tuple[_Form, str, int]:
    """How the cells are divided, the text from the header on, and how many lines are before it."""
    quote = _quote(text)
    if text[:4].casefold() == "sep=" and len(text) > 4:  # what Excel understands
        return _Form(text[4], quote), text[5:].lstrip("\r").removeprefix("\n"), 1
    best = max((_Form(delimiter, quote) for delimiter in DELIMITERS), key=lambda form: _fit(text, form))
    if _fit(text, best)[0] < _LEAST_FIT:
        spaced, without_ends = _Form(" ", quote), re.sub(r" +(?=[\r\n]|\Z)", "", text)
        if _is_spaced(path, without_ends, spaced):
            return spaced, without_ends, 0
    return best, text, 0


def _quote(text: str) -> str:
    """The quote around cells: a single one if names of columns are in such, as some programs write them."""
    header = text.lstrip().partition("\n")[0].strip()
    return "'" if '"' not in header and _IN_SINGLE_QUOTES.search(header) else '"'


def _fit(text: str, form: _Form) -> tuple[float, int]:
    """Share of the lines that have as many cells as the header, and how many these are."""
    reader = form.reader(io.StringIO(text, newline=""))
    try:
        counts = [len(record) for record in islice(filter(any, reader), _RECORDS_TRIED)]
    except csv.Error:
        return 0.0, 0
    if not counts or counts[0] < 2:
        return 0.0, 0
    return counts.count(counts[0]) / len(counts), counts[0]


def _is_spaced(path: Path, text: str, form: _Form) -> bool:
    """
    Whether spaces divide all lines as they divide the header, with a number in each; else they may be parts of texts.

    :raises CommandError: If they divide nearly all lines so, or are in rows in the header, as columns are aligned.
    """
    reader = form.reader(io.StringIO(text, newline=""))
    try:
        (_, header), *records = ((reader.line_num, record) for record in reader if record)
    except (csv.Error, ValueError):  # a quote that is not closed, which is told where it opens; no line
        return False
    odd = [(line, cells) for line, cells in records if len(cells) != len(header) or not any(map(_NUMBER.match, cells))]
    if len(header) < 2 or not odd:
        return len(header) > 1 and bool(records)
    is_aligned = "  " in text.strip().partition("\n")[0]
    if is_aligned or len(odd) < (1 - _MOST_WITH_OTHERS) * len(records):
        line, cells = odd[0]
        raise CommandError(
            f"{path}, line {line:,}: spaces divide the header into {len(header)} cells, and this line into "
            f"{len(cells)}, or no number is among them: put quotes around cells with spaces, write NA for empty cells, "
            "or save the file with commas between cells"
        )
    return False


class _Lines:
    """The lines of a text; those of the record that is being read are remembered."""

    def __init__(self, text: str) -> None:
        self._lines, self.of_record = io.StringIO(text, newline=""), list[str]()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.of_record.append(line)
        return line


def _records(path: Path, text: str, form: _Form, line: int) -> Iterator[Record]:
    lines = _Lines(text)
    reader = form.reader(lines)
    start, last = line + 1, list[str]()
    try:
        for record in reader:
            last, lines.of_record = lines.of_record, []
            if len(last) > 1:
                _check_quotes(path, last, form, start)
            if len(record) > 1 or any(cell.strip() for cell in record):
                yield start, record
            start = line + reader.line_num + 1
    except csv.Error as error:
        _check_quotes(path, lines.of_record, form, start)
        raise CommandError(f"{path}, line {start:,}: {error}; is a quote not closed?") from error
    if len(last) == 1:
        _check_quotes(path, last, form, start - 1)


def _check_quotes(path: Path, lines: list[str], form: _Form, start: int) -> None:
    """
    Refuse a quote that is closed nowhere or, in a record of several lines, somewhere within another cell: the rows in
    between would be one cell.
    """
    text = "".join(lines)
    place, is_closed = _unclosed_quote(text, form)
    if place >= 0 and (len(lines) > 1 or not is_closed):
        number = start + len(text[: place + 1].splitlines()) - 1
        raise CommandError(
            f"{path}, line {number:,}: a quote opens here that is not closed at the end of its cell: close it, or "
            "write a quote within a cell twice"
        )


def _unclosed_quote(text: str, form: _Form) -> tuple[int, bool]:
    """
    Where the first quote around a cell is that is not closed before the cell ends, -1 if there is none, and whether it
    is closed later.

    Example:
        >>> form = _Form(",", '"')
        >>> _unclosed_quote('1,"2",3', form), _unclosed_quote('1,"2,"3"', form), _unclosed_quote('1,"2', form)
        ((-1, False), (2, True), (2, False))
    """
    ends, place = re.compile(f"[{re.escape(form.delimiter)}\\r\\n]"), 0
    while place < len(text):
        while text[place : place + 1] == " ":
            place += 1
        after = place
        if text[place : place + 1] == form.quote:
            after = _end_of_quote(text, place, form.quote)
            if after < 0 or (after < len(text) and not ends.match(text, after)):
                return place, after >= 0
        end = ends.search(text, after)
        if end is None:
            break
        place = end.end()
    return -1, False


def _end_of_quote(text: str, place: int, quote: str) -> int:
    """Behind the quote that closes one, in which quotes are written twice; -1 if there is none."""
    end = text.find(quote, place + 1)
    while end >= 0 and text[end + 1 : end + 2] == quote:
        end = text.find(quote, end + 2)
    return end + 1 if end >= 0 else -1


def _table(path: Path, header: list[str], records: list[Record], delimiter: str, notes: list[str]) -> RawTable:
    while records and not any(cell.strip() for cell in records[-1][1]):  # as spreadsheets leave them
        records.pop()
    rows = [record for record in records if record[1] != header]
    if len(rows) < len(records):
        notes.append(f"{len(records) - len(rows):,} lines repeat the header: left out")
    if not rows:
        raise CommandError(f"{path} has a header but no rows")
    _check_width(path, len(header), rows)
    rows, problems = _fitting(rows, len(header), delimiter)
    columns = [list(column) for column in zip(*(cells for _, cells in rows))] or [[] for _ in header]
    names = [cell.strip() or f"column {place}" for place, cell in enumerate(header, 1)]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        problems.append(f"more than one column is named {listed(twice)}: rename all but one")
    lines = np.array([line for line, _ in rows], dtype=np.int64)
    return RawTable(path, dict(zip(names, columns)), lines, "line", delimiter == ";", notes, problems)


def _check_width(path: Path, width: int, records: list[Record]) -> None:
    """Refuse a first line that is no header: nearly all others agree on another number of cells."""
    size, count = Counter(len(cells) for _, cells in records).most_common(1)[0]
    is_empty = size > width and not any(cell.strip() for _, cells in records for cell in cells[width:])
    if size != width and count > _MOST_WITH_OTHERS * len(records) and not is_empty:
        raise CommandError(
            f"{path} begins with a line of {counted(width, 'cell')}, but {count:,} of the {len(records):,} lines below "
            f"have {size}: if it is a title, delete all lines above the names of the columns; else name each column"
        )


def _fitting(records: list[Record], width: int, delimiter: str) -> tuple[list[Record], list[str]]:
    """The records of the header's width; empty cells at the end of others are dropped; messages about the rest."""
    fitting, problems = [], []
    for line, cells in records:
        if len(cells) > width and not any(cell.strip() for cell in cells[width:]):
            cells = cells[:width]
        if len(cells) == width:
            fitting.append((line, cells))
            continue
        advice = f"put quotes around cells with {delimiter!r}" if len(cells) > width else "write empty cells as well"
        if len(cells) == 1:
            advice = f"delete the line if it is a comment ({cells[0].strip()[:40]!r}), or write empty cells as well"
        got = counted(len(cells), "cell")
        problems.append(f"line {line:,}: expected {width} cells as in the header, got {got}; {advice}")
    return fitting, problems
