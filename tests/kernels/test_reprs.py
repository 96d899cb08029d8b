"""Reprs say what kernels and partitions are made of, in words."""

from __future__ import annotations

import copy

import pytest
import torch
from gpytorch.kernels import ScaleKernel
from scipy.sparse import csr_array
from sklearn.cluster import KMeans

import gpytorch_partition as gp
from gpytorch_partition.kernels import StandardizedKernel

X = torch.rand(100, 3, generator=torch.Generator().manual_seed(0))
FOREST = gp.RandomForestKernel(X, X[:, 0], 20, "learned", random_state=0)
CLUSTERS = gp.FastClusterKernel(X, 30, random_state=0)

KERNELS = {
    gp.RandomForestKernel(): ["unfitted"],
    FOREST: ["20 trees of height", "leaves", "3 columns", "heights='learned'", "level weights [0."],
    gp.RandomForestKernel(X, X[:, 0], 20, "sampled", random_state=0): ["20 trees cut into", "heights='sampled'"],
    gp.RandomForestKernel(X, X[:, 0], 5, random_state=0, active_dims=(0, 2)): ["active_dims=[0, 2]"],
    CLUSTERS: ["30 partitions of 1 to 64 clusters", "each on 1 to 3 columns"],
    gp.FastClusterKernel(X, 5, random_state=0, projection=2): ["2 random projections"],
    gp.MondrianKernel(X, 20, lifetime=2.0, max_lifetime=8.0, random_state=0): ["20 trees, lifetime 2 of 8"],
    gp.MondrianKernel(X, 4, projection="rotations", lifetime=2.0, random_state=0): ["4 projections to 3 columns"],
    gp.GammaMondrianKernel(X, 20, random_state=0): ["20 trees", "mean lifetime", "concentration 2"],
    gp.RandomBinningKernel(X, 20, random_state=0): ["20 grids, lengthscales [0."],
    gp.GroupKernel((0, 1)): ["1 + 1 partitions, weights [0.5, 0.5]", "combination of categories"],
    gp.MembershipKernel(csr_array([[1, 0], [1, 1], [0, 1]])): ["3 items in 2 sets"],
    gp.ClusteringKernel(X, KMeans(3), 5, rows=50, random_state=0): ["5 partitions of 3 clusters"],
    gp.PartitionKernel(torch.floor): ["PartitionKernel(floor)"],
    gp.PartitionKernel.from_sampler(lambda seed: lambda x: x[:, 0] > 0.5, 5, random_state=0): ["5 partitions drawn"],
    gp.LandmarkKernel(X, X[:, 0], 10, random_state=0): ["10 inducing points", "lengthscales [", "MaternKernel"],
    gp.LocalLinearKernel(FOREST, 3): ["slopes of variance 0.3333 in 3 columns", "20 trees"],
    gp.PartitionMixtureKernel([FOREST, CLUSTERS], [3, 1]): ["weights [0.75, 0.25]", "20 trees", "30 partitions"],
    StandardizedKernel(CLUSTERS, X): ["3 columns", "30 partitions"],
    ScaleKernel(CLUSTERS): ["30 partitions"],
}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_kernels(kernel):
    text = repr(kernel)
    for words in KERNELS[kernel]:
        assert words in text
    for noise in ("tensor", "Partition()", "_Heights", "Logits", "BuildingRange", "Columns("):
        assert noise not in text
    assert max(map(len, text.splitlines())) < 200
    assert "without values" in repr(copy.deepcopy(kernel).to("meta"))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_partitions(kernel):
    partition = getattr(kernel, "partition", None)
    if partition is not None:
        assert "tensor" not in repr(partition)
        assert not repr(partition).endswith("()")
        assert "tensor" not in repr(copy.deepcopy(partition).to("meta"))


def test_lines_are_indented_as_pytorch_does():
    kernel = gp.PartitionMixtureKernel([CLUSTERS])
    assert repr(kernel).splitlines()[2:4] == ["  (kernels): ModuleList(", f"    (0): {CLUSTERS!r}"]
