"""
Rows in shards on workers, as tasks of Dask: counts of their clusters, samples, and sums for solvers in cluster space.

Everything is a task, including values that the driver sends, and reductions are a fixed tree. Another worker therefore
recomputes the results of a dead one, and the numbers have equal bits for any number of workers.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple
from uuid import uuid4

import cloudpickle
import dask
import numpy as np
import torch
from dask.base import is_dask_collection
from dask.delayed import Delayed
from distributed import Client, Future, as_completed, default_client
from sklearn.ensemble import BaggingRegressor
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.distributed.shards import (
    Sample,
    counted,
    grown,
    joined,
    labelled,
    merged_counts,
    sampled,
    seeds,
)
from gpytorch_partition.inference.spaces.cluster_rows import LocalRows, Moments
from gpytorch_partition.inference.spaces.statistics import ClusterStatistics
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.models.feature_space_gp import FeatureSpaceGP
from gpytorch_partition.progress import progress

FAN_IN = 16  # results that a task of a reduction adds up: each level of the tree takes some 10 ms
_PIECE = 2**23  # bytes of a message from the driver; Dask warns above 10 MB
_TRIMS_OFTEN = 2**20  # bytes of free memory above which glibc gives it back: temporaries of labels are larger


class Shards(NamedTuple):
    """Hold the inputs of each shard's tasks (delayed objects, tuples of these, values), and the shards' names."""

    chunks: list[Any]
    names: list[str]


def shards_of(chunks: Any) -> Shards:
    """Return the chunks that :func:`count_chunks` takes as shards."""
    is_pair = isinstance(chunks, tuple | list) and len(chunks) == 2
    if is_pair and all(map(has_partitions, chunks)):
        shards = _aligned(*chunks)
    elif isinstance(chunks, Iterable) and not is_dask_collection(chunks) and not isinstance(chunks, str | bytes | dict):
        shards = [_checked(chunk) for chunk in chunks]
    else:
        raise TypeError(
            "expected chunks: a pair of Dask collections, or an iterable of delayed objects or of pairs, got a "
            f"{type(chunks).__name__}: read folders by dask.dataframe.read_parquet or dask.array.from_zarr"
        )
    if not shards:
        raise ValueError("expected one chunk of rows or more, got none")
    first = [shard[0] if isinstance(shard, tuple) else shard for shard in shards]
    keys = [f" ({part.key})" if isinstance(part, Delayed) else "" for part in first]
    return Shards(shards, [f"chunk {i} of {len(shards)}{key}" for i, key in enumerate(keys)])


def has_partitions(collection: Any) -> bool:
    return is_dask_collection(collection) and not isinstance(collection, Delayed)


def blocks_of(collection: Any) -> list[Delayed]:
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


class Task(NamedTuple):
    """Hold a function for tasks, its name on Dask's dashboard, and the last arguments, which all tasks share."""

    name: str
    function: Callable[..., Any]
    shared: tuple[Any, ...] = ()  # futures and small values


def client_of(client: Client | None) -> Client:
    if client is not None and not isinstance(client, Client):
        raise TypeError(f"expected a dask.distributed.Client, got a {type(client).__name__}")
    try:
        return client or default_client()
    except ValueError as error:
        raise ValueError(
            "expected a client, or a current one, got none: make one by dask.distributed.Client()"
        ) from error


def sent(client: Client, name: str, value: Any) -> Future:
    """Send a value of the driver as a task: unlike scattered data, it is sent again if its workers die."""
    data, token = cloudpickle.dumps(value), uuid4().hex[:8]
    pieces = [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]
    if len(pieces) > 1:
        pieces = [client.submit(bytes, piece, key=f"send-{token}-{i}") for i, piece in enumerate(pieces)]
    return client.submit(_loaded, *pieces, key=f"{name}-{token}")


def on_chunks(client: Client, task: Task, chunks: Sequence[Any]) -> list[Future]:
    """Start a task for each chunk (delayed, a tuple of these, or a value), with the tasks that compute the chunk."""
    token, call = uuid4().hex[:8], dask.delayed(task.function, pure=False)
    names = [f"{task.name}-{token}-{i}" for i in range(len(chunks))]
    return client.compute([call(chunk, *task.shared, dask_key_name=name) for chunk, name in zip(chunks, names)])


def on_shards(client: Client, name: str, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Future]:
    """Start `function(*row)` as a task for each row of columns of futures and small values; faster than `on_chunks`."""
    token = uuid4().hex[:8]
    return client.map(function, *columns, key=[f"{name}-{token}-{i}" for i in range(len(columns[0]))])


