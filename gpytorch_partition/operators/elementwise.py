"""
Elementwise products of this package's operators with any other linear operator.

The cost is linear for products of a partition operator with a constant, a diagonal, a low-rank term (loadings) or a
covariance of tasks (an `IndexKernel`), and for sums of such terms. All other products are dense: exact up to
`max_cholesky_size` rows, and refused above. linear_operator would take Lanczos roots of rank 100, with errors of 94 %.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import torch
from linear_operator import settings
from linear_operator.operators import (
    AddedDiagLinearOperator,
    ConstantMulLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    InterpolatedLinearOperator,
    LinearOperator,
)
from torch import Tensor

from gpytorch_partition.operators.addition import structured_terms
from gpytorch_partition.operators.guards import CovarianceOperator, check_dense
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.operators.partition_sum_linear_operator import PartitionSumLinearOperator
from gpytorch_partition.operators.tasks import on_own_tasks


def product(first: LinearOperator, second: LinearOperator) -> LinearOperator:
    """
    Return the elementwise product of two covariances (`*batch x N x M`), at linear cost where possible.

    :raises RuntimeError: If a dense product has more than `max_cholesky_size` rows and columns.
    """
    first, second = first.evaluate_kernel(), second.evaluate_kernel()
    pairs = [_structured_product(a, b) for a in _terms(first) for b in _terms(second)]
    terms = [pair for pair in pairs if pair is not None]
    if len(terms) == len(pairs):
        total = reduce(add, sorted(terms, key=lambda term: isinstance(term, DiagLinearOperator)))
        # A dense matrix alone is solved at this package's accuracy too.
        return PartitionSumLinearOperator(total) if isinstance(total, DenseLinearOperator) else total
    if min(first.shape[-2:]) > settings.max_cholesky_size.value():
        remedy = "Add the kernels instead of multiplying them, or predict fewer points at once"
        check_dense(first, f"an elementwise product with a {type(second).__name__}", remedy)
    return DenseLinearOperator(first.to_dense() * second.to_dense())


def _terms(operator: LinearOperator) -> list[LinearOperator]:
    if isinstance(operator, AddedDiagLinearOperator):
        return [*structured_terms(operator._linear_op), operator._diag_tensor]
    return structured_terms(operator)


def _structured_product(first: LinearOperator, second: LinearOperator) -> LinearOperator | None:
    """The product of two terms, dense if one is and none has clusters; None for others."""
    if isinstance(first, DiagLinearOperator) or isinstance(second, DiagLinearOperator):
        return DiagLinearOperator(first.diagonal(dim1=-2, dim2=-1) * second.diagonal(dim1=-2, dim2=-1))
    for own, other in ((first, second), (second, first)):
        if not isinstance(own, PartitionLinearOperator):
            continue
        if isinstance(other, PartitionLinearOperator) and _is_single_cluster(other):
            return _times_loadings(own, other)
        if (tasks := _scaled_tasks(other)) is not None:
            return _times_tasks(own, *tasks)
    is_dense = _is_dense(first) or _is_dense(second)
    has_clusters = _has_clusters(first) or _has_clusters(second)
    return DenseLinearOperator(first.to_dense() * second.to_dense()) if is_dense and not has_clusters else None


def _has_clusters(operator: LinearOperator) -> bool:
    is_low_rank = isinstance(operator, PartitionLinearOperator) and _is_single_cluster(operator)
    return isinstance(operator, CovarianceOperator) and not is_low_rank


def _is_dense(operator: LinearOperator) -> bool:
    inner = operator.base_linear_op if isinstance(operator, ConstantMulLinearOperator) else operator
    return isinstance(inner, DenseLinearOperator)


def _is_single_cluster(operator: PartitionLinearOperator) -> bool:
    return operator.left.num_clusters == 1 and operator.right.num_clusters == 1


def _times_loadings(own: PartitionLinearOperator, other: PartitionLinearOperator) -> PartitionLinearOperator:
    scale = other.scale * other.cluster_operator._diagonal()[0].to(other.dtype)
    scaled = own._with(scale=own.scale * scale)
    if other.left_loadings is None or other.right_loadings is None:
        return scaled
    is_same = own.is_symmetric and other.left_loadings is other.right_loadings
    left = _pairwise(own.left_loadings, other.left_loadings)
    right = left if is_same else _pairwise(own.right_loadings, other.right_loadings)
    return scaled._with(left_loadings=None, right_loadings=None).with_loadings(left, right)


def _pairwise(first: Tensor | None, second: Tensor) -> Tensor:
    """All products of a row's loadings (`*batch x N x kl`), whose inner products are products of inner products."""
    return second if first is None else (first.unsqueeze(-1) * second.unsqueeze(-2)).flatten(-2)


def _times_tasks(
    own: PartitionLinearOperator, scale: Tensor, tasks: InterpolatedLinearOperator
) -> PartitionLinearOperator | None:
    covariance = _shared_by_batch(tasks.base_linear_op.to_dense())
    if covariance is None:
        return None
    left, right = tasks.left_interp_indices.squeeze(-1), tasks.right_interp_indices.squeeze(-1)
    product = on_own_tasks(own, covariance, left, right)
    batch_shape = torch.broadcast_shapes(product.batch_shape, scale.shape)
    return product.expand(*batch_shape, *product.matrix_shape)._mul_constant(scale)


def _shared_by_batch(matrices: Tensor) -> Tensor | None:
    """The matrix of all elements of a batch; None if they differ, or may: parameters can be equal by chance."""
    first = matrices[(0,) * (matrices.dim() - 2)]
    is_expanded = not any(matrices.stride()[:-2])
    is_shared = is_expanded or (not matrices.requires_grad and torch.equal(matrices, first.expand_as(matrices)))
    return first if is_shared else None


def _scaled_tasks(operator: LinearOperator) -> tuple[Tensor, InterpolatedLinearOperator] | None:
    """A number (`*batch`) and an `IndexKernel`'s operator, whose product is the operator; None for others."""
    if isinstance(operator, ConstantMulLinearOperator):
        found = _scaled_tasks(operator.base_linear_op)
        return found and (operator._constant * found[0], found[1])
    if not isinstance(operator, InterpolatedLinearOperator):
        return None
    values = (operator.left_interp_values, operator.right_interp_values)
    are_indices = all(part.shape[-1] == 1 and bool((part == 1).all()) for part in values)
    return (operator.left_interp_values.new_ones(()), operator) if are_indices else None


CovarianceOperator._product_with = staticmethod(product)
