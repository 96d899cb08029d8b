"""Ready-made models: an exact GP, a GP that keeps counts of clusters instead of rows; sparse and spectral features."""

from gpytorch_partition.models.cluster_features import ClusterFeatures, cluster_features
from gpytorch_partition.models.cluster_space_gp import ClusterSpaceGP, local_rows
from gpytorch_partition.models.coregionalized import CoregionalizedGP
from gpytorch_partition.models.feature_space_gp import FeatureSpaceGP, array_chunks
from gpytorch_partition.models.partition_gp import PartitionGP
from gpytorch_partition.models.spectral import (
    SpectralTruncation,
    kernel_distance,
    spectral_embedding,
    spectral_truncation,
)

__all__ = [
    "ClusterFeatures",
    "ClusterSpaceGP",
    "CoregionalizedGP",
    "FeatureSpaceGP",
    "PartitionGP",
    "SpectralTruncation",
    "array_chunks",
    "cluster_features",
    "kernel_distance",
    "local_rows",
    "spectral_embedding",
    "spectral_truncation",
]
