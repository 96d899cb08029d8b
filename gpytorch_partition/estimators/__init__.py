"""Estimators with the scikit-learn API."""

from gpytorch_partition.estimators.classifier import PartitionGPClassifier as PartitionGPClassifier
from gpytorch_partition.estimators.features import PartitionFeatures as PartitionFeatures
from gpytorch_partition.estimators.kernel_pca import PartitionKernelPCA as PartitionKernelPCA
from gpytorch_partition.estimators.lago import LAGORanker as LAGORanker
from gpytorch_partition.estimators.mondrian_classifier import MondrianClassifier as MondrianClassifier
from gpytorch_partition.estimators.parallel_evolution import BaggedStepwiseSelector as BaggedStepwiseSelector
from gpytorch_partition.estimators.parallel_evolution import ParallelEvolutionSelector as ParallelEvolutionSelector
from gpytorch_partition.estimators.regressor import PartitionGPRegressor as PartitionGPRegressor
from gpytorch_partition.estimators.scores import hit_curve as hit_curve
from gpytorch_partition.estimators.spectral_clustering import (
    PartitionSpectralClustering as PartitionSpectralClustering,
)
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
