"""Ready-made models: an exact GP, a GP that keeps counts of clusters instead of rows, and sparse features."""

from gpytorch_partition.models.cluster_features import cluster_features as cluster_features
from gpytorch_partition.models.exact_gp import PartitionGP as PartitionGP
from gpytorch_partition.models.feature_space_gp import FeatureSpaceGP as FeatureSpaceGP
from gpytorch_partition.models.feature_space_gp import array_chunks as array_chunks
