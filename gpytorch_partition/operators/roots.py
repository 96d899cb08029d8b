"""Exact roots of covariances that consist of partition operators, low-rank terms and diagonals."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator.operators import DiagLinearOperator, LinearOperator, RootLinearOperator
from torch import Tensor

from gpytorch_partition.operators.cluster_operators.cluster_operator import TransposedLinearOperator, of_columns
from gpytorch_partition.operators.guards import check_dense


class ExactRootLinearOperator(RootLinearOperator):
    r"""
    A covariance :math:`A = R R^\top` (`*batch x N x N`) with its exact root R, never dense.

    Products, the diagonal and entries are those of the covariance, which has them without the root.

    :param covariance: A, with a method `sparse_root()` that returns R (`*batch x N x q`).
    """

    def __init__(self, covariance: LinearOperator) -> None:
        super(RootLinearOperator, self).__init__(covariance)
        self.covariance = covariance
        self.root: LinearOperator = covariance.sparse_root()

    def _size(self) -> torch.Size:
        return self.covariance.shape

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.covariance._matmul(rhs)

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        return self.covariance._bilinear_derivative(left_vecs, right_vecs)

    def _diagonal(self) -> Tensor:
        return self.covariance._diagonal()

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        return self.covariance._get_indices(row_index, col_index, *batch_indices)

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        return self.covariance._getitem(row_index, col_index, *batch_indices)

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> LinearOperator:
        return self.covariance._expand_batch(batch_shape)

    def _mul_constant(self, other: float | Tensor) -> LinearOperator:
        return self.covariance._mul_constant(other)

    def to_dense(self) -> Tensor:
        """Return the matrix A."""
        return self.covariance.to_dense()


class SideBySideRoots(LinearOperator):
    r"""
    The root :math:`[R_1, R_2, \ldots]` (`*batch x N x q`) of a sum of covariances from those of its terms.

    :param roots: `*batch x N x q_i`; batch shapes broadcast.
    """

    def __init__(self, *roots: LinearOperator) -> None:
        super().__init__(*roots)
        self.roots = roots

    def _size(self) -> torch.Size:
        batch_shape = torch.broadcast_shapes(*(root.batch_shape for root in self.roots))
        return torch.Size((*batch_shape, self.roots[0].shape[-2], sum(self._widths)))

    @property
    def _widths(self) -> list[int]:
        return [root.shape[-1] for root in self.roots]

    @of_columns
    def _matmul(self, rhs: Tensor) -> Tensor:
        return sum(root._matmul(part) for root, part in zip(self.roots, rhs.split(self._widths, -2)))

    @of_columns
    def _t_matmul(self, rhs: Tensor) -> Tensor:
        return torch.cat([root._t_matmul(rhs) for root in self.roots], -2)

    def _transpose_nonbatch(self) -> LinearOperator:
        return TransposedLinearOperator(self)

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> LinearOperator:
        return SideBySideRoots(*(root._expand_batch(batch_shape) for root in self.roots))

    def to_dense(self) -> Tensor:
        """
        Return the dense root, for few rows.

        :raises RuntimeError: Above `max_cholesky_size` rows.
        """
        check_dense(self, "the root")
        return super().to_dense()


def sum_of_roots(*terms: LinearOperator) -> LinearOperator:
    """
    Return the exact root (`*batch x N x q`) of a sum of covariances, as an operator.

    :param terms: Covariances with a method `sparse_root()`, and diagonals.
    :raises NotImplementedError: If a term has no known exact root.
    """
    return SideBySideRoots(*map(_root, terms))


def _root(term: LinearOperator) -> LinearOperator:
    if isinstance(term, DiagLinearOperator):
        return DiagLinearOperator(term._diagonal().sqrt())
    if hasattr(term, "sparse_root"):
        return term.sparse_root()
    raise NotImplementedError(f"a {type(term).__name__} has no exact root that is not dense")


def exact_root(covariance: LinearOperator) -> ExactRootLinearOperator:
    """
    Return a covariance of many rows with its exact root.

    :param covariance: `*batch x N x N`, with a method `sparse_root()`.
    :raises RuntimeError: If its root is unknown and would be dense.
    """
    try:
        return ExactRootLinearOperator(covariance)
    except NotImplementedError as reason:
        check_dense(covariance, f"a root ({reason})")
        raise
