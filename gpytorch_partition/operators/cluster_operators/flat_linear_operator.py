"""The diagonal operator S of flat partitions, whose clusters have independent effects."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from linear_operator.operators import DiagLinearOperator, LinearOperator
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from torch import Tensor

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator

_ENTRIES = 2**22  # entries of the sparse product held at a time, at most, of 12 bytes each
_COST_OF_PAIR = 2  # time for a pair, in entries of the table of clusters by rows that a product with the identity fills


class FlatLinearOperator(ClusterOperator):
    r"""
    The diagonal covariance :math:`S = \mathrm{diag}(w)` (`p x p`), with products in O(p t).

    :class:`~gpytorch_partition.PartitionKernel` uses it, with w = 1 / m (Davies & Ghahramani 2014, definition 2).
    Construct it yourself, in the `_cluster_operator` of a subclass, for clusters of different weights.

    :param weights: `p` nonnegative weights w, or one number (`1`) for all clusters.
    :param num_clusters: Number p of clusters.

    Example:
        >>> FlatLinearOperator(torch.tensor([0.5]), num_clusters=2).to_dense()
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])
    """

    is_flat = True

    def __init__(self, weights: Tensor, *, num_clusters: int) -> None:
        super().__init__(weights, num_clusters=num_clusters)
        self.weights, self.num_clusters = weights, num_clusters
        self.has_equal_weights = weights.numel() == 1

    def root(self) -> LinearOperator:
        return FlatLinearOperator(self.weights.sqrt(), num_clusters=self.num_clusters)

    def root_rows(self, clusters: Tensor) -> csr_matrix:
        columns = clusters.cpu().numpy()
        values = self._diagonal().detach().double().sqrt()[clusters].cpu().numpy()
        return csr_matrix((values, columns, np.arange(len(columns) + 1)), shape=(len(columns), self.num_clusters))

    def square_root(self) -> LinearOperator:
        return DiagLinearOperator(self._diagonal().double().sqrt())

    def dense_block(self, left: Incidence, right: Incidence) -> Tensor | None:
        return shared_weights(left, right, self._diagonal()) if has_few_pairs(left, right) else None

    def _size(self) -> torch.Size:
        return torch.Size((self.num_clusters, self.num_clusters))

    def _transpose_nonbatch(self) -> LinearOperator:
        return self

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.weights * rhs if rhs.dim() == 1 else self.weights.unsqueeze(-1) * rhs

    def _t_matmul(self, rhs: Tensor) -> Tensor:
        return self._matmul(rhs)

    def _diagonal(self) -> Tensor:
        return self.weights.expand(self.num_clusters)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        return self._diagonal()[row_index] * (row_index == col_index)

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Any, ...]:
        products = left_vecs * right_vecs
        by_cluster = products if products.dim() == 1 else products.sum(-1)
        return (by_cluster.sum_to_size(self.weights.shape),)


def has_few_pairs(left: Incidence, right: Incidence) -> bool:
    """
    Return whether few enough rows share clusters for a sum over pairs to beat a product with the identity.

    That product fills a table of `p x N'`, and took 2 to 16 times as long on one core where clusters had two rows.
    """
    num_pairs = float(_sizes(left) @ _sizes(right))
    return _COST_OF_PAIR * num_pairs < right.num_rows * right.num_clusters


def shared_weights(left: Incidence, right: Incidence, weights: Tensor) -> Tensor:
    r"""
    Return :math:`Z \mathrm{diag}(w) Z'^\top` (`N x N'`): for each pair of rows the weights of the clusters that both
    are in.

    This costs an operation for each such pair and partition, and :math:`O(N N')` to fill the matrix. Rows are on the
    CPU.
    """
    values = weights.detach().numpy()
    columns = _sparse(right.codes, np.ones_like(values)).T.tocsr()
    result = np.empty((left.num_rows, right.num_rows), values.dtype)
    size = max(1, _ENTRIES // max(1, right.num_rows))
    for codes, rows in zip(left.codes.split(size), torch.from_numpy(result).split(size)):
        (_sparse(codes, values) @ columns).toarray(out=rows.numpy())
    return torch.from_numpy(result)


def _sizes(incidence: Incidence) -> Tensor:
    return torch.bincount(incidence.codes.reshape(-1), minlength=incidence.num_clusters).double()


def _sparse(codes: Tensor, values: NDArray[np.floating]) -> csr_array:
    columns, starts = codes.reshape(-1).numpy(), np.arange(len(codes) + 1) * codes.shape[1]
    return csr_array((values[columns], columns, starts), shape=(len(codes), len(values)))
