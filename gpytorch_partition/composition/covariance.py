"""The lazily evaluated covariance of any kernel that contains a partition kernel."""

from __future__ import annotations

from typing import Any

from gpytorch.kernels import Kernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.utils.memoize import cached
from linear_operator.operators import AddedDiagLinearOperator, LinearOperator, SumLinearOperator
from torch import Tensor

from gpytorch_partition.composition.claims import claim
from gpytorch_partition.operators.addition import structured_terms
from gpytorch_partition.operators.guards import CovarianceOperator, involves_partitions
from gpytorch_partition.operators.partition_sum_linear_operator import PartitionSumLinearOperator
from gpytorch_partition.settings import eager_kernels


class LazyPartitionCovariance(CovarianceOperator, LazyEvaluatedKernelTensor):
    """
    The lazy covariance (`*batch x N x M`) returned by a call of a kernel with a partition kernel in it.

    It is evaluated on use. Sums stay lazy; products and sums over a batch are evaluated at once, by this package's
    rules.
    """

    @cached(name="structured_kernel")
    def evaluate_kernel(self) -> LinearOperator:
        """Return the covariance operator; a sum with a partition operator as a :class:`PartitionSumLinearOperator`."""
        with eager_kernels():
            covariance = super().evaluate_kernel()
        is_sum = isinstance(covariance, SumLinearOperator) and not isinstance(covariance, AddedDiagLinearOperator)
        if is_sum and involves_partitions(covariance):
            covariance = PartitionSumLinearOperator(*structured_terms(covariance))
        if isinstance(covariance, CovarianceOperator):
            covariance.points_require_grad = self.x1.requires_grad or self.x2.requires_grad
        return covariance

    def _set_requires_grad(self, val: bool) -> None:
        """Do nothing: batched Kronecker products would thereby turn on gradients by points and frozen parameters."""

    # Python prefers these methods to the left operand's `+` and `*` if that is GPyTorch's lazily evaluated covariance.

    def __radd__(self, other: Any) -> LinearOperator:
        return self + other

    def __rmul__(self, other: Any) -> LinearOperator:
        return self.mul(other)

    def _mul_constant(self, other: float | Tensor) -> LinearOperator:
        return self.evaluate_kernel()._mul_constant(other)

    def _sum_batch(self, dim: int) -> LinearOperator:
        return self.evaluate_kernel()._sum_batch(dim)

    def root_decomposition(self, method: str | None = None) -> LinearOperator:
        """Return the root decomposition of the evaluated covariance, which has rules of its own."""
        return self.evaluate_kernel().root_decomposition(method=method)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """Draw samples with the evaluated covariance (`num_samples x *batch x N`)."""
        return self.evaluate_kernel().zero_mean_mvn_samples(num_samples)


def lazy_covariance(kernel: Kernel, x: Tensor) -> LazyEvaluatedKernelTensor:
    """
    Return the covariance of points, evaluated on use, also while another thread evaluates a kernel.

    :param kernel: Any kernel.
    :param x: `*batch x N x D` points, or `N` of one column.
    """
    points = x.unsqueeze(-1) if x.dim() == 1 else x
    points = points if kernel.active_dims is None else points.index_select(-1, kernel.active_dims)
    return LazyEvaluatedKernelTensor(points, points, kernel=kernel)


claim(LazyEvaluatedKernelTensor, LazyPartitionCovariance)