def reduced(client: Client, merge: Task, parts: list[Future], fan_in: int = FAN_IN) -> Future:
    """Merge all parts to one; their number decides which are merged, and each merge runs when its own are ready."""
    level, token = 0, uuid4().hex[:8]
    while len(parts) > 1:
        level += 1
        groups = [parts[start : start + fan_in] for start in range(0, len(parts), fan_in)]
        parts = [
            client.submit(
                _folded, merge.function, merge.shared, *group, key=f"{merge.name}-{token}-{level}-{i}", priority=level
            )
            for i, group in enumerate(groups)
        ]
    return parts[0]


def map_reduced(client: Client, shards: Shards, doing: str, task: Task, merge: Task, fan_in: int = FAN_IN) -> Any:
    """Apply a task to each shard and merge the results to one, with equal bits for any number of workers."""
    parts = on_chunks(client, task, shards.chunks)
    total = reduced(client, merge, parts, fan_in)
    wait_for(parts, shards.names, doing)
    return total.result()


def wait_for(shards: list[Future], names: Sequence[str], doing: str) -> None:
    """Wait for all shards, and empty the list, so workers drop them; a `RuntimeError` names one that fails."""
    known = {future.key: name for future, name in zip(shards, names, strict=True)}
    finished = as_completed(shards)
    shards.clear()
    for future in progress(finished, doing, len(known)):
        if future.status == "error":
            error = future.exception()
            raise RuntimeError(f"{known[future.key]} failed: {type(error).__name__}: {error}") from error


