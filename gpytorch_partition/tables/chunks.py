"""Chunks of rows that can be read more than once, and a uniform sample of their rows, drawn in one pass."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array, column_or_1d

from gpytorch_partition.inputs.text_targets import told_of_odd
from gpytorch_partition.tables.cells import as_frame, as_pandas, names_of, pandas_for, read_cells

_ROWS_AT_ONCE = 2**16  # of arrays and parquet files
_NUMBERS_AT_ONCE = 2**24  # of wide arrays
_FORMS = "a folder of parquet files, a pair of arrays, a list of (X, y), or a function that returns an iterator of such"


class Chunk(NamedTuple):
    x: Any  # an array (`n x D`) or a DataFrame
    y: np.ndarray  # n finite targets
    first_row: int  # the number of its first row among all rows, from 0
    name: str  # in errors


class ChunkSource:
    """A source of chunks, which checks them in each pass; a pass other than the first raises a `RuntimeError`."""

    def __init__(self, chunks: Any, target: str | None = None) -> None:
        self.num_chunks: int | None = None  # where it is known
        self._first_pass: tuple[int, list[int]] | None = None  # number of rows and check sums
        if target is not None and not isinstance(target, str):
            raise TypeError(
                f"expected target as the name of a column of parquet files, or None, got a {type(target).__name__}: "
                "rows and targets are a pair, fit_chunks((X, y)), or fit(X, y)"
            )
        if isinstance(chunks, str | os.PathLike):
            self._open, self.num_chunks = _parquet(Path(chunks), target)
            return
        if isinstance(chunks, tuple) and len(chunks) == 2 and all(map(_is_array, chunks)):
            _refuse_sparse(chunks[0], "the pair of arrays")
            _check_lengths(*chunks, "the pair of arrays")
            self._open, self.num_chunks = _in_slices(*chunks)
        else:
            self._open = chunks if callable(chunks) else partial(iter, _checked_iterable(chunks))
            self.num_chunks = len(chunks) if isinstance(chunks, Sized) else None
        if target is not None:
            raise ValueError(f"expected target=None, as chunks have their targets with them, got {target!r}")

    def __iter__(self) -> Iterator[Chunk]:
        first_row, known, number = 0, None, -1
        sums: list[int] = []  # of each column, the same in chunks of any sizes
        for number, pair in enumerate(self._open()):
            x, y = _pair(pair, f"chunk {number}")
            rows = f"rows {first_row:,} to {first_row + len(y) - 1:,}" if len(y) > 1 else f"row {first_row:,}"
            chunk = Chunk(x, y, first_row, f"chunk {number} ({rows})")
            known = _checked_columns(chunk, known)
            columns = [y, *(column for _, column in _columns(x))]
            sums = [zlib.crc32(_bytes_of(column), each) for column, each in zip_longest(columns, sums, fillvalue=0)]
            first_row += len(y)
            if len(y):
                yield chunk
        if not first_row:
            raise ValueError(f"expected chunks with rows, got {number + 1} chunks without any")
        self.num_chunks = number + 1
        self._first_pass = self._first_pass or (first_row, sums)
        if self._first_pass != (first_row, sums):
            raise RuntimeError(
                f"expected the same rows in all passes, got {self._first_pass[0]:,} first and {first_row:,} then, or "
                "with other numbers or in another order: chunks must not change, nor be shuffled anew, and a function "
                "must begin anew"
            )


class RowSample:
    """
    Draw a uniform sample of `size` rows, half of all rows at most: those with the least random priorities, in order.

    The priority of row i is the i-th number of a stream, so that the sample does not depend on the sizes of chunks
    (reservoir sampling; Vitter 1985, Efraimidis & Spirakis 2006). Memory holds at most twice the sample, and a chunk.
    """

    x: Any  # the rows, in the form of the chunks
    y: np.ndarray
    rows: np.ndarray  # their numbers among all `num_rows` rows, from 0

    def __init__(self, size: int, random: np.random.RandomState) -> None:
        self.size, self.num_rows = size, 0
        # A generator of another kind, since data simulated by a RandomState with the same seed would be the
        # priorities themselves, and the sample their least values.
        self._random = np.random.Generator(np.random.Philox(random.randint(2**31)))

    def of(self, chunks: Iterable[Chunk]) -> RowSample:
        kept, num_kept, limit = list[_Rows](), 0, 1.0
        for chunk in chunks:
            priorities = self._random.random(len(chunk.y))
            chosen = np.flatnonzero(priorities < limit)
            kept.append(_Rows(rows_of(chunk.x, chosen), chunk.y[chosen], self.num_rows + chosen, priorities[chosen]))
            num_kept += len(chosen)
            self.num_rows += len(chunk.y)
            if num_kept > 2 * self.size:
                kept, num_kept = [_with_least(kept, self.size)], self.size
                limit = float(kept[0].priorities.max())
        self.x, self.y, self.rows, _ = _with_least(kept, min(self.size, -(-self.num_rows // 2)))
        return self

    def others(self, chunk: Chunk) -> np.ndarray:
        """Return the numbers, within a chunk, of its rows that are not in the sample."""
        return np.flatnonzero(~np.isin(chunk.first_row + np.arange(len(chunk.y)), self.rows))


class _Rows(NamedTuple):
    x: Any
    y: np.ndarray
    numbers: np.ndarray
    priorities: np.ndarray


def _with_least(parts: list[_Rows], size: int) -> _Rows:
    y, numbers, priorities = (np.concatenate(each) for each in [*zip(*parts)][1:])
    least = np.sort(np.argsort(priorities, kind="stable")[:size])
    x = rows_of(joined([part.x for part in parts]), least)
    return _Rows(x, y[least], numbers[least], priorities[least])


def rows_of(x: Any, rows: Any) -> Any:
    """Return a copy of some rows of a chunk, by their numbers in it."""
    return x.iloc[rows].copy() if hasattr(x, "iloc") else x[rows]


def joined(parts: list[Any]) -> Any:
    is_frame = hasattr(parts[0], "iloc")
    return pandas_for("data frames").concat(parts, ignore_index=True) if is_frame else np.concatenate(parts)


def number_columns(x: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the columns of floating point numbers of a chunk, with their names; `x0` is the first of an array."""
    for name, column in _columns(x):
        if column.dtype.kind == "f":
            yield str(name), read_cells(column, str(name)).values


