"""The sparse features of flat partitions, as columns of their entries, m per row, which are all equal."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from torch import Tensor

from gpytorch_partition.kernels.partition_kernel import PartitionKernel


def cluster_columns(kernel: PartitionKernel, x: Tensor, train_x: Tensor) -> tuple[np.ndarray, int]:
    """
    Return the columns (`N x m`) of the clusters of points, -1 for clusters without training rows, and the number p of
    columns.

    :param kernel: A kernel of partitions of equal weight.
    :param x: `N x D` points.
    :param train_x: `N2 x D` training rows.
    :raises ValueError: If x or `train_x` are not finite floating point matrices of the right width.
    """
    x, train_x = kernel.columns.select(x), kernel.columns.select(train_x)
    # Coded first, so that the training rows define the feature space even if there are fewer of them.
    trained, _ = kernel.partition.incidences(train_x, train_x)
    rows, _ = kernel.partition.incidences(x, train_x)
    counts = np.bincount(trained.codes.cpu().numpy().ravel(), minlength=trained.num_clusters)
    columns = np.where(counts > 0, np.cumsum(counts > 0) - 1, -1)
    return columns[rows.codes.cpu().numpy()], int((counts > 0).sum())


def one_hot(columns: np.ndarray, num_columns: int) -> csr_matrix:
    r"""
    Return the sparse features (`N x p`) with entries :math:`1 / \sqrt m` in the given columns.

    :param columns: `N x m` columns, -1 for none.
    :param num_columns: Number p of columns.
    """
    kept = columns >= 0
    starts = np.concatenate([[0], np.cumsum(kept.sum(1))])
    values = np.full(starts[-1], (1 / columns.shape[1]) ** 0.5)  # equal to the root of S to the last digit
    return csr_matrix((values, columns[kept], starts), shape=(len(columns), num_columns))
