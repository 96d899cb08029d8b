"""Ready-made models."""

from gpytorch_partition.models.exact_gp import PartitionGP as PartitionGP
