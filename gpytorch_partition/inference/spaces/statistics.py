"""Sufficient statistics of the rows for exact inference: counts and sums by cluster, which add up over chunks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import ClusterIndex, SeenClusterIndex
from gpytorch_partition.clusters.co_occurrence import (
    MAX_CLUSTERS,
    added,
    coarsened,
    count_co_occurrences,
    packed,
    streamed_cluster_sums,
    unpacked,
    zero_counts,
)
from gpytorch_partition.inference.spaces.cluster_rows import Moments
from gpytorch_partition.partitions.partition import Partition

_ROUNDING = 1e-10  # of sums of squares, as a share of these, over many additions and removals


class ClusterStatistics:
    r"""
    Hold sums over rows: :math:`G = Z^\top Z`, :math:`Z^\top [y - c, 1]` and :math:`[y - c, 1]^\top [y - c, 1]`.

    The reference value c (:attr:`center`) is near the mean target of the first rows: squares of targets far from zero
    would lose to rounding what clusters explain.

    Rows are added, and removed again, a chunk at a time; counts are exact, so removing undoes adding. The statistics of
    two shards add up to those of both. This is the online learning of Balog et al. 2016, section 5.

    A chunk of n rows costs its labels and :math:`O(n m^2 + p^2)` for p clusters; it holds `8 p^2` bytes, and twice as
    many while a chunk is counted: one that fails or is interrupted changes nothing. Where labels are unbounded
    (Mondrian kernels), p grows with the cells that rows fall in. More clusters than `max_clusters`, now or later, are a
    ValueError.
    """

    def __init__(self, partition: Partition, max_clusters: int = MAX_CLUSTERS) -> None:
        self.partition, self.max_clusters = partition, max_clusters
        self._tensors = list(partition.tensors().values())  # when counting began
        is_bounded = partition.cluster_counts is not None
        self.index: ClusterIndex = partition.new_cluster_index(1) if is_bounded else SeenClusterIndex([])
        size = self.index.num_clusters
        self.counts = zero_counts(size, most=max_clusters)
        self.sums = torch.zeros(size, 2, dtype=torch.float64)
        self.squares = torch.zeros(2, 2, dtype=torch.float64)
        self.center = 0.0  # c

    def check_partition(self) -> None:
        """Raise a RuntimeError if the partitions have changed since rows were counted, as with another lifetime."""
        if not self.partition.has_tensors(self._tensors):
            raise RuntimeError(
                "the kernel's partitions have changed since rows were counted (another lifetime?): give the model a "
                "copy of the kernel, such as kernel.cut(lifetime), or change the lifetime back and count again"
            )

    @property
    def num_rows(self) -> int:
        return round(float(self.squares[1, 1]))

    def add(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Count rows; return the new codes (`p`) of the clusters so far, and the codes of the rows (`n x m`)."""
        self.check_partition()
        labels, places = self.partition.labels(x), torch.arange(len(self.sums))
        if isinstance(self.index, SeenClusterIndex):
            places = self._reindex(self.index, SeenClusterIndex.of(labels))
        codes = self.codes(labels)
        self._count(codes, y, 1)
        return places, codes

    def remove(self, x: Tensor, y: Tensor) -> None:
        """Subtract rows that were added before; a ValueError if counts or sums show that they were not."""
        self.check_partition()
        self._count(self.codes(self.partition.labels(x)), y, -1)

    @property
    def null_clusters(self) -> Tensor:
        """Return the code for unseen labels of each partition (`m`); no codes where labels are bounded."""
        if not isinstance(self.index, SeenClusterIndex):
            return torch.empty(0, dtype=torch.int64)
        ends = [offset + values.numel() for offset, values in zip(self.index.offsets, self.index.values)]
        return torch.tensor(ends, dtype=torch.int64)

    def codes(self, labels: Tensor) -> Tensor:
        return self.index.codes(labels)

    def __add__(self, other: ClusterStatistics) -> ClusterStatistics:
        """Return the statistics of the rows of both, with the larger `max_clusters`, as :meth:`merge_` does."""
        total = ClusterStatistics(self.partition, max(self.max_clusters, other.max_clusters))
        return total.merge_(self).merge_(other)

    def merge_(self, other: ClusterStatistics) -> ClusterStatistics:
        """Add the statistics of other rows, in place; a ValueError for other partitions or too many clusters."""
        _check_same(fingerprint(self.partition), fingerprint(other.partition))
        places = torch.arange(len(other.counts))
        if isinstance(self.index, SeenClusterIndex) and isinstance(other.index, SeenClusterIndex):
            self._reindex(self.index, other.index)
            places = self.index.codes_of(other.index.values)
        self._absorb(other, places)
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and lists of tensors to save, to send and to resume from: :math:`2 p^2` bytes of counts."""
        values = self.index.values if isinstance(self.index, SeenClusterIndex) else None
        return {
            "partition": fingerprint(self.partition),
            "values": values,
            "center": self.center,
            "counts": packed(self.counts),
            "sums": self.sums.clone(),
            "squares": self.squares.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore saved statistics; an error if they were counted with other partitions."""
        _check_same(fingerprint(self.partition), state["partition"])
        index = self.index
        if isinstance(index, SeenClusterIndex):
            index = SeenClusterIndex(state["values"])
        counts = unpacked(state["counts"], index.num_clusters)
        tensors = {name: state[name].clone() for name in ("sums", "squares")}
        # Together and last, so that an error before changes nothing.
        self.__dict__.update(tensors, index=index, counts=counts, center=state["center"])

    def _count(self, codes: Tensor, y: Tensor, sign: int) -> None:
        """Add rows, or subtract them, in copies that are assigned last: an error or an interruption changes nothing."""
        counts = self.counts.clone()
        count_co_occurrences(counts, codes, sign)
        if sign < 0 and bool((counts < 0).any()):
            raise ValueError("expected rows that were added before, got others: remove only rows that were added")
        center = self.center if self.num_rows or not len(y) else _near_mean(y.double())
        columns = torch.stack([y.double() - center, torch.ones_like(y, dtype=torch.float64)], -1)
        sums = self.sums + sign * streamed_cluster_sums(codes, columns, self.sums.shape[0])
        squares = self.squares + sign * (columns.mT @ columns)
        if sign < 0:
            sums, squares = _checked_remainder(sums, squares, float(self.squares[0, 0]))
        self.counts, self.sums, self.squares, self.center = counts, sums, squares, center

    def _absorb(self, other: ClusterStatistics, places: Tensor) -> None:
        """Add other statistics; `places` (`p`) are the numbers of the clusters here that contain each of theirs."""
        center = self.center if self.num_rows else other.center
        moved = _moments(vars(other)).moved(torch.tensor([center], dtype=torch.float64))
        sums, squares = self.sums.index_add(0, places, moved.sums), self.squares + moved.squares
        is_same = torch.equal(places, torch.arange(len(self.counts)))
        counts = other.counts if is_same else coarsened(other.counts, places, len(self.counts))
        version = self.counts._version
        try:
            self.counts += counts
        finally:  # an interruption right after it finds all or nothing
            if self.counts._version != version:
                self.sums, self.squares, self.center = sums, squares, center

    def _reindex(self, old: SeenClusterIndex, more: SeenClusterIndex) -> Tensor:
        """Make room for more labels, and return the new numbers of the old clusters."""
        index = old.joined(more)
        size, places = index.num_clusters, index.codes_of(old.values)
        if size > old.num_clusters:
            counts = zero_counts(size, most=self.max_clusters)
            counts[places.unsqueeze(1), places] = self.counts
            sums = self.sums.new_zeros(size, 2).index_copy_(0, places, self.sums)
            # Assigned together and last, so that an error before changes nothing.
            self.index, self.counts, self.sums = index, counts, sums
        return places


