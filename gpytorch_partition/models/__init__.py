"""Ready-made models: an exact GP, a GP that keeps counts of clusters instead of rows; sparse and spectral features."""

from gpytorch_partition.models.cluster_features import ClusterFeatures as ClusterFeatures
from gpytorch_partition.models.cluster_features import cluster_features as cluster_features
from gpytorch_partition.models.cluster_space_gp import ClusterSpaceGP as ClusterSpaceGP
from gpytorch_partition.models.cluster_space_gp import local_rows as local_rows
from gpytorch_partition.models.coregionalized import CoregionalizedGP as CoregionalizedGP
from gpytorch_partition.models.feature_space_gp import FeatureSpaceGP as FeatureSpaceGP
from gpytorch_partition.models.feature_space_gp import array_chunks as array_chunks
from gpytorch_partition.models.partition_gp import PartitionGP as PartitionGP
from gpytorch_partition.models.spectral import SpectralTruncation as SpectralTruncation
from gpytorch_partition.models.spectral import kernel_distance as kernel_distance
from gpytorch_partition.models.spectral import spectral_embedding as spectral_embedding
from gpytorch_partition.models.spectral import spectral_truncation as spectral_truncation

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
