"""The lazy covariance of any kernel with a partition kernel in it, products of kernels, and kernels of tasks."""

from __future__ import annotations

from functools import reduce
from operator import add, mul
from typing import Any

from gpytorch.kernels import Kernel, MultitaskKernel, ProductKernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.utils.memoize import cached
from linear_operator import to_linear_operator
from linear_operator.operators import (
    AddedDiagLinearOperator,
    KroneckerProductLinearOperator,
    LinearOperator,
    MulLinearOperator,
    SumLinearOperator,
)
from torch import Tensor

from gpytorch_partition.callers import not_compiled
from gpytorch_partition.composition.claims import claim
from gpytorch_partition.operators.algebra import product, structured_terms
from gpytorch_partition.operators.guards import CovarianceOperator, involves_partitions
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.operators.sums_and_roots import PartitionSumLinearOperator
from gpytorch_partition.operators.tasks import on_every_task
from gpytorch_partition.settings import eager_kernels


class LazyPartitionCovariance(CovarianceOperator, LazyEvaluatedKernelTensor):
    """The lazy covariance (`*batch x N x M`) of a kernel with a partition kernel in it; products are not lazy."""

    @not_compiled
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
    """Return the lazy covariance of points (`*batch x N x D`, or `N`), also while another thread evaluates kernels."""
    points = x.unsqueeze(-1) if x.dim() == 1 else x
    points = points if kernel.active_dims is None else points.index_select(-1, kernel.active_dims)
    return LazyEvaluatedKernelTensor(points, points, kernel=kernel)


class PartitionProductKernel(ProductKernel):
    """A product of kernels, one of them a partition kernel, in any order, of linear cost where the others allow it."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        """Return the product of the kernels for two sets of points (`*batch x N1 x N2`), or its diagonal."""
        if diag:
            return reduce(mul, [kernel(x1, x2, diag=True, **params) for kernel in self.kernels])
        factors = [to_linear_operator(kernel(x1, x2, **params)).evaluate_kernel() for kernel in self.kernels]
        return reduce(product, sorted(factors, key=involves_partitions, reverse=True))


class PartitionMultitaskKernel(MultitaskKernel):
    r"""The kernel :math:`k(x, x') B_{tt'}` of all points on all tasks, which applies `active_dims` of k."""

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Any:
        """Return the covariance (`*batch x N1 T x N2 T`) or its diagonal; row `n T + t` is point n on task t."""
        if last_dim_is_batch or self.task_covar_module.batch_shape:
            return super().forward(x1, x2, diag=diag, last_dim_is_batch=last_dim_is_batch, **params)
        data = to_linear_operator(self.data_covar_module(x1, x2, **params)).evaluate_kernel()
        tasks = self.task_covar_module.covar_matrix.to_dense()
        covariance = reduce(add, [_on_every_task(term, tasks) for term in structured_terms(data)])
        return covariance.diagonal(dim1=-1, dim2=-2) if diag else covariance


def _on_every_task(term: LinearOperator, tasks: Tensor) -> LinearOperator:
    if isinstance(term, PartitionLinearOperator):
        return on_every_task(term, tasks)
    return KroneckerProductLinearOperator(term, to_linear_operator(tasks.expand(*term.batch_shape, *tasks.shape)))


claim(LazyEvaluatedKernelTensor, LazyPartitionCovariance)
claim(ProductKernel, PartitionProductKernel)
claim(MultitaskKernel, PartitionMultitaskKernel)
claim(MulLinearOperator, product)
