"""GPyTorch's products of kernels and kernels of several tasks, where they contain a partition kernel."""

from __future__ import annotations

from functools import reduce
from operator import add, mul
from typing import Any

from gpytorch.kernels import MultitaskKernel, ProductKernel
from linear_operator import to_linear_operator
from linear_operator.operators import KroneckerProductLinearOperator, LinearOperator, MulLinearOperator
from torch import Tensor

from gpytorch_partition.composition.claims import claim
from gpytorch_partition.operators.addition import structured_terms
from gpytorch_partition.operators.elementwise import product
from gpytorch_partition.operators.guards import involves_partitions
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.operators.tasks import on_every_task


class PartitionProductKernel(ProductKernel):
    """
    A product of kernels, one of them a partition kernel, in any order.

    Its cost is linear with kernels whose covariance has a low rank (`LinearKernel`, random features), constants and
    kernels of tasks (`IndexKernel`). With any other kernel it is dense, and refused above `max_cholesky_size` rows.
    """

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        """Return the product (`*batch x N1 x N2`) or its diagonal; different points need no dense factors."""
        if diag:
            return reduce(mul, [kernel(x1, x2, diag=True, **params) for kernel in self.kernels])
        factors = [to_linear_operator(kernel(x1, x2, **params)).evaluate_kernel() for kernel in self.kernels]
        return reduce(product, sorted(factors, key=involves_partitions, reverse=True))


class PartitionMultitaskKernel(MultitaskKernel):
    r"""
    The kernel :math:`k(x, x') B_{tt'}` of all points on all tasks, at T times the cost of the partition kernel k.

    Unlike its parent it applies the `active_dims` of the data kernel.
    """

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


claim(ProductKernel, PartitionProductKernel)
claim(MultitaskKernel, PartitionMultitaskKernel)
claim(MulLinearOperator, product)
