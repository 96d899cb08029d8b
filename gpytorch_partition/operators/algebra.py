"""
Sums and elementwise products of this package's operators with any other linear operator, at linear cost where possible.

linear_operator's own rules would compute dense decompositions, and Lanczos roots of rank 100 with errors of 94 %. Here
a low-rank term (of GPyTorch's linear, inducing point and random feature kernels) becomes a partition into a single
cluster with loadings, and a constant one without. Products of a partition operator with these, with a diagonal or a
covariance of tasks (an `IndexKernel`), and of sums of such terms, are of this kind too. All others are dense.
"""

from __future__ import annotations

import operator as operators
from functools import reduce
from numbers import Number
from typing import Any

import torch
from linear_operator import settings, to_linear_operator
from linear_operator.operators import (
    AddedDiagLinearOperator,
    ConstantMulLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    InterpolatedLinearOperator,
    KroneckerProductDiagLinearOperator,
    KroneckerProductLinearOperator,
    LinearOperator,
    MatmulLinearOperator,
    RootLinearOperator,
    SumLinearOperator,
    ZeroLinearOperator,
)
from torch import Tensor

from gpytorch_partition.clusters.incidence import one_cluster
from gpytorch_partition.operators.cluster_operators.cluster_operator import FlatLinearOperator
from gpytorch_partition.operators.guards import MOST_ROWS, CovarianceOperator, check_dense, expanded_number, is_constant
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.operators.sums_and_roots import PartitionSumLinearOperator
from gpytorch_partition.operators.tasks import noise_of_tasks, on_own_tasks, repeated_noise_of_tasks


def add(operator: LinearOperator, other: Any) -> LinearOperator:
    """Return the sum of an operator of this package (`*batch x N x M`) and anything that linear_operator can add."""
    if isinstance(other, ZeroLinearOperator) or (isinstance(other, Number) and other == 0):
        return operator
    if not torch.is_tensor(other) and not isinstance(other, LinearOperator):
        raise TypeError(f"expected a tensor or a linear operator to add, got {type(other).__name__}")
    if other.shape[-2:] != operator.shape[-2:]:
        expected, got = tuple(operator.shape[-2:]), tuple(other.shape[-2:])
        raise ValueError(f"expected a matrix of shape {expected} to add, got {got}: one row per point")
    if isinstance(other, KroneckerProductDiagLinearOperator):  # which would compute its diagonal in every product
        other = repeated_noise_of_tasks(other)
    if isinstance(other, KroneckerProductLinearOperator) and (parts := noise_of_tasks(other)) is not None:
        return reduce(add, parts, operator)
    if isinstance(other, DiagLinearOperator):
        return CovarianceOperator._plus_noise(operator, other)
    if isinstance(other, AddedDiagLinearOperator):
        return CovarianceOperator._plus_noise(add(operator, other._linear_op), other._diag_tensor)
    return PartitionSumLinearOperator(*structured_terms(operator), *structured_terms(to_linear_operator(other)))


def structured_terms(operator: LinearOperator) -> list[LinearOperator]:
    """Return the terms of a sum, constants and low-rank terms as partitions into a single cluster."""
    if isinstance(operator, SumLinearOperator) and not isinstance(operator, AddedDiagLinearOperator):
        return [term for part in operator.linear_ops for term in structured_terms(part)]
    if isinstance(operator, DenseLinearOperator) and is_constant(operator.tensor):
        num_rows, num_columns = operator.matrix_shape
        return [_one_cluster(expanded_number(operator.tensor), num_rows, num_columns, num_rows == num_columns)]
    factors = _factors(operator)
    return [operator if factors is None else low_rank_operator(*factors)]


def low_rank_operator(scale: Tensor, left: Tensor, right: Tensor) -> LinearOperator:
    r"""Return :math:`s L R^\top` (`*batch x N x M`) as one cluster with loadings; R is L for points with themselves."""
    batch_shape = torch.broadcast_shapes(scale.shape, left.shape[:-2], right.shape[:-2])
    cluster = _one_cluster(scale.expand(batch_shape), left.shape[-2], right.shape[-2], is_symmetric=left is right)
    return cluster.with_loadings(left, right)


def _factors(operator: LinearOperator) -> tuple[Tensor, Tensor, Tensor] | None:
    """The factors s, L and R of a low-rank operator, without computation; None for other operators."""
    if isinstance(operator, ConstantMulLinearOperator):
        factors = _factors(operator.base_linear_op)
        return factors and (operator._constant * factors[0], *factors[1:])
    if isinstance(operator, RootLinearOperator):
        root = _scaled_matrix(operator.root)
        return root and (root[0].square(), root[1], root[1])
    if isinstance(operator, MatmulLinearOperator):
        left, right = _scaled_matrix(operator.left_linear_op), _scaled_matrix(operator.right_linear_op)
        return left and right and (left[0] * right[0], left[1], right[1].mT)
    return None


def _scaled_matrix(operator: LinearOperator) -> tuple[Tensor, Tensor] | None:
    """A number (`*batch`) and a matrix whose product is the operator; None for other operators."""
    if isinstance(operator, ConstantMulLinearOperator):
        found = _scaled_matrix(operator.base_linear_op)
        return found and (operator._constant * found[0], found[1])
    return (operator.tensor.new_ones(()), operator.tensor) if isinstance(operator, DenseLinearOperator) else None


def _one_cluster(scale: Tensor, num_rows: int, num_columns: int, is_symmetric: bool) -> PartitionLinearOperator:
    left = one_cluster(num_rows, scale.device)
    right = left if is_symmetric else one_cluster(num_columns, scale.device)
    one = FlatLinearOperator(scale.new_ones(1), num_clusters=1)
    return PartitionLinearOperator(scale, one, left=left, right=right)


CovarianceOperator._sum_of = staticmethod(add)


def product(first: LinearOperator, second: LinearOperator) -> LinearOperator:
    """Return the elementwise product of two covariances (`*batch x N x M`), at linear cost where possible."""
    first, second = first.evaluate_kernel(), second.evaluate_kernel()
    pairs = [_structured_product(a, b) for a in _terms(first) for b in _terms(second)]
    terms = [pair for pair in pairs if pair is not None]
    if len(terms) == len(pairs):
        total = reduce(operators.add, sorted(terms, key=lambda term: isinstance(term, DiagLinearOperator)))
        # A dense matrix alone is solved at this package's accuracy too.
        return PartitionSumLinearOperator(total) if isinstance(total, DenseLinearOperator) else total
    is_large = min(first.shape[-2:]) > settings.max_cholesky_size.value()
    if is_large and first.shape.numel() > MOST_ROWS**2:
        remedy = "Add the kernels instead of multiplying them, or predict fewer points at once"
        check_dense(first, f"an elementwise product with a {type(second).__name__}", remedy)
    dense = DenseLinearOperator(first.to_dense() * second.to_dense())
    return PartitionSumLinearOperator(dense) if is_large else dense


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
    matrices = tasks.base_linear_op.to_dense()
    covariance = matrices[(0,) * (matrices.dim() - 2)]
    is_expanded = not any(matrices.stride()[:-2])
    # Elements of a batch differ, or may: parameters can be equal by chance.
    if not is_expanded and (matrices.requires_grad or not torch.equal(matrices, covariance.expand_as(matrices))):
        return None
    left, right = tasks.left_interp_indices.squeeze(-1), tasks.right_interp_indices.squeeze(-1)
    product = on_own_tasks(own, covariance, left, right)
    batch_shape = torch.broadcast_shapes(product.batch_shape, scale.shape)
    return product.expand(*batch_shape, *product.matrix_shape)._mul_constant(scale)


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
