"""Models: an exact GP of GPyTorch, a GP whose rows are counted in feature space, and sparse features."""

from gpytorch_partition.models.cluster_features import cluster_features as cluster_features
from gpytorch_partition.models.exact_gp import PartitionGP as PartitionGP
from gpytorch_partition.models.feature_space_gp import FeatureSpaceGP as FeatureSpaceGP
from gpytorch_partition.models.feature_space_gp import array_chunks as array_chunks