def merged_states(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the state of two sets of rows together, whose packed counts are added without unpacking.

    Labels must be bounded (trees, fast clusters), and partitions the same; else it is a ValueError.
    """
    _check_same(first["partition"], second["partition"])
    if first["values"] is not None:
        raise ValueError("expected states of bounded labels: load those of Mondrian trees, and merge the statistics")
    total, counts = _moments(first).merged(_moments(second)), added(first["counts"], second["counts"])
    center = float(total.centers)
    return {**first, "center": center, "counts": counts, "sums": total.sums, "squares": total.squares}


def _moments(state: Mapping[str, Any]) -> Moments:
    center, squares = torch.tensor([state["center"]], dtype=torch.float64), state["squares"]
    return Moments(round(float(squares[1, 1])), state["sums"], squares, center)


def _near_mean(y: Tensor) -> float:
    """Return a number near the mean, with few digits: whole numbers less it are whole numbers."""
    mean, deviation = float(y.mean()), float(y.std(correction=0))
    if not deviation > abs(mean) * torch.finfo(y.dtype).eps:
        return float(y[0])
    unit = 2.0 ** math.ceil(math.log2(deviation))
    return round(mean / unit) * unit


def fingerprint(partition: Partition) -> str:
    """Return a digest of a partition: its type and its tensors."""
    digest = hashlib.sha256(type(partition).__name__.encode())
    for name, tensor in sorted(partition.tensors().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _check_same(own: str, other: str) -> None:
    if own != other:
        raise ValueError("expected statistics of the same partitions, got those of other partitions: use one kernel")


def _checked_remainder(sums: Tensor, squares: Tensor, before: float) -> tuple[Tensor, Tensor]:
    """
    Return the sums and squares left after rows were removed; zero in clusters without rows.

    No targets can have sums in empty clusters, or squares below those that a partition explains, up to rounding.
    """
    totals, counts = sums.unbind(-1)
    num_rows, rounding = round(float(squares[1, 1])), _ROUNDING * before
    is_empty = counts == 0
    strays = totals[is_empty].square().sum()
    first_row = (counts.cumsum(0) - counts)[~is_empty]  # of a cluster, where rows are numbered in each partition
    partitions = (first_row / max(1, num_rows)).round(decimals=12).floor().long()
    explained = torch.zeros(int(partitions.max()) + 1 if num_rows else 1, dtype=torch.float64)
    explained.index_add_(0, partitions, totals[~is_empty].square() / counts[~is_empty])
    if float(strays) > rounding or float(explained.max() - squares[0, 0]) > rounding:
        raise ValueError(
            "expected rows with the targets that they were added with, got others, which no "
            f"targets of the remaining {num_rows:,} rows can explain: remove rows with their own targets"
        )
    if not num_rows:
        return torch.zeros_like(sums), torch.zeros_like(squares)
    return torch.where(is_empty.unsqueeze(-1), 0, sums), squares
