"""Estimators with the scikit-learn API."""

from gpytorch_partition.estimators.kernel_pca import PartitionKernelPCA as PartitionKernelPCA
from gpytorch_partition.estimators.regressor import PartitionGPRegressor as PartitionGPRegressor
