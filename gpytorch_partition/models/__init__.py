"""Ready-made models."""

from gpytorch_partition.models.exact_gp import PartitionGP as PartitionGP
from gpytorch_partition.models.feature_space_gp import FeatureSpaceGP as FeatureSpaceGP
from gpytorch_partition.models.feature_space_gp import array_chunks as array_chunks
from gpytorch_partition.models.lifetime_sweep import LifetimeSweep as LifetimeSweep
from gpytorch_partition.models.mondrian_forest import MondrianForest as MondrianForest
from gpytorch_partition.models.mondrian_forest import joint_weights as joint_weights