def warn_of_settings(client: Client) -> None:
    """Warn of workers with several threads, and of workers that give memory back after each step."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    found = []
    if any(worker["nthreads"] > 1 for worker in workers):
        found.append(
            "some workers have several threads, each of which holds counts of its own and waits for the others: start "
            "workers with one thread (threads_per_worker=1, or --nthreads 1), as many as there are cores"
        )
    trims = client.run(os.environ.get, "MALLOC_TRIM_THRESHOLD_", on_error="ignore").values()
    if any(trim is not None and trim.isdigit() and int(trim) < _TRIMS_OFTEN for trim in trims):
        found.append(
            "workers give memory back to the system after each step (MALLOC_TRIM_THRESHOLD_), which costs time: set, "
            'before the cluster, dask.config.set({"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None})'
        )
    for message in found:
        warnings.warn(message, UserWarning, stacklevel=level_of_caller())


def _loaded(*pieces: bytes) -> Any:
    return pickle.loads(b"".join(pieces))


def _folded(function: Callable[..., Any], shared: tuple[Any, ...], *parts: Any) -> Any:
    return reduce(lambda first, second: function(first, second, *shared), parts)


def sampled_rows(client: Client, shards: Shards, size: int, seed: int) -> Sample:
    """Draw random rows of all shards, `size` or all, in one pass; the rows do not depend on the number of workers."""
    pairs = list(zip(shards.chunks, seeds(seed, len(shards.names))))
    take, merge = Task("sample_rows", sampled, (size,)), Task("merge_samples", Sample.merged, (size,))
    sample: Sample = map_reduced(client, Shards(pairs, shards.names), "sampling rows", take, merge)
    if not len(sample.y):
        raise ValueError("expected one row or more, got chunks without rows")
    return sample


def forest_of_shards(client: Client, shards: Shards, sizes: Tensor, num_trees: int, seed: int) -> BaggingRegressor:
    """Grow a forest with equal numbers of trees, up to one, on each shard with rows."""
    filled = sizes.nonzero().squeeze(-1).tolist()
    shares = [len(part) for part in np.array_split(np.arange(num_trees), len(filled))]
    own = seeds(seed, len(shards.names))
    chosen = [(i, share) for i, share in zip(filled, shares) if share]
    growing = Shards([(shards.chunks[i], share, own[i]) for i, share in chosen], [shards.names[i] for i, _ in chosen])
    return map_reduced(client, growing, "growing trees", Task("grow_trees", grown), Task("join_forests", joined))


def count_chunks(model: FeatureSpaceGP, chunks: Any, client: Client | None = None) -> None:
    """
    Count the rows of many chunks on workers, as :meth:`FeatureSpaceGP.add_chunks` does in one process.

    Call it for more rows than one machine holds, and up to a few thousand clusters p. Counts equal those of one process
    bit for bit, and have equal bits for any number of workers, also if workers die. All rows are counted, or none.
    Messages take `2 p^2` bytes for each chunk (21 MB for p = 3,200): make chunks large, 100,000 rows or more.

    :param model: The model, at the driver; its kernel is sent to the workers.
    :param chunks: A pair (X, y) of Dask arrays or dataframes with equal partitions; or an iterable of chunks, which are
        delayed objects of pairs, or pairs of points `n x D` and targets `n` to send to the workers.
    :param client: The cluster's client. (Default: Dask's current one.)
    :raises TypeError: If `chunks` are none of these.
    :raises ValueError: If there are no chunks, or X and y have different partitions, or there is no client.

    Example:
        >>> from gpytorch_partition import FastClusterKernel
        >>> x = torch.rand(1_000, 2, generator=torch.Generator().manual_seed(0))
        >>> model = FeatureSpaceGP(FastClusterKernel(x, 10, random_state=0))
        >>> with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        ...     count_chunks(model, zip(x.split(250), x.sum(-1).split(250)), client)
        >>> model.num_rows
        1000
    """
    client, shards = client_of(client), shards_of(chunks)
    warn_of_settings(client)
    kernel, most = sent(client, "kernel", model.kernel), model.statistics.max_clusters
    count = Task("count_rows", counted, (kernel, most))
    merge = Task("merge_counts", merged_counts, (kernel, most))
    total = map_reduced(client, shards, "counting rows", count, merge, fan_in=2)
    statistics = ClusterStatistics(model.kernel.partition, most)
    statistics.load_state_dict(total)
    model.add_statistics(statistics)


class DaskRows:
    """
    Hold training rows on workers, in the form that a :class:`~gpytorch_partition.models.ClusterSpaceGP` takes.

    Use it for more clusters than :func:`count_chunks` can count, which is exact up to a few thousand.

    Each shard is labelled once, and its codes stay on a worker: 8 bytes for each row and partition. A product sends `p
    x t` numbers to every worker and gets as many back from each shard, added in a fixed order, so that bits are equal
    for any number of workers. If a worker dies, its shards are read and labelled again.

    :param kernel: A kernel with bounded labels (forests, fast clusters, clusterings); a `ValueError` for others.
    :param chunks: As in :func:`count_chunks`, with the same errors.
    :param client: The cluster's client. (Default: Dask's current one.)

    Example:
        >>> from gpytorch_partition import FastClusterKernel
        >>> x = torch.rand(1_000, 2, generator=torch.Generator().manual_seed(0))
        >>> kernel = FastClusterKernel(x, 10, random_state=0)
        >>> with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        ...     rows = DaskRows(kernel, zip(x.split(250), x.sum(-1).split(250)), client)
        ...     products = rows.gram(torch.ones(rows.num_clusters, 1, dtype=torch.float64))
        >>> float(products.sum())  # ten clusters of each row, with ten numbers in each
        100000.0
    """

    def __init__(self, kernel: PartitionKernel, chunks: Any, client: Client | None = None) -> None:
        counts = kernel.partition.cluster_counts
        if counts is None:
            raise ValueError(
                f"expected a kernel with bounded labels (forests, fast clusters), got a {type(kernel).__name__}: count "
                "its rows by count_chunks"
            )
        self.client, shards = client_of(client), shards_of(chunks)
        warn_of_settings(self.client)
        self.num_clusters = int(counts.sum())  #: p
        label = Task("label_rows", labelled, (sent(self.client, "kernel", kernel),))
        self._shards = on_chunks(self.client, label, shards.chunks)
        parts = on_shards(self.client, "sum_targets", LocalRows.moments, self._shards)
        total = reduced(self.client, Task("merge_sums", Moments.merged), parts)
        wait_for(list(self._shards), shards.names, "labelling rows")
        self._moments: Moments = total.result()

    @property
    def num_rows(self) -> int:
        return self._moments.num_rows

    def moments(self) -> Moments:
        return self._moments

    def gram(self, effects: Tensor) -> Tensor:
        r"""Return :math:`Z^\top (Z C)` (`p x t`, float64), added up over the shards."""
        table = sent(self.client, "effects", effects)
        return self._added("product", LocalRows.gram, [table] * len(self._shards))

    def normal_sums(self, num_columns: int, seed: int) -> Tensor:
        r"""Return :math:`Z^\top E` (`p x k`) of independent normal numbers, with a seed of its own for each shard."""
        number = len(self._shards)
        return self._added("normal_sums", LocalRows.normal_sums, [num_columns] * number, seeds(seed, number))

    def __reduce__(self) -> Any:
        raise TypeError(
            "expected rows in memory, got rows on workers, which are not saved: save the kernel and effects()"
        )

    def _added(self, name: str, function: Callable[..., Tensor], *columns: list[Any]) -> Tensor:
        answers = on_shards(self.client, name, function, self._shards, *columns)
        return reduced(self.client, Task(f"add_{name}", torch.add), answers).result()
