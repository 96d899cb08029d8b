"""What chunks of rows may be: delayed objects, Dask arrays and dataframes, pairs of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from dask.base import is_dask_collection
from dask.delayed import Delayed
from torch import Tensor


def shards_of(chunks: Any) -> tuple[list[Any], list[str]]:
    """
    What the tasks of shards take, and what to call them in errors.

    :param chunks: A pair (X, y) of Dask arrays or dataframes, or an iterable of chunks: delayed objects of pairs, or
        pairs of arrays or of delayed objects.
    :raises TypeError: If it is anything else.
    :raises ValueError: If there are none, or X and y have different partitions.
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
    return shards, [f"chunk {i} of {len(shards)}{_key_of(shard)}" for i, shard in enumerate(shards)]


def has_partitions(collection: Any) -> bool:
    """Whether something is a Dask array or dataframe."""
    return is_dask_collection(collection) and not isinstance(collection, Delayed)


def blocks_of(collection: Any) -> list[Delayed]:
    """The partitions of a Dask dataframe, or the blocks of rows of an array."""
    if hasattr(collection, "divisions"):  # optimized, partitions of parquet files are put together by their columns
        return collection.to_delayed(optimize_graph=False)
    return list((collection.rechunk({1: -1}) if collection.ndim == 2 else collection).to_delayed().ravel())


def tensors_of(chunk: Any) -> tuple[Tensor, Tensor]:
    """Points and targets of a chunk, on the worker."""
    if not isinstance(chunk, tuple | list) or len(chunk) != 2:
        got = f"{len(chunk)} parts" if isinstance(chunk, tuple | list) else f"a {type(chunk).__name__}"
        raise TypeError(f"expected chunks of two parts, points and targets, got {got}")
    x, y = map(numbers_of, chunk)
    y = y.squeeze(-1) if y.dim() == 2 and y.shape[1] == 1 else y
    if x.dim() != 2 or y.shape != x.shape[:1]:
        raise ValueError(f"expected rows (n x D) and as many targets (n), got {tuple(x.shape)} and {tuple(y.shape)}")
    if not y.isfinite().all():
        raise ValueError("expected finite targets, got NaN or infinity: drop these rows")
    return x, y


def numbers_of(part: Any) -> Tensor:
    """An array or a dataframe as a tensor of floats."""
    if torch.is_tensor(part):
        return part
    array = np.asarray(part)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"expected columns of numbers, got {array.dtype}: encode text and categories first")
    return torch.tensor(array if array.dtype.kind == "f" else array.astype(np.float64))


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
