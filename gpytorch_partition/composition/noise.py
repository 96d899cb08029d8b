"""Noise added to, and predictions from, any covariance with a partition operator in it."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator.operators import AddedDiagLinearOperator, LinearOperator, MaskedLinearOperator
from torch import Tensor

from gpytorch_partition.composition.claims import claim
from gpytorch_partition.inference.prediction.strategy import PartitionPredictionStrategy
from gpytorch_partition.operators.guards import involves_partitions
from gpytorch_partition.operators.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator


def _own_sum_with_noise(*linear_ops: LinearOperator, **kwargs: Any) -> PartitionAddedDiagLinearOperator | None:
    is_own = any(map(involves_partitions, linear_ops))
    return object.__new__(PartitionAddedDiagLinearOperator) if is_own else None


def _own_strategy(
    train_inputs: Any, train_prior_dist: MultivariateNormal, *args: Any, **kwargs: Any
) -> PartitionPredictionStrategy | None:
    covariance = train_prior_dist.lazy_covariance_matrix
    is_own = involves_partitions(covariance) and involves_partitions(covariance.evaluate_kernel())
    return object.__new__(PartitionPredictionStrategy) if is_own else None


def _own_observed_rows(
    base: LinearOperator, row_mask: Tensor, col_mask: Tensor
) -> PartitionAddedDiagLinearOperator | None:
    """
    The covariance plus noise of the rows with a target, which a likelihood of `observation_nan_policy("mask")` takes.

    A mask around all rows would be solved by linear_operator, at a residual of 1 and without a preconditioner.
    """
    if not isinstance(base, PartitionAddedDiagLinearOperator) or not torch.equal(row_mask, col_mask):
        return None
    return base.restricted_to(row_mask.nonzero().squeeze(-1))


claim(AddedDiagLinearOperator, _own_sum_with_noise)
claim(MaskedLinearOperator, _own_observed_rows)
claim(DefaultPredictionStrategy, _own_strategy)
