"""Estimators in scikit-learn's manner."""

from gpytorch_partition.estimators.regressor import PartitionGPRegressor as PartitionGPRegressor
