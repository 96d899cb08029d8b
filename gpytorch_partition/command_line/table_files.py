"""Text files, parquet files and workbooks as data frames, which pandas reads (extra `tables`)."""

from __future__ import annotations

import codecs
import csv
import io
import lzma
import re
import warnings
import zlib
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize
from zipfile import BadZipFile, ZipFile

import numpy as np

from gpytorch_partition.command_line.outputs import CommandError, listed
from gpytorch_partition.tables.cells import MARKS

_DELIMITERS = (",", ";", "\t", "|")
_LINES = 100  # that say what the delimiter is, and which columns are of numbers
_FEWEST = 10  # of their numbers
_MOST_BYTES = 2**32  # of text, unpacked
_MOST_BYTES_OF_WORKBOOK = 2**30  # unpacked: its cells take more memory
_DAMAGED = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, BadZipFile, RuntimeError, LookupError, csv.Error)
_NUMBER = re.compile(r"\W*\d[\d\W]*(e[-+]?\d+\s*)?", re.IGNORECASE)  # with signs of money and marks of all kinds
_TOTALS = r"(grand |sub-?)?totals?|sums?|(zwischen)?summen?|(ins)?gesamt|totaux|averages?|means?|mittelwert"
_MOST_TOTALS = 0.05  # of the rows
_MARKS = sorted({written for mark in MARKS for written in (mark, mark.upper(), mark.title(), "NaN", "NaT")})
_LIBRARIES = {".parquet": "pyarrow", ".pq": "pyarrow", ".xlsx": "openpyxl"}


class Dialect(NamedTuple):
    """Hold the notation of a text file, by the options of a command; what is None is detected in the file."""

    sep: str | None = None  # between cells
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    header: int | None = 0  # the line that names the columns, from 0; None where there is none
    missing: Sequence[float] = ()  # numbers that stand for missing cells

    @classmethod
    def of_options(cls, options: Namespace) -> Dialect:
        return cls(**{name: value for name, value in vars(options).items() if name in cls._fields})


def read_frame(path: Path, dialect: Dialect = Dialect(), id_column: str | None = None) -> tuple[Any, list[str]]:  # noqa: B008 (a tuple)
    """
    Return the columns of a file as a data frame, and notes on cells and names that may be misread.

    Cells of text files and workbooks are texts, None where they are missing, but for columns of a workbook that hold
    numbers only; names are in Unicode's composed form.

    :param path: A parquet file (`.parquet`, `.pq`), an Excel workbook (`.xlsx`), or a text file, which may be
        compressed (`.gz`, `.bz2`, `.xz`, `.zip`).
    :param id_column: The column whose cells are not changed.
    :raises CommandError: If it cannot be read, has no rows, or the names of its columns are none.
    """
    library = _LIBRARIES.get(path.suffix.lower(), "pandas")
    if find_spec("pandas") is None or find_spec(library) is None:
        raise CommandError(f'{path} is read by {library} and pandas: pip install "gpytorch_partition[tables]"')
    notes: list[str] = []
    with file_named_in_errors(path, "cannot read ", _DAMAGED):
        if library == "pyarrow":
            frame = _of_parquet(path)
        else:
            cells, names, notes = (_of_workbook if library == "openpyxl" else _of_text)(path, dialect)
            frame = _texts(cells, dialect.decimal or ".") if library == "openpyxl" else cells
            frame.columns = _checked_names(names, frame)
            frame = _with_holes(frame, id_column)
            notes = [*notes, *_notes_on_rows(frame, has_names=len(names) > 0)] if len(frame) else []
            frame = _with_numbers(frame, cells, id_column) if library == "openpyxl" else frame
    if not len(frame):
        raise CommandError(f"expected rows of cells, got a header but no rows in {path}: give a file with rows")
    return frame.reset_index(drop=True), notes


@contextmanager
def file_named_in_errors(path: Path, what: str = "", kinds: Any = (TypeError, ValueError)) -> Iterator[None]:
    """Turn errors that a file causes into a :class:`CommandError` that names it."""
    try:
        yield
    except kinds as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise CommandError(f"{what}{path}: {reason}") from error


def texts_of(column: Any) -> Any:
    """Return the cells of a column as texts, None where they are missing."""
    return column.astype(object).where(column.isna(), column.astype(str)).mask(column.isna(), None)


