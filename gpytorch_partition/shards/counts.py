"""Rows as counts of clusters, and as codes: the two forms in which shards are kept."""

from __future__ import annotations

from typing import Any

from gpytorch_partition.inference.spaces.cluster_rows import LocalRows
from gpytorch_partition.inference.spaces.statistics import ClusterStatistics, merged_states
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.models.cluster_space_gp import local_rows
from gpytorch_partition.models.feature_space_gp import FeatureSpaceGP
from gpytorch_partition.shards.chunks import tensors_of

State = dict[str, Any]


def counted(chunk: Any, kernel: PartitionKernel, max_clusters: int) -> State:
    """Return the packed counts of a chunk, `2 p^2` bytes for p clusters."""
    part = FeatureSpaceGP(kernel, max_clusters=max_clusters)
    part.add_rows(*tensors_of(chunk))
    return part.statistics.state_dict()


def merged_counts(first: State, second: State, kernel: PartitionKernel, max_clusters: int) -> State:
    """Return the packed counts of the rows of both states; with unbounded labels the clusters are the union."""
    if first["values"] is None:
        return merged_states(first, second)
    total, other = (ClusterStatistics(kernel.partition, max_clusters) for _ in range(2))
    total.load_state_dict(first)
    other.load_state_dict(second)
    return total.merge_(other).state_dict()


def labelled(chunk: Any, kernel: PartitionKernel) -> LocalRows:
    """Return the codes of a chunk, sorted by cluster for the products: 8 bytes for each row and partition."""
    rows = local_rows(kernel, *tensors_of(chunk))
    if rows.num_rows:
        _ = rows.incidence.members
    return rows
