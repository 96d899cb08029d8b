"""Rows in shards on workers: counts of their clusters, samples, and sums for solvers in cluster space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from distributed import Client
from sklearn.ensemble import BaggingRegressor
from torch import Tensor

from gpytorch_partition.distributed.dask_tasks import (
    Shards,
    Task,
    client_of,
    map_reduced,
    on_chunks,
    on_shards,
    reduced,
    sent,
    shards_of,
    wait_for,
    warn_of_settings,
)
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

    Counts equal those of one process bit for bit, and sums up to rounding. Both have equal bits for any number of
    workers, also if workers die. All rows are counted, or none. Messages take `2 p^2` bytes for each chunk (21 MB for p
    = 3,200), so make chunks large: 100,000 rows or more.

    :param model: The model, at the driver; its kernel is sent to the workers.
    :param chunks: A pair (X, y) of Dask arrays or dataframes with equal partitions; or an iterable of chunks, which are
        delayed objects of pairs, or pairs of points `n x D` and targets `n` to send to the workers.
    :param client: The cluster's client. (Default: Dask's current one.)
    :raises TypeError: If `chunks` are none of these.
    :raises ValueError: If there are no chunks, or X and y have different partitions, or there is no client.

    Example:
        >>> import torch
        >>> from distributed import Client
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
    Training rows on workers, in the form that a :class:`~gpytorch_partition.models.ClusterSpaceGP` takes.

    Use it for more clusters than :func:`count_chunks` can count, which is exact up to a few thousand.

    Each shard is labelled once, and its codes stay on a worker: 8 bytes for each row and partition. The driver holds no
    codes, only `p` or `p x t` numbers, which a product sends to every worker and gets back from each shard. Workers add
    these in a fixed order, so all bits are equal for any number of workers. If a worker dies, its shards are read and
    labelled again, which costs the time of one product.

    :param kernel: A kernel with bounded labels (forests, fast clusters, clusterings); a `ValueError` for others.
    :param chunks: As in :func:`count_chunks`, with the same errors.
    :param client: The cluster's client. (Default: Dask's current one.)

    Example:
        >>> import torch
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
