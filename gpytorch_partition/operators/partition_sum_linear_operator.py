"""Sums of covariances, at least one of them a partition kernel's."""

from __future__ import annotations

from typing import Any

from linear_operator import settings as linear_settings
from linear_operator.operators import LinearOperator, SumLinearOperator
from torch import Tensor

from gpytorch_partition.operators.guards import CovarianceOperator, check_dense
from gpytorch_partition.operators.roots import exact_root, sum_of_roots


class PartitionSumLinearOperator(CovarianceOperator, SumLinearOperator):
    r"""
    A sum of covariances :math:`K_1 + K_2 + \ldots`, whose products, diagonal, entries and samples are sums over the
    terms.

    Use it, with one term, for this package's solver on the operator of a kernel without clusters, as
    :class:`~gpytorch_partition.IterativeKernel` does. An operator of this package plus any but a diagonal is one.

    Partition operators are kept as terms rather than merged into one with a block-diagonal S: the product costs the
    same, and nothing is copied when a kernel is evaluated at every training step. Unlike its parent it keeps its class
    when indexed, scaled or added to. A sum with a diagonal gets this package's solver.

    Time and memory are those of the terms, one after another.

    :param linear_ops: The terms, operators or tensors `*batch x N x M`; batch shapes broadcast.
    :raises TypeError: If a term is neither.

    Example:
        >>> import torch
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
        """Return the sum of the evaluated terms."""
        return self.__class__(*(term.evaluate_kernel() for term in self.linear_ops))

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        return self.__class__(*(term._getitem(row_index, col_index, *batch_indices) for term in self.linear_ops))

    def _unsqueeze_batch(self, dim: int) -> LinearOperator:
        return self.__class__(*(term._unsqueeze_batch(dim) for term in self.linear_ops))

    def _permute_batch(self, *dims: int) -> LinearOperator:
        return self.__class__(*(term._permute_batch(*dims) for term in self.linear_ops))

    def _sum_batch(self, dim: int) -> LinearOperator:
        return self.__class__(*(term._sum_batch(dim) for term in self.linear_ops))

    def sparse_root(self) -> LinearOperator:
        """
        Return the exact root (`*batch x N x q`) as an operator: the roots of the terms side by side.

        :raises NotImplementedError: If a term has no known sparse root.
        """
        return sum_of_roots(*self.linear_ops)

    def root_decomposition(self, method: str | None = None) -> LinearOperator:
        """
        Return a root: dense up to `max_cholesky_size` rows, the exact sparse one above.

        :raises RuntimeError: Above that size, if a term has no sparse root or a dense method is named.
        """
        is_small = self.size(-1) <= linear_settings.max_cholesky_size.value()
        return super().root_decomposition(method) if method is not None or is_small else exact_root(self)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """
        Draw samples from N(0, K_1 + K_2 + ...) (`num_samples x *batch x N`): sums of the terms' independent samples.

        A term with a negative variance is not a covariance, such as the part that the data explain, which GPyTorch
        subtracts from a prior. The sum is then sampled as a whole, by a dense root.

        :raises RuntimeError: In that case, above `max_cholesky_size` rows.
        """
        if all(bool((term.diagonal(dim1=-2, dim2=-1) >= 0).all()) for term in self.linear_ops):
            return sum(term.zero_mean_mvn_samples(num_samples) for term in self.linear_ops)
        check_dense(self, "a root of the covariance (for joint samples)")
        return super().zero_mean_mvn_samples(num_samples)
