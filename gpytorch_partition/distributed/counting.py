"""Counts of shards, added up on the workers: the feature space of rows that no single machine holds."""

from __future__ import annotations

from typing import Any

from distributed import Client

from gpytorch_partition.distributed.chunks import shards_of
from gpytorch_partition.distributed.tasks import Task, client_of, map_reduced, sent, warn_of_settings
from gpytorch_partition.inference.spaces.statistics import ClusterStatistics
from gpytorch_partition.models.feature_space_gp import FeatureSpaceGP
from gpytorch_partition.shards.counts import counted, merged_counts


def count_chunks(model: FeatureSpaceGP, chunks: Any, client: Client | None = None) -> None:
    r"""
    Count the rows of many chunks on workers, as :meth:`FeatureSpaceGP.add_chunks` does in one process.

    Counts equal those of one process bit for bit, and sums up to rounding. Both have equal bits for any number of
    workers, also if workers die, since each shard is a pure function of its chunk and counts once. All rows are
    counted, or none.

    A worker holds a chunk and `20 p^2` bytes for p clusters. Messages are packed states, `2 p^2` bytes for each chunk
    (21 MB for p = 3,200), so make chunks large: 100,000 rows or more.

    :param model: The model, at the driver; its kernel is sent to the workers.
    :param chunks: A pair (X, y) of Dask arrays or dataframes with equal partitions; or an iterable of chunks, which are
        delayed objects of pairs, or pairs of points `n x D` and targets `n` to send to the workers.
    :param client: The cluster's client. (Default: Dask's current one.)
    :raises TypeError: If `chunks` are none of these.
    :raises ValueError: If there are no chunks, or X and y have different partitions, or there is no client.
    :raises RuntimeError: If a chunk fails; the message has its name.

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
