"""GPyTorch kernels: random partition kernels, combinations of them, and a smooth kernel to add to them."""

from gpytorch_partition.kernels.landmark_kernel import LandmarkKernel
from gpytorch_partition.kernels.mondrian_kernels import GammaMondrianKernel, MondrianKernel
from gpytorch_partition.kernels.observed_groups import GroupKernel, MembershipKernel
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.kernels.partition_mixture_kernel import PartitionMixtureKernel
from gpytorch_partition.kernels.random_forest_kernel import RandomForestKernel
from gpytorch_partition.kernels.seen_targets import OverconfidenceWarning
from gpytorch_partition.kernels.unsupervised_kernels import ClusteringKernel, FastClusterKernel, RandomBinningKernel
from gpytorch_partition.kernels.wrapper_kernels import (
    DeferredKernel,
    EncodedKernel,
    IterativeKernel,
    LocalLinearKernel,
    StandardizedKernel,
)

__all__ = [
    "ClusteringKernel",
    "DeferredKernel",
    "EncodedKernel",
    "FastClusterKernel",
    "GammaMondrianKernel",
    "GroupKernel",
    "IterativeKernel",
    "LandmarkKernel",
    "LocalLinearKernel",
    "MembershipKernel",
    "MondrianKernel",
    "OverconfidenceWarning",
    "PartitionKernel",
    "PartitionMixtureKernel",
    "RandomBinningKernel",
    "RandomForestKernel",
    "StandardizedKernel",
]
