"""Several partitions joined into one, for mixtures of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Protocol

import torch
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import ClusterIndex, JointClusterIndex
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inputs.kernel_columns import Columns
from gpytorch_partition.partitions.partition import Partition


class Source(Protocol):
    """An object with a partition and the columns that it sees, such as a partition kernel."""

    @property
    def partition(self) -> Partition: ...

    @property
    def columns(self) -> Columns: ...


class JointPartition(Partition):
    """
    A partition that joins the partitions of several sources, one after another, each seeing its own columns.

    Codes are held only here, 8 bytes per (row, partition) with the members of clusters; the sources compute labels and
    hold the state. Where some labels are unbounded, the others keep their known numbers of clusters.

    :param sources: Objects with a `partition` and `columns`, such as partition kernels.

    Example:
        >>> from types import SimpleNamespace
        >>> from gpytorch_partition.inputs.kernel_columns import Columns
        >>> from gpytorch_partition.partitions import CallablePartition
        >>> floor, half = CallablePartition(lambda x: x.floor().long()), CallablePartition(lambda x: (x / 2).long())
        >>> every, second = Columns(), Columns((1,))
        >>> sources = [SimpleNamespace(partition=p, columns=c) for p, c in ((floor, every), (half, second))]
        >>> JointPartition(sources).labels(torch.tensor([[0.5, 1.5], [2.5, 5.2]]))
        tensor([[0, 1, 0],
                [2, 5, 2]])
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        super().__init__()
        self._sources = tuple(sources)
        self._coded_by: list[Tensor] = []  # the sources' tensors when the cached rows were coded

    def extra_repr(self) -> str:
        return f"{' + '.join(str(partition.num_partitions) for partition in self.partitions)} partitions"

    @property
    def partitions(self) -> list[Partition]:
        return [source.partition for source in self._sources]

    @property
    def num_partitions(self) -> int:
        return sum(self._widths)

    @property
    def cluster_counts(self) -> Tensor | None:
        counts = [partition.cluster_counts for partition in self.partitions]
        known = [count for count in counts if count is not None]
        return torch.cat(known) if len(known) == len(counts) else None

    @property
    def _widths(self) -> list[int]:
        return [partition.num_partitions for partition in self.partitions]

    def tensors(self) -> dict[str, Tensor]:
        parts = enumerate(self.partitions)
        return {f"{number}.{name}": tensor for number, part in parts for name, tensor in part.tensors().items()}

    def incidences(self, x1: Tensor, x2: Tensor) -> tuple[Incidence, Incidence]:
        """Return one-hot rows as in :class:`Partition`; cached rows are dropped if a source's tensors were replaced."""
        if not self.has_tensors(self._coded_by):
            self._cached_rows = []  # first: an interruption between the two must not leave codes of other tensors
            self._coded_by = list(self.tensors().values())
        return super().incidences(x1, x2)

    def new_cluster_index(self, num_rows: int, labels: Tensor | None = None) -> ClusterIndex:
        parts = [None] * len(self._sources) if labels is None else labels.split(self._widths, -1)
        indices = [partition.new_cluster_index(num_rows, part) for partition, part in zip(self.partitions, parts)]
        return JointClusterIndex(indices, self._widths, num_rows)

    def _labels(self, x: Tensor) -> Tensor:
        return torch.cat([source.partition._labels(source.columns.select(x)) for source in self._sources], -1)

    def _check_fitted(self) -> None:
        for partition in self.partitions:
            partition._check_fitted()

    def _check_values(self, x: Tensor) -> None:
        for source in self._sources:
            source.partition.check_points(source.columns.select(x))

    def __deepcopy__(self, memo: dict[int, Any]) -> Partition:
        new = super().__deepcopy__(memo)
        new.__dict__["_sources"] = deepcopy(self._sources, memo)
        return new

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_coded_by": []}
