"""Rows in shards on workers, for solvers in cluster space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from distributed import Client
from torch import Tensor

from gpytorch_partition.distributed.chunks import shards_of
from gpytorch_partition.distributed.tasks import (
    Task,
    client_of,
    on_chunks,
    on_shards,
    reduced,
    sent,
    wait_for,
    warn_of_settings,
)
from gpytorch_partition.inference.spaces.cluster_rows import LocalRows, Moments
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.shards.counts import labelled
from gpytorch_partition.shards.samples import seeds


class DaskRows:
    r"""
    Training rows on workers, in the form that a :class:`~gpytorch_partition.models.ClusterSpaceGP` takes.

    Use it for more clusters than :func:`count_chunks` can count, which is exact up to a few thousand.

    Each shard is labelled once, and its codes stay on a worker: 8 bytes for each row and partition. The driver holds no
    codes, only `p` or `p x t` numbers. A product sends `p x t` numbers to every worker, and each shard answers with as
    many. Workers add these in a fixed order, so all bits are equal for any number of workers. If a worker dies, its
    shards are read and labelled again, which costs the time of one product.

    :param kernel: A kernel with bounded labels: forests, fast clusters, clusterings.
    :param chunks: As in :func:`count_chunks`.
    :param client: The cluster's client. (Default: Dask's current one.)
    :raises TypeError: If `chunks` are none of these.
    :raises ValueError: If labels are unbounded, such as those of Mondrian trees, and as in :func:`count_chunks`.
    :raises RuntimeError: If a chunk fails; the message has its name.

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
        """Number N of rows."""
        return self._moments.num_rows

    def moments(self) -> Moments:
        """Return the sums of the targets, which the driver holds."""
        return self._moments

    def gram(self, effects: Tensor) -> Tensor:
        r"""
        Return :math:`Z^\top (Z C)`, added up over the shards.

        :param effects: `p x t` C, float64.
        :return: `p x t` float64.
        """
        table = sent(self.client, "effects", effects)
        return self._added("product", LocalRows.gram, [table] * len(self._shards))

    def normal_sums(self, num_columns: int, seed: int) -> Tensor:
        r"""
        Return :math:`Z^\top E` of independent normal numbers, with a seed of its own for each shard.

        :param num_columns: k.
        :param seed: A seed, 0 or more.
        :return: `p x k` float64.
        """
        number = len(self._shards)
        return self._added("normal_sums", LocalRows.normal_sums, [num_columns] * number, seeds(seed, number))

    def __reduce__(self) -> Any:
        raise TypeError(
            "expected rows in memory, got rows on workers, which are not saved: save the kernel and effects()"
        )

    def _added(self, name: str, function: Callable[..., Tensor], *columns: list[Any]) -> Tensor:
        answers = on_shards(self.client, name, function, self._shards, *columns)
        return reduced(self.client, Task(f"add_{name}", torch.add), answers).result()
