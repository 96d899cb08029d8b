"""Partitions of several sources side by side, against the sources themselves."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import pytest
import torch

from gpytorch_partition.clusters.cluster_index import BoundedClusterIndex, JointClusterIndex, SeenClusterIndex
from gpytorch_partition.inputs.kernel_columns import Columns
from gpytorch_partition.kernels.partition_mixture_kernel import JointPartition
from gpytorch_partition.partitions import CallablePartition, FastClusterPartition, ForestPartition, MondrianPartition
from gpytorch_partition.partitions.grown_forest import grow_forest

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 3, generator=GENERATOR)


def floors(x):
    return x.floor().long()


def source(partition, dims=None):
    return SimpleNamespace(partition=partition, columns=Columns(dims))


def forest(seed=0):
    return source(ForestPartition(grow_forest(X, X[:, 0], num_trees=3, random_state=seed)))


def clusters():
    return source(FastClusterPartition(X[:, [2, 0]], 4, random_state=0), (2, 0))


def cells():
    return source(MondrianPartition(X, 5, random_state=0))


def function():
    return source(CallablePartition(floors), (1,))


MAKERS = {
    "bounded": lambda: [forest(), clusters()],
    "unbounded": lambda: [function(), cells()],
    "both": lambda: [function(), forest(), cells(), clusters()],
}


@pytest.fixture(params=MAKERS)
def sources(request):
    return MAKERS[request.param]()


def test_labels_are_those_of_the_sources(sources):
    joint = JointPartition(sources)
    expected = torch.cat([each.partition.labels(each.columns.select(X)) for each in sources], -1)
    assert torch.equal(joint.labels(X), expected)
    assert joint.num_partitions == expected.shape[-1]


def test_parts_lie_side_by_side(sources):
    joint = JointPartition(sources)
    rows, _ = joint.incidences(X, X)
    widths = [each.partition.num_partitions for each in sources]
    start = 0
    for size, part in zip(rows.sizes, rows.codes.split(widths, -1), strict=True):
        assert start <= int(part.min())
        assert int(part.max()) < start + size
        start += size
    assert start == rows.num_clusters
    for each, size in zip(sources, rows.sizes):
        if each.partition.cluster_counts is not None:
            assert size == int(each.partition.cluster_counts.sum())


def test_a_source_that_changes_is_asked_again():
    first, other = forest(), forest(seed=1)
    joint = JointPartition([first, clusters()])
    joint.incidences(X, X)
    first.partition.load_state_dict(other.partition.state_dict())
    rows, _ = joint.incidences(X, X)
    assert torch.equal(rows.codes, JointPartition([other, clusters()]).incidences(X, X)[0].codes)
    first.partition = forest(seed=2).partition
    rows, _ = joint.incidences(X, X)
    assert torch.equal(rows.codes, JointPartition([first, clusters()]).incidences(X, X)[0].codes)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda joint: pickle.loads(pickle.dumps(joint))])
def test_a_copy_has_sources_of_its_own(duplicate):
    joint = JointPartition(MAKERS["both"]())
    before = joint.labels(X)
    twin = duplicate(joint)
    twin._sources[1].partition.load_state_dict(forest(seed=1).partition.state_dict())
    assert torch.equal(joint.labels(X), before)
    assert not torch.equal(twin.labels(X), before)


def test_points_are_refused_by_whom_they_concern():
    joint = JointPartition([function(), clusters()])
    x = X.clone()
    x[0, 1] = torch.nan  # which the clusters do not see, and which is the function's business
    assert joint.labels(x).shape == (60, 5)
    x[0, 2] = torch.nan
    with pytest.raises(ValueError, match="FastClusterPartition expected finite points"):
        joint.labels(x)
    with pytest.raises(RuntimeError, match="ForestPartition is not fitted"):
        JointPartition([source(ForestPartition()), clusters()]).labels(X)


def test_joint_index_of_joint_indices():
    seen = SeenClusterIndex.of(torch.tensor([[7], [9]]))
    inner = JointClusterIndex([seen, BoundedClusterIndex(torch.tensor([2]), 1)], [1, 1], 1)
    outer = JointClusterIndex([BoundedClusterIndex(torch.tensor([2, 3]), 1), inner], [2, 2], 1)
    assert outer.sizes == (5, (3, 2))
    assert outer.num_clusters == 10
    assert outer.codes(torch.tensor([[1, 2, 9, 1], [0, 0, 8, 0]])).tolist() == [[1, 4, 6, 9], [0, 2, 7, 8]]
    assert outer.codes(torch.zeros(1, 4, dtype=torch.int64)).dtype == torch.int32
    assert JointClusterIndex([seen], [1], 2**31).dtype == torch.int64
