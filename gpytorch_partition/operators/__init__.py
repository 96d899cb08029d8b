"""The covariance K as linear operators whose products are sums over clusters."""

from gpytorch_partition.operators import algebra as algebra  # defines `+` and `*`
from gpytorch_partition.operators.cluster_operators.cluster_operator import FlatLinearOperator
from gpytorch_partition.operators.cluster_operators.composed_operators import (
    SideBySideLinearOperator,
    TaskLinearOperator,
)
from gpytorch_partition.operators.cluster_operators.membership_linear_operator import MembershipLinearOperator
from gpytorch_partition.operators.cluster_operators.path_sum_linear_operator import PathSumLinearOperator
from gpytorch_partition.operators.partition_linear_operator import IncidenceLinearOperator, PartitionLinearOperator
from gpytorch_partition.operators.sums_and_roots import PartitionSumLinearOperator

__all__ = [
    "FlatLinearOperator",
    "IncidenceLinearOperator",
    "MembershipLinearOperator",
    "PartitionLinearOperator",
    "PartitionSumLinearOperator",
    "PathSumLinearOperator",
    "SideBySideLinearOperator",
    "TaskLinearOperator",
]