def column_name(name: object) -> str:
    """Return a name in Unicode's composed form; names of options are read as UTF-8 under an ASCII locale too."""
    return normalize("NFC", str(name).encode(errors="surrogateescape").decode(errors="replace"))


def _of_parquet(path: Path) -> Any:
    """Read columns with their own types; true and false become texts, as in other files."""
    import pandas

    frame = pandas.read_parquet(path, dtype_backend="numpy_nullable")  # whole numbers beside missing cells stay whole
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    frame.columns = [column_name(name) for name in frame.columns]
    for name in frame.columns[[dtype == "boolean" for dtype in frame.dtypes]]:
        frame[name] = texts_of(frame[name])
    return frame


def _of_workbook(path: Path, dialect: Dialect) -> tuple[Any, list[str], list[str]]:
    import pandas

    with ZipFile(path) as parts:
        if sum(part.file_size for part in parts.infolist()) > _MOST_BYTES_OF_WORKBOOK:
            gib = _MOST_BYTES_OF_WORKBOOK / 2**30
            raise ValueError(f"it holds over {gib:g} GiB, unpacked: take fewer rows, or write parquet")
    raw = pandas.read_excel(path, header=None, dtype=object, keep_default_na=False)
    if dialect.header is None:
        return raw, [], []
    return raw[dialect.header + 1 :], list(raw.iloc[dialect.header].map(str)), []


def _texts(cells: Any, decimal: str) -> Any:
    return cells.map(lambda cell: str(cell).replace(".", decimal) if isinstance(cell, float) else str(cell))


def _with_numbers(frame: Any, cells: Any, id_column: str | None) -> Any:
    """Return a workbook's columns whose known cells are numbers as such: they have no decimal mark to be misread."""
    import pandas

    for place, name in enumerate(frame):
        column = cells.iloc[:, place][frame.index].where(frame[name].notna(), None)
        kinds = set(column.dropna().map(type))
        if name != id_column and kinds and kinds <= {int, float}:
            frame[name] = pandas.to_numeric(column)
    return frame


