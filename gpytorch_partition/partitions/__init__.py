"""Where clusters come from: one file per source, one contract (:class:`Partition`)."""

from gpytorch_partition.partitions.callable import CallablePartition as CallablePartition
from gpytorch_partition.partitions.partition import Partition as Partition
