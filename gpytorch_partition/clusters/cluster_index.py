"""
Cluster indices: maps from the labels of clusters to their codes, the columns of the one-hot matrix :math:`Z`.

Labels are the integers that a partition returns (leaf numbers, keys of Mondrian cells, a user's integers). Codes number
the clusters of all partitions one after another, in the smallest integers that PyTorch can index with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor

# A number of clusters, or the numbers of clusters of the parts of a joint feature space.
ClusterSizes: TypeAlias = int | tuple["ClusterSizes", ...]


class Movable:
    """A base of objects that hold integers, which linear operators move between devices; a dtype changes nothing."""

    @property
    def device(self) -> torch.device:
        raise NotImplementedError

    def _moved(self, device: Any) -> Self:
        raise NotImplementedError

    def to(self, device: Any = None, dtype: Any = None) -> Self:
        return self if device is None or torch.device(device) == self.device else self._moved(device)

    def cpu(self) -> Self:
        return self.to("cpu")

    def cuda(self, device_id: Any = None) -> Self:
        return self.to(torch.device("cuda", device_id) if isinstance(device_id, int) else device_id or "cuda")


class ClusterIndex(ABC):
    """A map from labels to codes: `num_clusters` is the number p of codes, `sizes` the number in each part."""

    def __init__(self, num_clusters: int, num_visits: int, sizes: ClusterSizes | None = None) -> None:
        self.num_clusters = num_clusters
        self.sizes = num_clusters if sizes is None else sizes
        self.dtype = code_dtype(num_clusters, num_visits)

    @abstractmethod
    def codes(self, labels: Tensor) -> Tensor:
        """Return the codes (`... x m`) of labels (`... x m`)."""


class BoundedClusterIndex(ClusterIndex):
    """A cluster index for labels `0 ... sizes[r] - 1` of any rows: a code is label plus partition's offset."""

    def __init__(self, sizes: Tensor, num_rows: int) -> None:
        super().__init__(int(sizes.sum()), num_rows * sizes.numel())
        self.offsets = sizes.cumsum(0) - sizes

    def codes(self, labels: Tensor) -> Tensor:
        return (labels + self.offsets.to(labels.device)).to(self.dtype)


class SeenClusterIndex(ClusterIndex):
    """
    A cluster index for labels that are any integers: a code is the rank of a label among those of some rows.

    A label that none of these rows has gets the *null code*, the last one of its partition. None of these rows is in
    the null cluster, so a product of new rows with these rows is exact. The covariance of two new rows that share an
    unseen cluster needs an index that is built from the new rows.

    :param values: The labels that are seen, a sorted tensor per partition.
    """

    def __init__(self, values: list[Tensor], num_visits: int = 0) -> None:  # the labels that are seen, sorted
        sizes = torch.tensor([column.numel() + 1 for column in values])
        super().__init__(int(sizes.sum()), num_visits)
        self.values, self.offsets = values, (sizes.cumsum(0) - sizes).tolist()

    @classmethod
    def of(cls, labels: Tensor) -> SeenClusterIndex:
        """Return the index of the labels (`N x m`) of some rows."""
        return cls([torch.unique(column) for column in labels.unbind(-1)], labels.numel())

    def joined(self, other: SeenClusterIndex) -> SeenClusterIndex:
        """Return the index of the labels of both indices."""
        if not (self.values and other.values):
            return self if self.values else other
        pairs = zip(self.values, other.values, strict=True)
        return SeenClusterIndex([torch.cat(pair).unique() for pair in pairs])

    def codes_of(self, labels: list[Tensor]) -> Tensor:
        """Return the codes (`p`) of known labels, a tensor per partition, and each partition's null code last."""
        codes = []
        for column, known, offset in zip(labels, self.values, self.offsets):
            rank = torch.searchsorted(known, column)
            codes.append(offset + torch.cat([rank, rank.new_tensor([known.numel()])]))
        return torch.cat([torch.empty(0, dtype=torch.int64), *codes])

    def codes(self, labels: Tensor) -> Tensor:
        codes = torch.empty(labels.shape, dtype=self.dtype, device=labels.device)
        for partition, (values, offset) in enumerate(zip(self.values, self.offsets)):
            column = labels[..., partition].contiguous()
            rank = torch.searchsorted(values, column)
            seen = values[rank.clamp(max=values.numel() - 1)] == column
            codes[..., partition] = torch.where(seen, rank, values.numel()) + offset
        return codes


class JointClusterIndex(ClusterIndex):
    """A cluster index that joins indices of groups of partitions; codes of each follow those of the previous one."""

    def __init__(self, indices: Sequence[ClusterIndex], widths: Sequence[int], num_rows: int) -> None:
        num_clusters, sizes = sum(index.num_clusters for index in indices), tuple(index.sizes for index in indices)
        super().__init__(num_clusters, num_rows * sum(widths), sizes)
        self.indices, self.widths = list(indices), list(widths)

    def codes(self, labels: Tensor) -> Tensor:
        codes, offset = torch.empty(labels.shape, dtype=self.dtype, device=labels.device), 0
        parts = zip(self.indices, labels.split(self.widths, -1), codes.split(self.widths, -1), strict=True)
        for index, part, own in parts:
            torch.add(index.codes(part), offset, out=own)
            offset += index.num_clusters
        return codes


def code_dtype(num_clusters: int, num_visits: int) -> torch.dtype:
    """Return the narrowest integer type that PyTorch's sums can index with: int32 below 2^31, or int64."""
    return torch.int32 if max(num_clusters, num_visits) < 2**31 else torch.int64
