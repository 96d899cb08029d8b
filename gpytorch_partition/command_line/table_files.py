"""Text files, parquet files and workbooks as data frames, which pandas reads (extra `tables`)."""

from __future__ import annotations

import lzma
import re
import warnings
import zlib
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

from gpytorch_partition.command_line.outputs import CommandError, listed
from gpytorch_partition.tables.notations import MARKS

_DELIMITERS = (",", ";", "\t", "|")
_DAMAGED = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, BadZipFile, RuntimeError, LookupError)
_NUMBER = re.compile(r"\s*[-+]?\d+[.,]?\d*(e[-+]?\d+)?\s*", re.IGNORECASE)
_MARKS = sorted({written for mark in MARKS for written in (mark, mark.upper(), mark.title(), "NaN", "NaT")})
_LIBRARIES = {".parquet": "pyarrow", ".pq": "pyarrow", ".xlsx": "openpyxl"}


class Dialect(NamedTuple):
    """The notation of a text file in the options of a command; None is detected in the file."""

    sep: str | None = None  # between cells
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    header: int | None = 0  # the line that names the columns, from 0; None where there is none

    @classmethod
    def of_options(cls, options: Namespace) -> Dialect:
        return cls(**{name: getattr(options, name, None) for name in cls._fields})


def read_frame(path: Path, dialect: Dialect = Dialect(), id_column: str | None = None) -> Any:  # noqa: B008 (a tuple)
    """
    Return the columns of a file as a data frame: of text files and workbooks as texts, None where a cell is missing.

    :param path: A parquet file (`.parquet`, `.pq`), an Excel workbook (`.xlsx`), or a text file, which may be
        compressed (`.gz`, `.bz2`, `.xz`, `.zip`).
    :param id_column: The column whose cells are not changed.
    :raises CommandError: If it cannot be read, has no rows, or has two columns of one name.
    """
    library = _LIBRARIES.get(path.suffix.lower(), "pandas")
    if find_spec("pandas") is None or find_spec(library) is None:
        raise CommandError(f'{path} is read by {library} and pandas: pip install "gpytorch_partition[tables]"')
    read = {"pyarrow": _of_parquet, "openpyxl": _of_workbook}.get(library, _of_text)
    with told_of(path, "cannot read ", _DAMAGED):
        frame = read(path, dialect)
        frame.columns = [str(name) for name in frame.columns]
        if library != "pyarrow":
            frame = _with_holes(frame, id_column)
    if not len(frame):
        raise CommandError(f"{path} has a header but no rows")
    return frame.reset_index(drop=True)


@contextmanager
def told_of(path: Path, what: str = "", kinds: Any = (TypeError, ValueError)) -> Iterator[None]:
    """Turn errors that a file causes into a :class:`CommandError` that names it."""
    try:
        yield
    except kinds as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise CommandError(f"{what}{path}: {reason}") from error


def texts_of(column: Any) -> Any:
    """Return the cells of a column as texts, None where they are missing."""
    return column.astype(object).where(column.isna(), column.astype(str)).mask(column.isna(), None)


def _with_holes(frame: Any, id_column: str | None) -> Any:
    """Drop empty rows and repeated headers, and replace marks of missing cells by None."""
    stripped = frame.apply(lambda column: column if column.name == id_column else column.str.strip())
    is_row = ~((stripped == "") | (stripped == frame.columns)).all(axis=1)
    return stripped.mask(stripped.isin({name: _MARKS for name in frame if name != id_column}), None)[is_row]


def _of_parquet(path: Path, _: Dialect) -> Any:
    """Read columns with their own types; true and false become texts, as in other files."""
    import pandas

    frame = pandas.read_parquet(path, dtype_backend="numpy_nullable")  # whole numbers beside missing cells stay whole
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    for name in frame.columns[[dtype == "boolean" for dtype in frame.dtypes]]:
        frame[name] = texts_of(frame[name])
    return frame


def _of_workbook(path: Path, dialect: Dialect) -> Any:
    import pandas

    return pandas.read_excel(path, header=dialect.header, dtype=str, keep_default_na=False)


def _of_text(path: Path, dialect: Dialect) -> Any:
    for encoding in ("utf-8-sig", "cp1252") if dialect.encoding is None else (dialect.encoding,):
        try:
            return _decoded(path, dialect, encoding)
        except UnicodeDecodeError as error:
            told = f"it is not a text file in {encoding}: give one, or its --encoding ({error.reason})"
    raise ValueError(told)


def _decoded(path: Path, dialect: Dialect, encoding: str) -> Any:
    import pandas

    options: dict[str, Any] = {"dtype": str, "keep_default_na": False, "skipinitialspace": True, "index_col": False}
    read = partial(pandas.read_csv, path, encoding=encoding, **options)
    first = partial(read, header=None, skiprows=dialect.header or 0)
    sep = dialect.sep or max(_DELIMITERS, key=lambda each: _num_cells(partial(first, sep=each)))
    names = list(first(sep=sep, nrows=1).iloc[0]) if dialect.header is not None else [""]
    if twice := sorted({name for name in names if name and names.count(name) > 1}):
        raise ValueError(f"more than one column is named {listed(twice)}: rename all but one")
    if all(map(_NUMBER.fullmatch, names)):
        raise ValueError("it begins with numbers: say by --header which line has the names of the columns, or none")
    with warnings.catch_warnings():
        warnings.simplefilter("error", category=pandas.errors.ParserWarning)  # that cells of long lines are left out
        frame = read(sep=sep, header=dialect.header)
    if any("\x00" in str(cell) for cell in (*frame.columns, *frame.head(1).to_numpy().ravel())):
        raise ValueError("it is not a text file in UTF-8: give one, or its --encoding (utf-16, for example)")
    return frame


def _num_cells(read: Any) -> int:
    """Return the number of cells by a delimiter in the first lines that have at most as many as the header."""
    return int((read(nrows=100, on_bad_lines="skip") != "").to_numpy().sum())
