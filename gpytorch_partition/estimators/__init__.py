"""Estimators with the scikit-learn API."""

from gpytorch_partition.estimators.classifier import PartitionGPClassifier as PartitionGPClassifier
from gpytorch_partition.estimators.column_selection import BaggedStepwiseSelector as BaggedStepwiseSelector
from gpytorch_partition.estimators.column_selection import ParallelEvolutionSelector as ParallelEvolutionSelector
from gpytorch_partition.estimators.lago import LAGORanker as LAGORanker
from gpytorch_partition.estimators.machines import PartitionFeatures as PartitionFeatures
from gpytorch_partition.estimators.machines import PartitionKernelPCA as PartitionKernelPCA
from gpytorch_partition.estimators.machines import (
    PartitionSpectralClustering as PartitionSpectralClustering,
)
from gpytorch_partition.estimators.mondrian_classifier import MondrianClassifier as MondrianClassifier
from gpytorch_partition.estimators.regressor import PartitionGPRegressor as PartitionGPRegressor
from gpytorch_partition.estimators.scores import hit_curve as hit_curve
from gpytorch_partition.estimators.svm import PartitionSVC as PartitionSVC
from gpytorch_partition.estimators.svm import PartitionSVR as PartitionSVR
from gpytorch_partition.estimators.training_range import OutsideRangeWarning as OutsideRangeWarning

__all__ = [
    "BaggedStepwiseSelector",
    "LAGORanker",
    "MondrianClassifier",
    "OutsideRangeWarning",
    "ParallelEvolutionSelector",
    "PartitionFeatures",
    "PartitionGPClassifier",
    "PartitionGPRegressor",
    "PartitionKernelPCA",
    "PartitionSVC",
    "PartitionSVR",
    "PartitionSpectralClustering",
    "hit_curve",
]
