"""Objects that GPyTorch and linear_operator build around a partition kernel: sums, tasks, noise, predictions."""

from gpytorch_partition.composition import distributions as distributions
from gpytorch_partition.composition.covariance import LazyPartitionCovariance as LazyPartitionCovariance