def _in_slices(x: Any, y: Any) -> tuple[Callable[[], Iterator[Any]], int]:
    size = min(_ROWS_AT_ONCE, max(1, _NUMBERS_AT_ONCE // max(1, np.asarray(_slice(x, slice(0, 1))).size)))
    slices = [slice(start, start + size) for start in range(0, len(y), size)]
    return lambda: ((_slice(x, rows), np.asarray(_slice(y, rows))) for rows in slices), len(slices)


def _slice(values: Any, rows: slice) -> Any:
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    return values[rows] if hasattr(values, "columns") else np.asarray(values[rows])


def _is_array(value: Any) -> bool:
    return not isinstance(value, tuple | list | Mapping) and getattr(value, "ndim", 0) > 0


def _checked_iterable(chunks: Any) -> Iterable[Any]:
    if isinstance(chunks, Iterator):
        raise TypeError(
            f"expected chunks that can be read twice, got a {type(chunks).__name__}, which is used up: give a function "
            "that begins anew, fit_chunks(lambda: array_chunks(x, y)), or a list"
        )
    if not isinstance(chunks, Iterable) or isinstance(chunks, Mapping) or _is_array(chunks):
        raise TypeError(f"expected {_FORMS}, got a {type(chunks).__name__}; fit(X, y) takes rows in memory")
    return chunks


def _pair(pair: Any, name: str) -> tuple[Any, np.ndarray]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"{name}: expected a pair (X, y) of rows and targets, got a {type(pair).__name__}")
    x, y = _checked_rows(pair[0], name), _targets(pair[1], name)
    _check_lengths(x, y, name)
    return x, y


def _checked_rows(x: Any, name: str) -> Any:
    _refuse_sparse(x, name)
    rows = as_frame(x) if isinstance(x, Mapping) else as_pandas(x) if hasattr(x, "columns") else np.asarray(x)
    if rows.ndim == 0:
        raise TypeError(f"{name}: expected rows (n x D) or a table, got a {type(x).__name__}")
    return rows


def _refuse_sparse(x: Any, name: str) -> None:
    if issparse(x):
        raise TypeError(
            f"{name}: expected dense rows, got a {type(x).__name__}: give X.toarray() of a chunk at a time, or in "
            "place of one-hot columns the categories themselves"
        )


def _targets(y: Any, name: str) -> np.ndarray:
    values = np.asarray(as_pandas(y))
    if values.dtype.kind in "mM":  # NumPy would count from 1970
        raise ValueError(f"{name}: expected targets that are real numbers, got {values.dtype.name}")
    if values.dtype.kind in "OUT" and (odd := told_of_odd(values)):
        raise ValueError(f"{name}: expected targets that are numbers: {odd}")
    try:
        found = check_array(values, ensure_2d=False, ensure_min_samples=0, dtype=np.float64, input_name="y")
        return column_or_1d(found)
    except ValueError as error:
        raise ValueError(f"{name}: expected one finite target for each row, got another y: {error}") from error


def _check_lengths(x: Any, y: Any, name: str) -> None:
    if len(x) != len(y):
        raise ValueError(f"{name}: expected as many targets as rows, got {len(x):,} rows and {len(y):,} targets")


def _columns(x: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a chunk, with their names; `x0` is the first of an array."""
    if hasattr(x, "columns"):
        yield from x.items()
    else:
        yield from ((f"x{number}", x[:, number]) for number in range(x.shape[1]))


def _bytes_of(column: Any) -> bytes:
    values = np.asarray(column)
    if values.dtype.kind in "fiub":
        return values.astype(np.float64).tobytes()
    return pandas_for("columns of text and dates").util.hash_array(values.astype(object)).tobytes()


def _checked_columns(chunk: Chunk, known: list[str] | int | None) -> list[str] | int:
    """Return the columns of a chunk, names or their number; they must be those of the first chunk."""
    if (x := chunk.x).ndim != 2:
        raise ValueError(f"{chunk.name}: expected rows (n x D), got an array of shape {x.shape}")
    columns: list[str] | int = [str(name) for name in x.columns] if hasattr(x, "columns") else x.shape[1]
    if known is not None and columns != known:
        shown, got = (names_of(each) if isinstance(each, list) else f"{each} columns" for each in (known, columns))
        raise ValueError(f"{chunk.name}: expected the columns of the first chunk, {shown}, in its order, got {got}")
    return columns


def _parquet(path: Path, target: str | None) -> tuple[Callable[[], Iterator[Any]], int]:
    """Return a function that reads pairs of a DataFrame and its targets, file by file, and the number of pairs."""
    if find_spec("pandas") is None or find_spec("pyarrow") is None:
        raise ImportError('parquet files are read by pyarrow and pandas: pip install "gpytorch_partition[tables]"')
    if not path.exists():
        raise FileNotFoundError(f"expected a parquet file or a folder of such, got {path}, which does not exist")
    with _told(path):
        files, schema = _files_and_schema(path)
        sizes = [file.metadata.row_group(i).num_rows for file in files for i in range(file.metadata.num_row_groups)]
    if target is None or target not in schema.names:
        raise ValueError(
            f"expected target as the name of the column of targets, one of {names_of(schema.names)}, got {target!r}: "
            "fit_chunks(path, 'name')"
        )
    return partial(_pairs_of_files, files, schema, target), sum(-(-size // _ROWS_AT_ONCE) for size in sizes)


@contextmanager
def _told(path: Any) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(
            f"expected whole parquet files of one type a column, got {path}: {error}: write damaged ones anew, and "
            "convert columns, for example by pandas' astype before to_parquet"
        ) from error


def _files_and_schema(path: Path) -> tuple[list[Any], Any]:
    """Return files, and the columns of all of them and of keys of folders, in types that hold all; without indexes."""
    import pyarrow
    from pyarrow import dataset

    names = sorted({each.name.partition("=")[0] for each in path.rglob("*=*/")})
    keys = [pyarrow.field(name, "string") for name in names]
    as_text = dataset.partitioning(pyarrow.schema(keys), flavor="hive")
    found = dataset.dataset(path, format="parquet", partitioning=as_text)
    if not (files := sorted(found.get_fragments(), key=lambda file: file.path)):
        raise OSError("there is none")
    schemas = [file.physical_schema for file in files]
    indexes = [name for each in schemas for name in (each.pandas_metadata or {}).get("index_columns", ())]
    own = [pyarrow.schema([column for column in each if column.name not in indexes]) for each in schemas]
    schema = pyarrow.unify_schemas(own, promote_options="permissive")
    return files, pyarrow.schema([*schema, *(key for key in keys if key.name not in schema.names)])


def _pairs_of_files(files: list[Any], schema: Any, target: str) -> Iterator[tuple[Any, Any]]:
    for file in files:
        options = {"schema": schema, "batch_size": _ROWS_AT_ONCE, "batch_readahead": 1, "fragment_readahead": 1}
        with _told(file.path):
            for batch in file.to_batches(**options):
                frame = batch.to_pandas()
                yield frame.drop(columns=target), frame[target]
