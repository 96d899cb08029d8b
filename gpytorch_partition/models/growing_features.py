r"""Sparse features of a partition kernel whose columns grow with new rows, for linear models trained further."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from torch import Tensor

from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.models.cluster_columns import one_hot


class GrowingFeatures:
    r"""
    The features of :func:`~gpytorch_partition.models.cluster_features`, :math:`1 / \sqrt m` in the columns of a point's
    m clusters, for rows that arrive in batches (Balog et al. 2016, section 5).

    A cluster gets a column with its first row, after all columns so far, and keeps it. Learned weights stay in place,
    and are padded with zeros for new columns. Clusters without rows have no column and no entry.

    Costs the kernel's labels, :math:`O(m \log p)` per row for the columns, and :math:`O(p)` in each call that grows:
    give rows in batches. Memory is 16 bytes per column.

    :param kernel: A kernel of partitions of equal weight, all of whose labels depend on the point alone.

    Example:
        >>> import torch
        >>> features = GrowingFeatures(PartitionKernel(lambda x: torch.cat([x.floor(), x.round()], -1).long()))
        >>> features.grow(torch.tensor([[0.2], [0.7]]))
        array([[0, 1],
               [0, 2]])
        >>> features.grow(torch.tensor([[1.1]])), features.num_columns  # 1.1 rounds to 1, as .7 does
        (array([[3, 2]]), 4)
        >>> features.columns(torch.tensor([[5.0]]))  # -1: none yet
        array([[-1, -1]])
    """

    def __init__(self, kernel: PartitionKernel) -> None:
        self.kernel = kernel
        self.num_columns = 0
        self._labels: list[np.ndarray] = []  # of each partition, sorted
        self._columns: list[np.ndarray] = []

    def grow(self, x: Tensor) -> np.ndarray:
        """
        Add columns for new clusters of rows (`N x D`), and return the columns of all their clusters (`N x m`).

        :raises ValueError: If the partitions cannot label the rows.
        """
        labels = self._labels_of(x)
        if not self._labels:
            self._labels, self._columns = ([np.empty(0, dtype=np.int64)] * labels.shape[1] for _ in range(2))
        for tree, column in enumerate(labels.T):
            known, first = np.unique(column, return_index=True)
            is_new = ~np.isin(known, self._labels[tree], assume_unique=True)
            new = known[is_new][np.argsort(first[is_new])]  # in order of appearance
            self._insert(tree, new)
        return self._found(labels)

    def columns(self, x: Tensor) -> np.ndarray:
        """Return the columns (`N x m`) of the clusters of points (`N x D`), -1 for those without one; none is added."""
        return self._found(self._labels_of(x))

    def features(self, x: Tensor) -> csr_matrix:
        """Return the features (`N x p`) of points; clusters without a column have no entry."""
        return one_hot(self.columns(x), self.num_columns)

    def _insert(self, tree: int, labels: np.ndarray) -> None:
        columns = np.arange(self.num_columns, self.num_columns + len(labels))
        both = np.concatenate([self._labels[tree], labels])
        order = np.argsort(both, kind="stable")
        self._labels[tree] = both[order]
        self._columns[tree] = np.concatenate([self._columns[tree], columns])[order]
        self.num_columns += len(labels)

    def _found(self, labels: np.ndarray) -> np.ndarray:
        found = np.full(labels.shape, -1, dtype=np.int64)
        for tree, (known, columns) in enumerate(zip(self._labels, self._columns)):
            if len(known):
                place = np.searchsorted(known, labels[:, tree]).clip(max=len(known) - 1)
                found[:, tree] = np.where(known[place] == labels[:, tree], columns[place], -1)
        return found

    def _labels_of(self, x: Tensor) -> np.ndarray:
        return self.kernel.cluster_ids(x).cpu().numpy()
