"""Ready-made models."""

from gpytorch_partition.models.cluster_features import cluster_features as cluster_features
from gpytorch_partition.models.exact_gp import PartitionGP as PartitionGP
from gpytorch_partition.models.feature_space_gp import FeatureSpaceGP as FeatureSpaceGP
from gpytorch_partition.models.feature_space_gp import array_chunks as array_chunks
from gpytorch_partition.models.gradient_projection import (
    expected_gradient_projection as expected_gradient_projection,
)
from gpytorch_partition.models.lifetime_path import LifetimeModel as LifetimeModel
from gpytorch_partition.models.lifetime_path import LifetimePath as LifetimePath
from gpytorch_partition.models.lifetime_path import fit_along_lifetimes as fit_along_lifetimes
from gpytorch_partition.models.mondrian_forest import MondrianForest as MondrianForest
from gpytorch_partition.models.mondrian_forest import joint_weights as joint_weights
from gpytorch_partition.models.sweep import LifetimeSweep as LifetimeSweep
from gpytorch_partition.models.sweep import lifetime_sweep as lifetime_sweep
