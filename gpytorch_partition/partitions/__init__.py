"""Sources of clusters: random partitions of the input space, one file each, with the base class :class:`Partition`."""

from gpytorch_partition.partitions.clustering import ClusteringPartition as ClusteringPartition
from gpytorch_partition.partitions.fast_cluster import FastClusterPartition as FastClusterPartition
from gpytorch_partition.partitions.forest import ForestPartition as ForestPartition
from gpytorch_partition.partitions.forest import TreeCutPartition as TreeCutPartition
from gpytorch_partition.partitions.functions import CallablePartition as CallablePartition
from gpytorch_partition.partitions.functions import SampledPartition as SampledPartition
from gpytorch_partition.partitions.grown_forest import grow_forest as grow_forest
from gpytorch_partition.partitions.hashed_cells import GroupPartition as GroupPartition
from gpytorch_partition.partitions.hashed_cells import RandomBinningPartition as RandomBinningPartition
from gpytorch_partition.partitions.membership_partition import MembershipPartition as MembershipPartition
from gpytorch_partition.partitions.mondrian.mondrian_partition import MondrianPartition as MondrianPartition
from gpytorch_partition.partitions.partition import Partition as Partition
from gpytorch_partition.partitions.pitman_yor import PitmanYorMixture as PitmanYorMixture

__all__ = [
    "CallablePartition",
    "ClusteringPartition",
    "FastClusterPartition",
    "ForestPartition",
    "GroupPartition",
    "MembershipPartition",
    "MondrianPartition",
    "Partition",
    "PitmanYorMixture",
    "RandomBinningPartition",
    "SampledPartition",
    "TreeCutPartition",
    "grow_forest",
]
