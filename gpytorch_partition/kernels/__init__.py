"""GPyTorch kernels of random partitions."""

from gpytorch_partition.kernels.fast_cluster_kernel import FastClusterKernel as FastClusterKernel
from gpytorch_partition.kernels.iterative_kernel import IterativeKernel as IterativeKernel
from gpytorch_partition.kernels.mondrian_kernel import MondrianKernel as MondrianKernel
from gpytorch_partition.kernels.partition_kernel import PartitionKernel as PartitionKernel
from gpytorch_partition.kernels.random_forest_kernel import RandomForestKernel as RandomForestKernel