def _of_text(path: Path, dialect: Dialect) -> tuple[Any, list[str], list[str]]:
    import pandas
    from pandas.io.common import get_handle  # it unpacks

    with get_handle(path, "rb", compression="infer", is_text=False) as handles:
        if len(data := handles.handle.read(_MOST_BYTES + 1)) > _MOST_BYTES:
            raise ValueError(f"it holds over {_MOST_BYTES / 2**30:g} GiB of text: take fewer rows, or write parquet")
    text, notes = _decoded(data, dialect.encoding)
    sep = dialect.sep or max(_DELIMITERS, key=lambda each: _num_cells(text, each, dialect.header or 0))
    options: dict[str, Any] = {"dtype": str, "keep_default_na": False, "skipinitialspace": True, "index_col": False}
    engine = "python" if len(sep) > 1 else "c"  # the former reads patterns
    read = partial(pandas.read_csv, sep=sep, skiprows=dialect.header or 0, engine=engine, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", category=pandas.errors.ParserWarning)
        try:
            frame = read(io.StringIO(text), header=None if dialect.header is None else 0)
        except pandas.errors.ParserWarning as error:
            raise ValueError(
                "its lines have one more cell than there are names: name it, or take off the delimiter at their ends"
            ) from error
    if dialect.header is None:
        return frame, [], notes
    names = list(read(io.StringIO(text), header=None, nrows=1).iloc[0])
    return frame, names, [*notes, *_notes_on_quotes(frame, sep if len(sep) > 1 else re.escape(sep))]


def _decoded(data: bytes, encoding: str | None) -> tuple[str, list[str]]:
    """Return text in an encoding, by default UTF-8, or Windows-1252 if hardly a letter beyond ASCII is UTF-8."""
    is_utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    tried, notes = encoding or ("utf-16" if is_utf_16 else "utf-8-sig"), []
    try:
        text = data.decode(tried)
    except UnicodeDecodeError as error:
        letters = re.sub("[\x00-\x7f]", "", data.decode("utf-8-sig", "surrogateescape"))
        num_right = len(letters) - len(re.findall("[\udc80-\udcff]", letters))
        if encoding is None and 11 * num_right > len(letters):
            line = data.count(b"\n", 0, error.start) + 1
            raise ValueError(f"line {line} is not UTF-8, as others are: mend it, or give its --encoding") from error
        tried = encoding or "cp1252"
        if encoding is not None or (text := data.decode(tried, "replace")).count("\ufffd"):
            told = f"it is not a text file in {tried}: give one, or its --encoding ({error.reason})"
            raise ValueError(told) from error
        notes = ["it is not UTF-8, and was read as Windows-1252: --encoding names another"]
    if "\x00" in text:
        raise ValueError("it is not a text file in UTF-8: give one, or its --encoding (utf-16, for example)")
    return text, notes


def _num_cells(text: str, sep: str, header: int) -> int:
    """Return the number of cells by a delimiter in the first lines that have as many as the header."""
    lines = islice(io.StringIO(text[: 2**20], newline=None), header, header + _LINES)
    rows = [row for row in csv.reader(lines, delimiter=sep, skipinitialspace=True) if row]
    width = len(rows[0]) if rows else 0
    return sum(width for row in rows if len(row) == width or (len(row) == width + 1 and not row[-1]))


def _checked_names(names: Sequence[object], frame: Any) -> list[str]:
    """Return the names of all columns; the unnamed ones in front, such as an index, are known by their places."""
    found = [column_name(name) for name in names or range(frame.shape[1])]
    if twice := sorted({name for name in found if name and found.count(name) > 1}):
        raise ValueError(f"more than one column is named {listed(twice)}: rename all but one")
    if names and all(map(_NUMBER.fullmatch, found)):
        raise ValueError("it begins with numbers: say by --header which line has the names of the columns, or none")
    named = [place for place, name in enumerate(found) if name.strip()]
    for place in {*range(len(found))} - {*named, *range(named[0] if named else 0)}:
        if len(rows := np.flatnonzero(frame.iloc[:, place].str.strip() != "")):
            raise ValueError(
                f"{len(rows):,} cells, the first in row {rows[0]}, are in column {place}, which has no name: name it, "
                "take away a delimiter too many, or say by --header which line has the names"
            )
    return [name if name.strip() else f"Unnamed: {place}" for place, name in enumerate(found)]


def _with_holes(frame: Any, id_column: str | None) -> Any:
    """Drop empty rows at the end and repeated headers, turn marks of missing cells to None, compose letters (NFC)."""
    stripped = frame.apply(lambda each: each if each.name == id_column else each.str.strip().str.normalize("NFC"))
    named = stripped.loc[:, ~frame.columns.str.startswith("Unnamed: ")]
    is_header = (named == named.columns).all(axis=1) & (named.shape[1] > 1)
    is_at_end = (stripped == "").all(axis=1)[::-1].cummin()[::-1]
    marked = stripped.isin({name: _MARKS for name in frame if name != id_column})
    return stripped.mask(marked, None)[~(is_header | is_at_end)]


def _notes_on_quotes(frame: Any, sep: str) -> Iterator[str]:
    width = frame.shape[1]
    for name in frame if width > 2 else ():
        for row, cell in frame[name][frame[name].str.contains("\n", regex=False)].items():
            if any(len(re.findall(sep, line)) >= width - 1 for line in cell.split("\n")):
                yield f"row {row} has a cell with whole lines in it: a quote may not be closed there ({cell[:40]!r})"
                return


def _notes_on_rows(frame: Any, has_names: bool) -> Iterator[str]:
    """Refuse a second line of names; yield notes on names that are numbers, and on rows that sum up others."""
    head = frame.head(_LINES).map(lambda cell: None if cell is None or cell != cell else bool(_NUMBER.fullmatch(cell)))
    rest = head[1:]
    of_numbers = [name for name in frame if rest[name].notna().sum() >= _FEWEST and rest[name].fillna(True).all()]
    first = [head[name].iloc[0] for name in of_numbers]
    if sum(each is not None for each in first) > 1 and not any(first):
        told = "which are numbers in all other rows: delete this row if it holds units"
        raise ValueError(f"its first row has text in {listed(of_numbers)}, {told}")
    if has_names and (numbered := [name for name in of_numbers if _NUMBER.fullmatch(name)]):
        yield f"columns are called {listed(numbered)}: give --header none if these are cells of the first row"
    for name in frame:
        cells = frame[name].str.strip(": ")
        are_sums = cells.str.fullmatch(_TOTALS, case=False, na=False).to_numpy(dtype=bool)
        if 0 < are_sums.sum() <= max(1, _MOST_TOTALS * len(frame)):
            rows = np.flatnonzero(are_sums).tolist()
            called = frame[name].iloc[rows[0]]
            yield f"rows {listed(rows)} are called {called!r}: delete them if they sum up others"
