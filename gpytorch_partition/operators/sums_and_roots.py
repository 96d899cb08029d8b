"""Sums of covariances, at least one of them a partition kernel's, and exact roots of covariances and their sums."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import DiagLinearOperator, LinearOperator, RootLinearOperator, SumLinearOperator
from torch import Tensor

from gpytorch_partition.operators.cluster_operators.cluster_operator import TransposedLinearOperator, of_columns
from gpytorch_partition.operators.guards import CovarianceOperator, check_dense


class PartitionSumLinearOperator(CovarianceOperator, SumLinearOperator):
    r"""
    Add covariances, :math:`K_1 + K_2 + \ldots`: products, diagonals, entries and samples are sums over the terms.

    Use it, with one term, for this package's solver on the operator of a kernel without clusters, as
    :class:`~gpytorch_partition.IterativeKernel` does.

    :param linear_ops: The terms, operators or tensors `*batch x N x M`; batch shapes broadcast.
    :raises TypeError: If a term is neither.

    Example:
        >>> from gpytorch_partition.operators import FlatLinearOperator, PartitionLinearOperator
        >>> from gpytorch_partition.clusters.incidence import Incidence
        >>> Z = Incidence(torch.tensor([[0, 2], [0, 3], [1, 3]]), num_clusters=4)
        >>> S = FlatLinearOperator(torch.tensor([0.5]), num_clusters=4)
        >>> K = PartitionLinearOperator(torch.tensor(1.0), S, left=Z, right=Z)
        >>> type(K + torch.eye(3)).__name__, (K + torch.eye(3)).matmul(torch.ones(3))
        ('PartitionSumLinearOperator', tensor([2.5000, 3.0000, 2.5000]))
    """

    def __init__(self, *linear_ops: LinearOperator | Tensor) -> None:
        super().__init__(*linear_ops)
        self.points_require_grad = any(getattr(term, "points_require_grad", False) for term in self.linear_ops)

    def evaluate_kernel(self) -> LinearOperator:
        return self.__class__(*(term.evaluate_kernel() for term in self.linear_ops))

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        return self.__class__(*(term._getitem(row_index, col_index, *batch_indices) for term in self.linear_ops))

    def _unsqueeze_batch(self, dim: int) -> LinearOperator:
        return self.__class__(*(term._unsqueeze_batch(dim) for term in self.linear_ops))

    def sparse_root(self) -> LinearOperator:
        """Return the exact root (`*batch x N x q`) as an operator: the roots of the terms side by side."""
        return sum_of_roots(*self.linear_ops)

    def root_decomposition(self, method: str | None = None) -> LinearOperator:
        """Return a root: dense up to `max_cholesky_size` rows, the exact sparse one above."""
        is_small = self.size(-1) <= linear_settings.max_cholesky_size.value()
        return super().root_decomposition(method) if method is not None or is_small else exact_root(self)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """Draw samples (`num_samples x *batch x N`): sums of the terms', or by a dense root with negative variances."""
        if all(bool((term.diagonal(dim1=-2, dim2=-1) >= 0).all()) for term in self.linear_ops):
            return sum(term.zero_mean_mvn_samples(num_samples) for term in self.linear_ops)
        check_dense(self, "a root of the covariance (for joint samples)")
        return super().zero_mean_mvn_samples(num_samples)


class ExactRootLinearOperator(RootLinearOperator):
    r"""Multiply by a covariance :math:`A = R R^\top` itself, and hold its exact root R, `sparse_root()`."""

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
        return self.covariance.to_dense()


class SideBySideRoots(LinearOperator):
    r"""Multiply by the root of a sum, :math:`[R_1, R_2, \ldots]` (`*batch x N x q`); batch shapes broadcast."""

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
        check_dense(self, "the root")
        return super().to_dense()


def sum_of_roots(*terms: LinearOperator) -> LinearOperator:
    """Return the exact root (`*batch x N x q`) of a sum; a `NotImplementedError` if a term has no known one."""
    return SideBySideRoots(*map(_root, terms))


def _root(term: LinearOperator) -> LinearOperator:
    if isinstance(term, DiagLinearOperator):
        return DiagLinearOperator(term._diagonal().sqrt())
    if hasattr(term, "sparse_root"):
        return term.sparse_root()
    raise NotImplementedError(f"a {type(term).__name__} has no exact root that is not dense")


def exact_root(covariance: LinearOperator) -> ExactRootLinearOperator:
    """Return a covariance of many rows with its exact root; an error if that is unknown and would be dense."""
    try:
        return ExactRootLinearOperator(covariance)
    except NotImplementedError as reason:
        check_dense(covariance, f"a root ({reason})")
        raise
