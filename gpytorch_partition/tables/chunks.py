"""Chunks of rows that can be read more than once, from parquet folders, pairs of arrays on disk, and iterables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sized
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from gpytorch_partition.inputs.text_targets import Remedies, odd_targets, told_of_odd
from gpytorch_partition.tables.cells import as_array, names_of, read_cells
from gpytorch_partition.tables.parquet_files import parquet_batches

_ROWS_AT_ONCE = 2**16  # of arrays and parquet files
_NUMBERS_AT_ONCE = 2**24  # of wide arrays
_FORMS = (
    "a folder of parquet files, a pair of arrays (np.load(..., mmap_mode='r')), a list of (X, y), or a function that "
    "returns an iterator of (X, y)"
)


class Chunk(NamedTuple):
    """
    Some rows and their targets.

    :param x: An array (`n x D`), a DataFrame, or a mapping from names to columns.
    :param y: `n` finite targets.
    :param first_row: The number of its first row among all rows, from 0.
    :param name: Name of the chunk in errors.
    """

    x: Any
    y: np.ndarray
    first_row: int
    name: str


class ChunkSource:
    """
    A source of chunks of rows, which can be read several times and checks them while reading. A pass whose targets or
    order differ from the first pass raises an error at its end.

    :param chunks: A path of a parquet file or of a folder of parquet files; a pair of arrays, memory-mapped ones too;
        an iterable of pairs (X, y) that can be iterated over again; or a function without arguments that returns an
        iterator of them.
    :param target: The column of parquet files that holds the targets; None for all others.
    :raises TypeError: If chunks are anything else, such as a generator, which can be read only once, or the target is
        no text.
    :raises ValueError: If the target is no column, or is not given for parquet files, or given for others.
    :raises ImportError: If parquet files are to be read without pyarrow and pandas.

    Example:
        >>> source = ChunkSource([(np.zeros((2, 1)), [1, 2]), (np.ones((1, 1)), [3])])
        >>> [(chunk.name, chunk.y.tolist()) for chunk in source]
        [('chunk 0 (rows 0 to 1)', [1.0, 2.0]), ('chunk 1 (row 2)', [3.0])]
    """

    def __init__(self, chunks: Any, target: str | None = None) -> None:
        self.num_chunks: int | None = None  # where it is known
        self._first_pass: tuple[int, int] | None = None  # number of rows and check sum
        if target is not None and not isinstance(target, str):
            raise TypeError(
                "expected target as the name of a column of parquet files, or None, got a "
                f"{type(target).__name__}: rows and targets are one argument, a pair, fit_chunks((X, y)); fit(X, y) "
                "takes rows in memory"
            )
        if isinstance(chunks, str | os.PathLike):
            self._open, self.num_chunks = parquet_batches(Path(chunks), target, _ROWS_AT_ONCE)
            return
        if isinstance(chunks, tuple) and len(chunks) == 2 and all(map(_is_array, chunks)):
            _refuse_sparse(chunks[0], "the pair of arrays")
            _check_lengths(*chunks, "the pair of arrays")
            chunks = _Slices(*chunks)
        self._open = chunks if callable(chunks) else partial(iter, _checked_iterable(chunks))
        if target is not None:
            raise ValueError(f"expected target=None, as chunks have their targets with them, got {target!r}")
        self.num_chunks = len(chunks) if isinstance(chunks, Sized) else None

    def __iter__(self) -> Iterator[Chunk]:
        first_row, known, number, check_sum = 0, None, -1, 0
        for number, pair in enumerate(self._open()):
            x, y = _pair(pair, f"chunk {number}")
            rows = f"rows {first_row:,} to {first_row + len(y) - 1:,}" if len(y) > 1 else f"row {first_row:,}"
            chunk = Chunk(x, y, first_row, f"chunk {number} ({rows})")
            known = _checked_columns(chunk, known)
            check_sum = (check_sum + _check_sum(y, first_row)) % 2**64
            first_row += len(y)
            if len(y):
                yield chunk
        if not first_row:
            raise ValueError(f"expected chunks with rows, got {number + 1} chunks without any")
        self.num_chunks = number + 1
        self._first_pass = self._first_pass or (first_row, check_sum)
        _check_same_rows(self._first_pass, (first_row, check_sum))


def rows_of(x: Any, rows: np.ndarray) -> Any:
    """
    Return a copy of some rows of a chunk.

    :param x: Rows of a :class:`Chunk`.
    :param rows: Numbers of the rows in the chunk.
    """
    if isinstance(x, Mapping):
        return {name: rows_of(column, rows) for name, column in x.items()}
    return x.iloc[rows].copy() if hasattr(x, "iloc") else x[rows]


def joined(parts: list[Any]) -> Any:
    r"""
    Return the rows of all parts, one part after another.

    :param parts: Rows of :class:`Chunk`\ s, all of one kind.
    """
    if isinstance(parts[0], Mapping):
        return {name: joined([part[name] for part in parts]) for name in parts[0]}
    if hasattr(parts[0], "iloc"):
        import pandas

        return pandas.concat(parts, ignore_index=True)
    return np.concatenate(parts)


def number_columns(x: Any) -> Iterator[tuple[str, np.ndarray]]:
    """
    Yield the columns of floating point numbers of a chunk, with their names; `x0` is the first of an array.

    :param x: Rows of a :class:`Chunk`.
    """
    if not isinstance(x, Mapping) and not hasattr(x, "columns"):
        x = {f"x{number}": x[:, number] for number in range(x.shape[1])}
    for name in x if isinstance(x, Mapping) else x.columns:
        if getattr(getattr(x[name], "dtype", None), "kind", "") == "f":
            yield str(name), read_cells(x[name], str(name)).values


class _Slices:
    def __init__(self, x: Any, y: Any) -> None:
        self._x, self._y = x, y
        self._size = min(_ROWS_AT_ONCE, max(1, _NUMBERS_AT_ONCE // max(1, np.asarray(_slice(x, slice(0, 1))).size)))

    def __len__(self) -> int:
        return -(-len(self._y) // self._size)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for start in range(0, len(self._y), self._size):
            rows = slice(start, start + self._size)
            yield _slice(self._x, rows), np.asarray(_slice(self._y, rows))


def _slice(values: Any, rows: slice) -> Any:
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    return values[rows] if hasattr(values, "columns") else np.asarray(values[rows])


def _is_array(value: Any) -> bool:
    return not isinstance(value, tuple | list | Mapping) and getattr(value, "ndim", 0) > 0


def _checked_iterable(chunks: Any) -> Iterable[Any]:
    if isinstance(chunks, Iterator):
        raise TypeError(
            f"expected chunks that can be read twice, got a {type(chunks).__name__}, which is used up by the first "
            "pass: give a function that begins anew, fit_chunks(lambda: array_chunks(x, y)), or a list"
        )
    if not isinstance(chunks, Iterable) or isinstance(chunks, Mapping) or _is_array(chunks):
        raise TypeError(f"expected {_FORMS}, got a {type(chunks).__name__}; fit(X, y) takes rows in memory")
    return chunks


def _pair(pair: Any, name: str) -> tuple[Any, np.ndarray]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        got = f"{len(pair)} parts" if isinstance(pair, tuple | list) else f"a {type(pair).__name__}"
        raise TypeError(f"{name}: expected a pair (X, y) of rows and targets, got {got}")
    x, y = _rows(pair[0], name), _targets(pair[1], name)
    _check_lengths(_first_column(x), y, name)
    return x, y


def _rows(x: Any, name: str) -> Any:
    _refuse_sparse(x, name)
    if isinstance(x, Mapping):
        return {key: np.asarray(column) if isinstance(column, list | tuple) else column for key, column in x.items()}
    if hasattr(x, "iloc"):
        return x
    rows = x.to_pandas() if hasattr(x, "to_pandas") else np.asarray(x)
    if rows.ndim == 0:
        raise TypeError(f"{name}: expected rows (n x D) or a table, got a {type(x).__name__}")
    return rows


def _refuse_sparse(x: Any, name: str) -> None:
    if issparse(x):
        raise TypeError(
            f"{name}: expected dense rows, got a {type(x).__name__}: give X.toarray() of a chunk at a time, from a "
            "function; instead of one-hot columns give the categories themselves, a column of text each"
        )


def _first_column(x: Any) -> Any:
    return next(iter(x.values()), ()) if isinstance(x, Mapping) else x


def _targets(y: Any, name: str) -> np.ndarray:
    values = as_array(y)
    if values.dtype.kind in "cMm":  # NumPy would drop imaginary parts, or count from 1970
        raise ValueError(f"{name}: expected targets that are real numbers, got {values.dtype.name}")
    if values.dtype.kind in "OUT" and (odd := odd_targets(values)):
        told = told_of_odd(odd, values.size, Remedies("leave these rows out"))
        raise ValueError(f"{name}: expected targets that are numbers: {told}")
    targets = values.astype(np.float64)
    targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
    if targets.ndim != 1:
        raise ValueError(
            f"{name}: expected one target for each row, got targets of shape {targets.shape}; several targets are "
            "fitted in memory, by fit(X, Y)"
        )
    if not (is_finite := np.isfinite(targets)).all():
        raise ValueError(
            f"{name}: expected finite targets, got {int((~is_finite).sum())} that are NaN or infinite, the first in "
            f"row {int(is_finite.argmin())} of the chunk: leave these rows out"
        )
    return targets


def _check_lengths(x: Any, y: Any, name: str) -> None:
    if len(x) != len(y):
        raise ValueError(f"{name}: expected as many targets as rows, got {len(x):,} rows and {len(y):,} targets")


def _check_sum(y: np.ndarray, first_row: int) -> int:
    """A sum over targets and their row numbers, modulo 2^64: exact, so that it does not depend on where chunks end."""
    bits = y.view(np.uint64)
    # Bits are mixed (Steele et al. 2014), since the low bits of most targets, and of their products, are 0.
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(29)
    rows = np.arange(first_row, first_row + len(y), dtype=np.uint64)
    return int((bits * (2 * rows + 1)).sum(dtype=np.uint64))


def _check_same_rows(first: tuple[int, int], now: tuple[int, int]) -> None:
    if first != now:
        got = f"{first[0]:,} first and {now[0]:,} then"
        if first[0] == now[0]:
            got = f"{now[0]:,} rows with other targets or in another order"
        raise RuntimeError(
            f"expected the same rows in all passes, got {got}: chunks must not change, nor be shuffled anew, and a "
            "function must begin anew whenever it is called"
        )


def _checked_columns(chunk: Chunk, known: list[str] | int | None) -> list[str] | int:
    """The columns of a chunk, names or their number; they must be those of the first chunk."""
    x = chunk.x
    if isinstance(x, Mapping) or hasattr(x, "columns"):
        columns: list[str] | int = [str(name) for name in (x if isinstance(x, Mapping) else x.columns)]
    elif x.ndim == 2:
        columns = x.shape[1]
    else:
        raise ValueError(f"{chunk.name}: expected rows (n x D), got an array of shape {x.shape}")
    if known is not None and columns != known:
        shown, got = (names_of(each) if isinstance(each, list) else f"{each} columns" for each in (known, columns))
        raise ValueError(f"{chunk.name}: expected the columns of the first chunk, {shown}, in its order, got {got}")
    return columns
