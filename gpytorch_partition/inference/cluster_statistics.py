"""All that exact inference needs to know of the rows: counts and sums by cluster, which add up over chunks."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from gpytorch_partition.partitions.cluster_index import BoundedClusterIndex, SeenClusterIndex
from gpytorch_partition.partitions.co_occurrence import cluster_sums, count_co_occurrences
from gpytorch_partition.partitions.partition import Partition


class ClusterStatistics:
    r"""
    :math:`G = Z^\top Z`, :math:`Z^\top [y, 1]` and :math:`[y, 1]^\top [y, 1]` of the rows seen so far.

    Rows are added, and removed again, a chunk at a time; counts are exact, so that removing undoes adding. The
    statistics of two shards add up to those of both. Balog et al. 2016, section 5, learn online in this way.

    A chunk of n rows costs its labels and :math:`O(n m^2)`; held are `8 p^2` bytes for p clusters. Where labels are
    unbounded (Mondrian kernels), p grows with the cells that rows fall in.

    :param partition: The partitions.

    Example:
        >>> from gpytorch_partition.partitions import CallablePartition
        >>> stripes = CallablePartition(lambda x: x.floor().long())
        >>> a, b = ClusterStatistics(stripes), ClusterStatistics(stripes)
        >>> a.add(torch.tensor([[0.5], [0.7]]), torch.tensor([1.0, 3.0]))
        >>> b.add(torch.tensor([[0.1], [5.0]]), torch.tensor([5.0, 7.0]))
        >>> (a + b).sums
        tensor([[9., 3.],
                [7., 1.],
                [0., 0.]], dtype=torch.float64)
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        counts = partition.cluster_counts
        self.index: BoundedClusterIndex | SeenClusterIndex = (
            SeenClusterIndex.of_values([]) if counts is None else BoundedClusterIndex(counts, num_rows=1)
        )
        size = self.index.num_clusters
        self.counts = torch.zeros(size, size, dtype=torch.float64)
        self.sums = torch.zeros(size, 2, dtype=torch.float64)
        self.squares = torch.zeros(2, 2, dtype=torch.float64)

    @property
    def num_rows(self) -> int:
        """Number N of rows counted."""
        return round(float(self.squares[1, 1]))

    def add(self, x: Tensor, y: Tensor) -> None:
        """
        Count some rows.

        :param x: `n x D` points.
        :param y: `n` finite targets.
        """
        labels = self.partition.labels(x)
        if isinstance(self.index, SeenClusterIndex):
            self._reindex(self.index, SeenClusterIndex(labels))
        self._count(labels, y, 1)

    def remove(self, x: Tensor, y: Tensor) -> None:
        """
        Take back rows that were added.

        :param x: `n x D` points.
        :param y: `n` finite targets.
        :raises ValueError: If such rows were not added, as far as counts can tell.
        """
        labels = self.partition.labels(x)
        if self.num_rows < len(y) or not self._were_added(labels):
            raise ValueError("expected rows that were added before: some of these lie in clusters with fewer rows")
        self._count(labels, y, -1)

    @property
    def null_clusters(self) -> Tensor:
        """Codes that stand for all unseen labels of a partition, where labels are unbounded."""
        if not isinstance(self.index, SeenClusterIndex):
            return torch.empty(0, dtype=torch.int64)
        ends = [offset + values.numel() for offset, values in zip(self.index.offsets, self.index.values)]
        return torch.tensor(ends, dtype=torch.int64)

    def codes(self, labels: Tensor) -> Tensor:
        """Codes (`n x m`) of labels."""
        return self.index.codes(labels)

    def __add__(self, other: ClusterStatistics) -> ClusterStatistics:
        """
        The statistics of the rows of both.

        :raises ValueError: If the partitions are not the same.
        """
        _check_same(fingerprint(self.partition), fingerprint(other.partition))
        total = ClusterStatistics(self.partition)
        for part in (self, other):
            total._absorb(part)
        return total

    def state_dict(self) -> dict[str, Any]:
        """Tensors and lists of tensors, to save and to resume from."""
        values = self.index.values if isinstance(self.index, SeenClusterIndex) else None
        return {
            "partition": fingerprint(self.partition),
            "values": values,
            **{name: getattr(self, name).clone() for name in ("counts", "sums", "squares")},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """
        Take up saved statistics.

        :raises ValueError: If they are of other partitions.
        """
        _check_same(fingerprint(self.partition), state["partition"])
        if state["values"] is not None:
            self.index = SeenClusterIndex.of_values(state["values"])
        self.counts, self.sums, self.squares = (state[name].clone() for name in ("counts", "sums", "squares"))

    def _count(self, labels: Tensor, y: Tensor, sign: int) -> None:
        codes, columns = self.codes(labels), torch.stack([y.double(), torch.ones_like(y, dtype=torch.float64)], -1)
        count_co_occurrences(self.counts, codes, sign)
        self.sums += sign * cluster_sums(codes, columns, self.sums.shape[0])
        self.squares += sign * (columns.mT @ columns)

    def _were_added(self, labels: Tensor) -> bool:
        codes = self.codes(labels)
        leaving = cluster_sums(codes, torch.ones(len(codes), 1), self.sums.shape[0])
        return bool((leaving.squeeze(-1) <= self.sums[:, 1]).all())

    def _absorb(self, other: ClusterStatistics) -> None:
        places = torch.arange(len(other.counts))
        if isinstance(self.index, SeenClusterIndex) and isinstance(other.index, SeenClusterIndex):
            places = self._reindex(self.index, other.index).codes_of(other.index)
        self.counts.index_put_((places.unsqueeze(1), places), other.counts, accumulate=True)
        self.sums.index_add_(0, places, other.sums)
        self.squares += other.squares

    def _reindex(self, old: SeenClusterIndex, more: SeenClusterIndex) -> SeenClusterIndex:
        """Make room for more labels."""
        index = old.joined(more)
        if index.num_clusters == old.num_clusters:
            return old
        places = index.codes_of(old)
        counts = torch.zeros(index.num_clusters, index.num_clusters, dtype=torch.float64)
        sums = torch.zeros(index.num_clusters, 2, dtype=torch.float64)
        counts[places.unsqueeze(1), places] = self.counts
        sums[places] = self.sums
        self.index, self.counts, self.sums = index, counts, sums
        return index


def fingerprint(partition: Partition) -> str:
    """A digest of what a partition keeps; partitions by a user's function all have the same, and are not told apart."""
    digest = hashlib.sha256(type(partition).__name__.encode())
    for name, tensor in sorted(partition.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _check_same(own: str, other: str) -> None:
    if own != other:
        raise ValueError("expected statistics of the same partitions, got those of other partitions: use one kernel")
