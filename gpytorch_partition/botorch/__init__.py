"""What BoTorch needs to know of partition kernels; importing it registers them with BoTorch."""

from gpytorch_partition.botorch.pathwise import PartitionFeatureMap as PartitionFeatureMap
