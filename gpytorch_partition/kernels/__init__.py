"""GPyTorch kernels: random partition kernels, combinations of them, and a smooth kernel to add to them."""

from gpytorch_partition.kernels.clustering_kernel import ClusteringKernel as ClusteringKernel
from gpytorch_partition.kernels.encoded_kernel import EncodedKernel as EncodedKernel
from gpytorch_partition.kernels.fast_cluster_kernel import FastClusterKernel as FastClusterKernel
from gpytorch_partition.kernels.gamma_mondrian_kernel import GammaMondrianKernel as GammaMondrianKernel
from gpytorch_partition.kernels.group_kernel import GroupKernel as GroupKernel
from gpytorch_partition.kernels.iterative_kernel import IterativeKernel as IterativeKernel
from gpytorch_partition.kernels.landmark_kernel import LandmarkKernel as LandmarkKernel
from gpytorch_partition.kernels.local_linear_kernel import LocalLinearKernel as LocalLinearKernel
from gpytorch_partition.kernels.membership_kernel import MembershipKernel as MembershipKernel
from gpytorch_partition.kernels.mondrian_kernel import MondrianKernel as MondrianKernel
from gpytorch_partition.kernels.partition_kernel import PartitionKernel as PartitionKernel
from gpytorch_partition.kernels.partition_mixture_kernel import PartitionMixtureKernel as PartitionMixtureKernel
from gpytorch_partition.kernels.random_binning_kernel import RandomBinningKernel as RandomBinningKernel
from gpytorch_partition.kernels.random_forest_kernel import RandomForestKernel as RandomForestKernel
from gpytorch_partition.kernels.seen_targets import OverconfidenceWarning as OverconfidenceWarning
from gpytorch_partition.kernels.standardized_kernel import StandardizedKernel as StandardizedKernel

__all__ = [
    "ClusteringKernel",
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
