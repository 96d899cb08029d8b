"""Noise added to any covariance with a partition operator in it, and predictions from such covariances."""

from __future__ import annotations

from typing import Any

from gpytorch.distributions import MultivariateNormal
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator.operators import AddedDiagLinearOperator

from gpytorch_partition.composition.claims import claim, is_concerned
from gpytorch_partition.inference.prediction.strategy import PartitionPredictionStrategy
from gpytorch_partition.solvers.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator


def _own_strategy(
    train_inputs: Any, train_prior_dist: MultivariateNormal, *args: Any, **kwargs: Any
) -> PartitionPredictionStrategy | None:
    covariance = train_prior_dist.lazy_covariance_matrix
    is_own = is_concerned(covariance) and is_concerned(covariance.evaluate_kernel())
    return object.__new__(PartitionPredictionStrategy) if is_own else None


claim(AddedDiagLinearOperator, PartitionAddedDiagLinearOperator)
claim(DefaultPredictionStrategy, _own_strategy)
