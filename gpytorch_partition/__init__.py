"""
Random partition kernels for GPyTorch.

Each of m partitions puts every point in one cluster. The kernel is the fraction of partitions in which two points share
a cluster, so that every product, solve, determinant and prediction is a sum over clusters.
"""

from gpytorch_partition import composition as composition
from gpytorch_partition import settings as settings
from gpytorch_partition.inputs.kernel_columns import OtherUnitsWarning as OtherUnitsWarning
from gpytorch_partition.inputs.training_rows import encode_missing as encode_missing
from gpytorch_partition.kernels import ClusteringKernel as ClusteringKernel
from gpytorch_partition.kernels import DeferredKernel as DeferredKernel
from gpytorch_partition.kernels import FastClusterKernel as FastClusterKernel
from gpytorch_partition.kernels import GammaMondrianKernel as GammaMondrianKernel
from gpytorch_partition.kernels import GroupKernel as GroupKernel
from gpytorch_partition.kernels import IterativeKernel as IterativeKernel
from gpytorch_partition.kernels import LandmarkKernel as LandmarkKernel
from gpytorch_partition.kernels import LocalLinearKernel as LocalLinearKernel
from gpytorch_partition.kernels import MembershipKernel as MembershipKernel
from gpytorch_partition.kernels import MondrianKernel as MondrianKernel
from gpytorch_partition.kernels import OverconfidenceWarning as OverconfidenceWarning
from gpytorch_partition.kernels import PartitionKernel as PartitionKernel
from gpytorch_partition.kernels import PartitionMixtureKernel as PartitionMixtureKernel
from gpytorch_partition.kernels import RandomBinningKernel as RandomBinningKernel
from gpytorch_partition.kernels import RandomForestKernel as RandomForestKernel
from gpytorch_partition.lifetimes.likelihood_sweep import lifetime_sweep as lifetime_sweep
from gpytorch_partition.presets import default_kernel as default_kernel
from gpytorch_partition.presets import default_model as default_model
from gpytorch_partition.training.cross_validation import (
    fit_weights_by_cross_validation as fit_weights_by_cross_validation,
)
from gpytorch_partition.training.one_pass import fit_exact_gp as fit_exact_gp

__version__ = "0.1.0"

__all__ = [
    "ClusteringKernel",
    "DeferredKernel",
    "FastClusterKernel",
    "GammaMondrianKernel",
    "GroupKernel",
    "IterativeKernel",
    "LandmarkKernel",
    "LocalLinearKernel",
    "MembershipKernel",
    "MondrianKernel",
    "OtherUnitsWarning",
    "OverconfidenceWarning",
    "PartitionKernel",
    "PartitionMixtureKernel",
    "RandomBinningKernel",
    "RandomForestKernel",
    "default_kernel",
    "default_model",
    "encode_missing",
    "fit_exact_gp",
    "fit_weights_by_cross_validation",
    "lifetime_sweep",
]
