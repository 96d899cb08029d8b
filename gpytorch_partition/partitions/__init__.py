"""Sources of clusters: random partitions of the input space, one file each, with the base class :class:`Partition`."""

from gpytorch_partition.partitions.clustering import ClusteringPartition
from gpytorch_partition.partitions.fast_cluster import FastClusterPartition
from gpytorch_partition.partitions.forest import ForestPartition, TreeCutPartition
from gpytorch_partition.partitions.functions import CallablePartition, SampledPartition
from gpytorch_partition.partitions.grown_forest import grow_forest
from gpytorch_partition.partitions.hashed_cells import GroupPartition, RandomBinningPartition
from gpytorch_partition.partitions.membership_partition import MembershipPartition
from gpytorch_partition.partitions.mondrian.mondrian_partition import MondrianPartition
from gpytorch_partition.partitions.partition import Partition
from gpytorch_partition.partitions.pitman_yor_clusterer import PitmanYorMixture

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
