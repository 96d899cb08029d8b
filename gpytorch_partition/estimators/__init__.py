"""Estimators with the scikit-learn API."""

from gpytorch_partition.estimators.checks import OutsideRangeWarning
from gpytorch_partition.estimators.classifier import PartitionGPClassifier
from gpytorch_partition.estimators.column_selection import BaggedStepwiseSelector, ParallelEvolutionSelector
from gpytorch_partition.estimators.lago import LAGORanker
from gpytorch_partition.estimators.machines import PartitionFeatures, PartitionKernelPCA, PartitionSpectralClustering
from gpytorch_partition.estimators.mondrian_classifier import MondrianClassifier
from gpytorch_partition.estimators.regressor import PartitionGPRegressor
from gpytorch_partition.estimators.scores import hit_curve
from gpytorch_partition.estimators.svm import PartitionSVC, PartitionSVR

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
