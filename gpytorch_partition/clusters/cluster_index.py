"""
Cluster indices: maps from the labels of clusters to their codes, the columns of the one-hot matrix :math:`Z`.

Labels are the integers that a partition returns (leaf numbers, keys of Mondrian cells, a user's integers). Codes number
the clusters of all partitions one after another, in the smallest integers that PyTorch can index with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self, TypeAlias

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


class ClusterIndex(Protocol):
    """A map from labels to codes: `num_clusters` is the number p of codes, `sizes` the number in each part."""

    num_clusters: int
    sizes: ClusterSizes
    dtype: torch.dtype

    def codes(self, labels: Tensor) -> Tensor:
        """Return the codes (`... x m`) of labels (`... x m`)."""


class BoundedClusterIndex:
    """A cluster index for labels `0 ... sizes[r] - 1` of any rows: a code is label plus partition's offset."""

    def __init__(self, sizes: Tensor, num_rows: int) -> None:
        self.num_clusters = int(sizes.sum())
        self.sizes: ClusterSizes = self.num_clusters  # the feature space has no parts
        self.dtype = code_dtype(self.num_clusters, num_rows * sizes.numel())
        self.offsets = sizes.cumsum(0) - sizes

    def codes(self, labels: Tensor) -> Tensor:
        return (labels + self.offsets.to(labels.device)).to(self.dtype)


class SeenClusterIndex:
    """
    A cluster index for labels that are any integers: a code is the rank of a label among those of some rows.

    A label that none of these rows has gets the *null code*, the last one of its partition. None of these rows is in
    the null cluster, so a product of new rows with these rows is exact. The covariance of two new rows that share an
    unseen cluster needs an index that is built from the new rows.
    """

    def __init__(self, labels: Tensor) -> None:
        self._set([torch.unique(column) for column in labels.unbind(-1)], labels.numel())

    @classmethod
    def of_values(cls, values: list[Tensor]) -> SeenClusterIndex:
        """Return the index of known labels, a sorted tensor per partition."""
        new = cls.__new__(cls)
        new._set(values, 0)
        return new

    def _set(self, values: list[Tensor], num_visits: int) -> None:
        self.values = values
        sizes = torch.tensor([column.numel() + 1 for column in values])
        self.offsets = (sizes.cumsum(0) - sizes).tolist()
        self.num_clusters = int(sizes.sum())
        self.sizes: ClusterSizes = self.num_clusters  # the feature space has no parts
        self.dtype = code_dtype(self.num_clusters, num_visits)

    def joined(self, other: SeenClusterIndex) -> SeenClusterIndex:
        """Return the index of the labels of both indices."""
        if not (self.values and other.values):
            return self if self.values else other
        pairs = zip(self.values, other.values, strict=True)
        return self.of_values([torch.cat(pair).unique() for pair in pairs])

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


class JointClusterIndex:
    """A cluster index that joins indices of groups of partitions; codes of each follow those of the previous one."""

    def __init__(self, indices: Sequence[ClusterIndex], widths: Sequence[int], num_rows: int) -> None:
        self.indices, self.widths = list(indices), list(widths)
        self.num_clusters = sum(index.num_clusters for index in indices)
        self.sizes: ClusterSizes = tuple(index.sizes for index in indices)
        self.dtype = code_dtype(self.num_clusters, num_rows * sum(widths))

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
