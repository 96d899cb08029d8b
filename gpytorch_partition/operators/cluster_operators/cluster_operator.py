"""The base class of the operators S, prior covariances of cluster effects, and the diagonal S of flat partitions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator, LinearOperator
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from torch import Tensor

from gpytorch_partition.callers import not_compiled
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.linalg.factors import symmetric_root


class ClusterOperator(LinearOperator):
    r"""
    The covariance S of cluster effects u in :math:`f = Z u` (`p x p`), or between two sets of clusters (`p x p'`).

    A new kind of S implements the products of a linear operator (`_matmul`, `_diagonal`, `_get_indices`, and
    `_bilinear_derivative` if its weights are trained), :meth:`root`, and methods that have a cheaper way.
    """

    is_flat = False  #: whether the effects of all clusters are independent, as those of flat partitions are
    has_equal_weights = False  #: whether S is one number times the identity, by construction
    reaches_nearest = False  #: whether a point's nearest rows tell most about it, and `grams` has their covariances
    num_tasks = 1  #: number T of tasks that each cluster has an effect on, numbered c T + t

    def root(self) -> LinearOperator:
        r"""Return the exact root :math:`F` (`p x q`) with :math:`S = F F^\top`, as an operator."""
        raise RuntimeError(f"only the covariance of clusters with themselves has a root, not {type(self).__name__}")

    def root_rows(self, clusters: Tensor) -> csr_matrix:
        """Return rows of the root as a sparse matrix (`n x q`): features of clusters (ascending) of the first set."""
        raise NotImplementedError(f"{type(self).__name__} has no sparse root")

    def square_root(self) -> LinearOperator:
        """Return a dense root (`p x p`, float64), in O(p^3): Cholesky's, or scaled eigenvectors if S is singular."""
        dense = self.to_dense().double()
        cholesky, failed = torch.linalg.cholesky_ex(dense)
        return DenseLinearOperator(symmetric_root(dense) if failed else cholesky)

    @property
    def has_same_clusters(self) -> bool:
        """Return whether S is the covariance of clusters with themselves, and so its own transpose."""
        return self._transpose_nonbatch() is self

    @property
    def structure(self) -> tuple[Any, ...]:
        return (type(self),)

    @property
    def independent_clusters(self) -> Tensor:
        """Return which clusters (`p`, bool) have effects that are independent of those of all others, for any task."""
        return torch.full(self.shape[-1:], self.is_flat, dtype=torch.bool, device=self.device)

    def correlated(self, normal: Tensor) -> Tensor:
        """Return effects of unit variance (`n x t`) of independent clusters, from independent normal numbers."""
        return normal

    @property
    def num_nodes(self) -> int:
        """Return the number of tree nodes, or memberships, that a product visits, counted once for each task."""
        return 0

    def dense_block(self, left: Incidence, right: Incidence) -> Tensor | None:
        r"""Return :math:`Z S Z'^\top` (`N x N'`) of rows on the CPU; None where a product by columns is cheaper."""
        return None

    def _transpose_nonbatch(self) -> LinearOperator:
        return self


class TransposedLinearOperator(LinearOperator):
    r"""Multiply by the transpose :math:`A^\top` of an operator A, whose `_t_matmul` is then the product."""

    def __init__(self, base: LinearOperator) -> None:
        super().__init__(base)
        self.base = base

    def _size(self) -> torch.Size:
        *batch, rows, columns = self.base.shape
        return torch.Size((*batch, columns, rows))

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.base._t_matmul(rhs)

    def _transpose_nonbatch(self) -> LinearOperator:
        return self.base

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> LinearOperator:
        return TransposedLinearOperator(self.base._expand_batch(batch_shape))

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        return self.base._get_indices(col_index, row_index, *batch_indices)

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        return self.base._bilinear_derivative(right_vecs, left_vecs)


def as_columns(values: Tensor) -> Tensor:
    return values.unsqueeze(-1) if values.dim() == 1 else values


def of_columns(product: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """Decorate a product with matrices so that it takes vectors too."""

    @not_compiled
    @wraps(product)
    def computed(operator: Any, rhs: Tensor) -> Tensor:
        return product(operator, rhs) if rhs.dim() > 1 else product(operator, rhs.unsqueeze(-1)).squeeze(-1)

    return computed


_ENTRIES = 2**22  # entries of the sparse product held at a time, at most, of 12 bytes each
_COST_OF_PAIR = 2  # time for a pair, in entries of the table of clusters by rows that a product with the identity fills


class FlatLinearOperator(ClusterOperator):
    r"""
    Multiply effects of clusters by a diagonal covariance :math:`S = \mathrm{diag}(w)` (`p x p`), in O(p t).

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
        first, second = (torch.bincount(each.codes.reshape(-1), minlength=each.num_clusters) for each in (left, right))
        num_pairs = float(first.double() @ second.double())
        if _COST_OF_PAIR * num_pairs >= right.num_rows * right.num_clusters:
            return None
        return shared_weights(left, right, self._diagonal())

    def _size(self) -> torch.Size:
        return torch.Size((self.num_clusters, self.num_clusters))

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.weights * rhs if rhs.dim() == 1 else self.weights.unsqueeze(-1) * rhs

    def _diagonal(self) -> Tensor:
        return self.weights.expand(self.num_clusters)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        return self._diagonal()[row_index] * (row_index == col_index)

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Any, ...]:
        products = left_vecs * right_vecs
        by_cluster = products if products.dim() == 1 else products.sum(-1)
        return (by_cluster.sum_to_size(self.weights.shape),)


def shared_weights(left: Incidence, right: Incidence, weights: Tensor) -> Tensor:
    r"""Return :math:`Z \mathrm{diag}(w) Z'^\top` (`N x N'`) of rows on the CPU, by the pairs that share clusters."""
    values = weights.detach().numpy()
    columns = _sparse(right.codes, np.ones_like(values)).T.tocsr()
    result = np.empty((left.num_rows, right.num_rows), values.dtype)
    size = max(1, _ENTRIES // max(1, right.num_rows))
    for codes, rows in zip(left.codes.split(size), torch.from_numpy(result).split(size)):
        (_sparse(codes, values) @ columns).toarray(out=rows.numpy())
    return torch.from_numpy(result)


def _sparse(codes: Tensor, values: NDArray[np.floating]) -> csr_array:
    columns, starts = codes.reshape(-1).numpy(), np.arange(len(codes) + 1) * codes.shape[1]
    return csr_array((values[columns], columns, starts), shape=(len(codes), len(values)))
