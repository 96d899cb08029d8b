"""Chunks of rows in all accepted forms: delayed objects, Dask arrays and dataframes, pairs of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from dask.base import is_dask_collection
from dask.delayed import Delayed


class Shards(NamedTuple):
    """Inputs of the tasks of shards (delayed objects, tuples of these, or values), and the shards' names in errors."""

    chunks: list[Any]
    names: list[str]


def shards_of(chunks: Any) -> Shards:
    """
    Convert chunks of any form to shards.

    :param chunks: A pair (X, y) of Dask arrays or dataframes, or an iterable of chunks: delayed objects of pairs, or
        pairs of arrays or of delayed objects.
    :raises TypeError: If `chunks` are none of these.
    :raises ValueError: If there are no chunks, or X and y have different partitions.
    """
    is_pair = isinstance(chunks, tuple | list) and len(chunks) == 2
    if is_pair and all(map(has_partitions, chunks)):
        shards = _aligned(*chunks)
    elif isinstance(chunks, Iterable) and not is_dask_collection(chunks) and not isinstance(chunks, str | bytes | dict):
        shards = [_checked(chunk) for chunk in chunks]
    else:
        raise TypeError(
            f"expected chunks: a pair of Dask collections, or an iterable of delayed objects or of pairs, got a "
            f"{type(chunks).__name__}: read folders by dask.dataframe.read_parquet or dask.array.from_zarr"
        )
    if not shards:
        raise ValueError("expected one chunk of rows or more, got none")
    return Shards(shards, [f"chunk {i} of {len(shards)}{_key_of(shard)}" for i, shard in enumerate(shards)])


def has_partitions(collection: Any) -> bool:
    """Return whether a value is a Dask array or dataframe."""
    return is_dask_collection(collection) and not isinstance(collection, Delayed)


def blocks_of(collection: Any) -> list[Delayed]:
    """Return the partitions of a Dask dataframe, or the blocks of rows of an array."""
    if hasattr(collection, "divisions"):  # optimized, partitions of parquet files are put together by their columns
        return collection.to_delayed(optimize_graph=False)
    return list((collection.rechunk({1: -1}) if collection.ndim == 2 else collection).to_delayed().ravel())


def _aligned(x: Any, y: Any) -> list[tuple[Delayed, Delayed]]:
    if hasattr(x, "chunks") and hasattr(y, "chunks") and not np.isnan([*x.chunks[0], *y.chunks[0]]).any():
        y = y.rechunk((x.chunks[0], *y.chunks[1:])) if len(x) == len(y) else y
    xs, ys = blocks_of(x), blocks_of(y)
    if len(xs) != len(ys):
        raise ValueError(
            f"expected X and y with the same partitions, got {len(xs)} and {len(ys)}: take both from one dataframe"
        )
    return list(zip(xs, ys))


def _checked(chunk: Any) -> Any:
    is_pair = isinstance(chunk, tuple | list) and len(chunk) == 2
    if not is_pair and not isinstance(chunk, Delayed):
        raise TypeError(
            f"expected chunks as delayed objects or pairs of points and targets, got a {type(chunk).__name__}: give "
            "[(X, y)] for one chunk"
        )
    return tuple(chunk) if is_pair else chunk


def _key_of(shard: Any) -> str:
    first = shard[0] if isinstance(shard, tuple) else shard
    return f" ({first.key})" if isinstance(first, Delayed) else ""
