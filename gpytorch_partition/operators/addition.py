"""
Sums of this package's operators with any other linear operator, which keep products fast.

linear_operator's own rules would be slow: a low-rank term computes Lanczos roots and a dense N x N singular value
decomposition, and a constant is a dense matrix. Here a low-rank term (of GPyTorch's linear, inducing point and random
feature kernels) becomes a partition into a single cluster with loadings, and a constant becomes one without.
"""

from __future__ import annotations

from functools import reduce
from numbers import Number
from typing import Any

import torch
from linear_operator import to_linear_operator
from linear_operator.operators import (
    AddedDiagLinearOperator,
    ConstantMulLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
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
from gpytorch_partition.operators.cluster_operators.flat_linear_operator import FlatLinearOperator
from gpytorch_partition.operators.guards import CovarianceOperator, expanded_number, is_constant
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.operators.partition_sum_linear_operator import PartitionSumLinearOperator
from gpytorch_partition.operators.tasks import noise_of_tasks, repeated_noise_of_tasks


def add(operator: LinearOperator, other: Any) -> LinearOperator:
    """
    Return the sum of an operator of this package (`*batch x N x M`) and anything that linear_operator can add.

    A diagonal gives a :class:`~gpytorch_partition.solvers.PartitionAddedDiagLinearOperator`, everything else a
    :class:`PartitionSumLinearOperator`; zero gives the operator itself. Nothing is computed or copied.

    :raises TypeError: If `other` is no matrix and not 0.
    :raises ValueError: If `other` is not `N x M`.
    """
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
        return [constant_operator(operator.tensor)]
    factors = _factors(operator)
    return [operator if factors is None else low_rank_operator(*factors)]


def constant_operator(matrix: Tensor) -> LinearOperator:
    """Return a constant covariance (`*batch x N x M`, expanded) as one cluster, with products in O(N)."""
    num_rows, num_columns = matrix.shape[-2:]
    return _one_cluster(expanded_number(matrix), num_rows, num_columns, is_symmetric=num_rows == num_columns)


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
