"""Estimators with the scikit-learn API."""

from gpytorch_partition.estimators.mondrian_classifier import MondrianClassifier as MondrianClassifier
from gpytorch_partition.estimators.regressor import PartitionGPRegressor as PartitionGPRegressor
