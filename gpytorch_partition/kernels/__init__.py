"""GPyTorch kernels: random partition kernels, combinations of them, and a smooth kernel to add to them."""

from gpytorch_partition.kernels.gamma_mondrian_kernel import GammaMondrianKernel as GammaMondrianKernel
from gpytorch_partition.kernels.landmark_kernel import LandmarkKernel as LandmarkKernel
from gpytorch_partition.kernels.local_linear_kernel import LocalLinearKernel as LocalLinearKernel
from gpytorch_partition.kernels.mondrian_kernel import MondrianKernel as MondrianKernel
from gpytorch_partition.kernels.observed_groups import GroupKernel as GroupKernel
from gpytorch_partition.kernels.observed_groups import MembershipKernel as MembershipKernel
from gpytorch_partition.kernels.partition_kernel import PartitionKernel as PartitionKernel
from gpytorch_partition.kernels.partition_mixture_kernel import PartitionMixtureKernel as PartitionMixtureKernel
from gpytorch_partition.kernels.random_forest_kernel import RandomForestKernel as RandomForestKernel
from gpytorch_partition.kernels.seen_targets import OverconfidenceWarning as OverconfidenceWarning
from gpytorch_partition.kernels.unsupervised_kernels import ClusteringKernel as ClusteringKernel
from gpytorch_partition.kernels.unsupervised_kernels import FastClusterKernel as FastClusterKernel
from gpytorch_partition.kernels.unsupervised_kernels import RandomBinningKernel as RandomBinningKernel
from gpytorch_partition.kernels.wrapper_kernels import EncodedKernel as EncodedKernel
from gpytorch_partition.kernels.wrapper_kernels import IterativeKernel as IterativeKernel
from gpytorch_partition.kernels.wrapper_kernels import StandardizedKernel as StandardizedKernel

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
