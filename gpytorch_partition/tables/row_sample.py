"""A uniform sample of rows, drawn in one pass over chunks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from gpytorch_partition.tables.chunks import Chunk, joined, rows_of


class RowSample:
    """
    A uniform sample, the rows with the least random priorities (a reservoir, Vitter 1985; by keys as Efraimidis &
    Spirakis 2006).

    Row i of all rows has the i-th number of a stream as its priority. The sample depends on seed, size and the order of
    the rows, not on the sizes of chunks, and keeps the order of the rows. Holds twice the sample at most, and a chunk.

    :param size: Number of rows wanted; half of the rows where there are fewer than twice as many.
    :param random: Source of the seed of the priorities.

    Example:
        >>> chunks = [Chunk(np.arange(5.0)[:, None], np.arange(5.0), first, "") for first in (0, 5)]
        >>> sample = RowSample(3, np.random.RandomState(0)).of(chunks)
        >>> len(sample.y), sample.rows.tolist() == sorted(sample.rows), sample.num_rows
        (3, True, 10)
    """

    def __init__(self, size: int, random: np.random.RandomState) -> None:
        self.size, self.num_rows = size, 0
        # A generator of another kind, since data simulated by a RandomState with the same seed would be the
        # priorities themselves, and the sample their least values.
        self._random = np.random.Generator(np.random.Philox(random.randint(2**31)))
        self._limit = 1.0
        self._kept: list[_Rows] = []
        self._num_kept = 0

    def of(self, chunks: Iterable[Chunk]) -> RowSample:
        """
        Draw the sample from the rows of all chunks, and return it.

        :param chunks: The chunks.
        """
        for chunk in chunks:
            self._add(chunk)
            if self._num_kept > 2 * self.size:
                self._keep_least(self.size)
        self._keep_least(min(self.size, -(-self.num_rows // 2)))
        return self

    def others(self, chunk: Chunk) -> np.ndarray:
        """
        Return the numbers, within a chunk, of its rows that are not in the sample.

        :param chunk: One of the chunks of the sample.
        """
        is_other = np.ones(len(chunk.y), dtype=bool)
        low, high = np.searchsorted(self.rows, [chunk.first_row, chunk.first_row + len(chunk.y)])
        is_other[self.rows[low:high] - chunk.first_row] = False
        return np.flatnonzero(is_other)

    @property
    def x(self) -> Any:
        """Return the rows, in the form of the chunks."""
        return self._kept[0].x

    @property
    def y(self) -> np.ndarray:
        """Return the targets of the rows."""
        return self._kept[0].y

    @property
    def rows(self) -> np.ndarray:
        """Return the numbers of the rows among all rows, from 0."""
        return self._kept[0].numbers

    def _add(self, chunk: Chunk) -> None:
        priorities = self._random.random(len(chunk.y))
        chosen = np.flatnonzero(priorities < self._limit)
        found = _Rows(rows_of(chunk.x, chosen), chunk.y[chosen], priorities[chosen], self.num_rows + chosen)
        self._kept.append(found)
        self._num_kept += len(chosen)
        self.num_rows += len(chunk.y)

    def _keep_least(self, size: int) -> None:
        priorities, numbers, y = (
            np.concatenate([getattr(part, name) for part in self._kept]) for name in ("priorities", "numbers", "y")
        )
        least = np.sort(np.argsort(priorities, kind="stable")[:size])
        x = rows_of(joined([part.x for part in self._kept]), least)
        self._kept = [_Rows(x, y[least], priorities[least], numbers[least])]
        self._num_kept = len(least)
        self._limit = float(priorities[least].max())


class _Rows(NamedTuple):
    x: Any
    y: np.ndarray
    priorities: np.ndarray
    numbers: np.ndarray
