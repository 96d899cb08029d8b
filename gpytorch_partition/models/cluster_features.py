r"""Sparse features of a partition kernel, :math:`K = \Phi \Phi^\top`, for linear models of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from torch import Tensor

from gpytorch_partition.kernels.partition_kernel import PartitionKernel


def cluster_features(kernel: PartitionKernel, x: Tensor, train_x: Tensor) -> csr_matrix:
    r"""
    Features of points: :math:`1 / \sqrt m` in the columns of their m clusters (Balog et al. 2016, equation 2).

    Columns are the clusters that hold training rows, partition by partition. Products of features are the kernel,
    :math:`\Phi \Phi^\top = K`, among training rows and between these and other points: a cluster without training rows
    has no column and no entry. A linear model on these features is a kernel machine at linear cost.

    Costs the labels of both sets of rows, and :math:`O(N m)`; memory is 12 bytes per (point, partition).

    :param kernel: A kernel of partitions of equal weight: :class:`~gpytorch_partition.MondrianKernel`,
        :class:`~gpytorch_partition.RandomBinningKernel`, :class:`~gpytorch_partition.FastClusterKernel`,
        :class:`~gpytorch_partition.RandomForestKernel` with `heights="sampled"` or `"leaf"`, or a user's own.
    :param x: `N x D` points, all columns (`active_dims` is applied here).
    :param train_x: `N2 x D` training rows; they may be x itself.
    :return: `N x p` float64, with at most m entries in a row, exactly m where x are the training rows.
    :raises TypeError: If the kernel is not a kernel of partitions of equal weight.
    :raises RuntimeError: If the kernel is unfitted.
    :raises ValueError: If x or `train_x` are not floating point matrices of the right width, if they hold values
        that the partitions cannot place, or if there is no training row.

    Example:
        >>> import torch
        >>> kernel = PartitionKernel(lambda x: torch.cat([x.floor(), x.round()], -1).long())
        >>> train_x = torch.tensor([[0.2], [0.7], [1.1]])
        >>> (cluster_features(kernel, train_x, train_x) * 2**0.5).toarray().round(3)
        array([[1., 0., 1., 0.],
               [1., 0., 0., 1.],
               [0., 1., 0., 1.]])
        >>> (cluster_features(kernel, torch.tensor([[1.6]]), train_x) * 2**0.5).toarray().round(3)  # none rounds to 2
        array([[0., 1., 0., 0.]])
    """
    return one_hot(*cluster_columns(kernel, x, train_x))


def cluster_columns(kernel: PartitionKernel, x: Tensor, train_x: Tensor) -> tuple[np.ndarray, int]:
    """
    The columns (`N x m`) of the entries of :func:`cluster_features`, -1 for none, and the number p of columns.

    :param kernel: As in :func:`cluster_features`, and so are the errors.
    :param x: `N x D` points.
    :param train_x: `N2 x D` training rows.
    """
    _check(kernel, x, train_x)
    x, train_x = kernel.columns.select(x), kernel.columns.select(train_x)
    # Coded first, so that the training rows define the feature space even if there are fewer of them.
    trained, _ = kernel.partition.incidences(train_x, train_x)
    rows, _ = kernel.partition.incidences(x, train_x)
    counts = np.bincount(trained.codes.cpu().numpy().ravel(), minlength=trained.num_clusters)
    columns = np.where(counts > 0, np.cumsum(counts > 0) - 1, -1)
    return columns[rows.codes.cpu().numpy()], int((counts > 0).sum())


def one_hot(columns: np.ndarray, num_columns: int) -> csr_matrix:
    r"""The sparse matrix (`N x p`) with entries :math:`1 / \sqrt m` in the given columns (`N x m`, -1 for none)."""
    kept = columns >= 0
    starts = np.concatenate([[0], np.cumsum(kept.sum(1))])
    values = np.full(starts[-1], columns.shape[1] ** -0.5)
    return csr_matrix((values, columns[kept], starts), shape=(len(columns), num_columns))


def _check(kernel: Any, x: Tensor, train_x: Tensor) -> None:
    if not isinstance(kernel, PartitionKernel):
        raise TypeError(f"expected a PartitionKernel, whose points fall in clusters, got a {type(kernel).__name__}")
    for name, points in (("x", x), ("train_x", train_x)):
        kernel.partition.check_points(kernel.columns.select(points))
        if points.dim() != 2:
            raise ValueError(f"expected {name} as a matrix (N x D), got shape {tuple(points.shape)}")
    if not len(train_x):
        raise ValueError("expected training rows, whose clusters are the columns, got none")
    operator = kernel(train_x[:1].detach()).evaluate_kernel().cluster_operator
    if not operator.has_equal_weights:
        raise TypeError(
            f"expected a kernel of partitions that weigh the same, got a {type(kernel).__name__} that weighs clusters: "
            'give its trees one height (heights="sampled" or "leaf"), or its parts one by one'
        )
