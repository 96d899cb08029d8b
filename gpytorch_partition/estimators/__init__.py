"""Estimators with the scikit-learn API."""

from gpytorch_partition.estimators.features import PartitionFeatures as PartitionFeatures
from gpytorch_partition.estimators.kernel_pca import PartitionKernelPCA as PartitionKernelPCA
from gpytorch_partition.estimators.regressor import PartitionGPRegressor as PartitionGPRegressor
from gpytorch_partition.estimators.spectral_clustering import (
    PartitionSpectralClustering as PartitionSpectralClustering,
)
from gpytorch_partition.estimators.svm import PartitionSVC as PartitionSVC
from gpytorch_partition.estimators.svm import PartitionSVR as PartitionSVR
