"""Sparse features against dense kernels and one-hot labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_partition import (
    FastClusterKernel,
    GammaMondrianKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    PartitionMixtureKernel,
    RandomBinningKernel,
    RandomForestKernel,
)
from gpytorch_partition.kernels import IterativeKernel, StandardizedKernel
from gpytorch_partition.models import ClusterFeatures, cluster_features

N, M = 120, 15
GENERATOR = torch.Generator().manual_seed(1)
X = torch.randn(N, 3, generator=GENERATOR).double()
Y = X[:, 0].sin() + 0.1 * torch.randn(N, generator=GENERATOR)
# The last rows are far away, in cells that no training row is in.
TEST = torch.cat([torch.randn(40, 3, generator=GENERATOR).double(), 50 + torch.arange(9).double().view(3, 3)])


def forest(heights="all", **options):
    return RandomForestKernel(X, Y, M, heights, random_state=0, **options)


def scaled(kernel):
    kernel = ScaleKernel(kernel)
    kernel.outputscale = 3.7
    return kernel


def with_weights(kernel):
    kernel.level_weights = torch.arange(1, len(kernel.level_weights) + 1)
    return kernel


FLAT = {
    "Mondrian": lambda **options: MondrianKernel(X, M, lifetime=1.0, random_state=0, **options),
    "binning": lambda **options: RandomBinningKernel(X, M, lengthscale=1.0, random_state=0, **options),
    "forest, sampled heights": lambda **options: forest("sampled", **options),
    "clusters": lambda **options: FastClusterKernel(X, M, random_state=0, **options),
}
KERNELS = {
    **FLAT,
    "forest, leaves": lambda: forest("leaf"),
    "forest": forest,
    "forest, impurity": lambda: forest("impurity"),
    "forest, learned weights": lambda: with_weights(forest("learned")),
    "gamma Mondrian": lambda: GammaMondrianKernel(X, M, random_state=0),
    "mixture": lambda: PartitionMixtureKernel([forest(), FLAT["Mondrian"](), FLAT["clusters"]()], [3, 2, 1]),
    "local slopes": lambda: LocalLinearKernel(forest(), 3),
    "inducing points": lambda: LandmarkKernel(X, Y, 10, random_state=0),
    "sum": lambda: scaled(forest()) + scaled(scaled(FLAT["Mondrian"]()) + FLAT["clusters"]()),
    "standardized": lambda: IterativeKernel(StandardizedKernel(FastClusterKernel(X, M, random_state=0), X * 2 + 1)),
}


def dense(kernel, x1, x2):
    with torch.no_grad():
        return kernel(x1, x2).to_dense().double().numpy()


@pytest.mark.parametrize("test_rows", [TEST, TEST[:5], TEST.repeat(5, 1)], ids=["some", "few", "many"])
@pytest.mark.parametrize("name", KERNELS)
def test_their_products_are_the_kernel(name, test_rows):
    kernel = KERNELS[name]()
    test, train = (cluster_features(kernel, x, X) for x in (test_rows, X))
    np.testing.assert_allclose((train @ train.T).toarray(), dense(kernel, X, X), atol=2e-6)
    np.testing.assert_allclose((test @ train.T).toarray(), dense(kernel, test_rows, X), atol=2e-6)
    # Between points that are no training rows they are at most the kernel.
    rest = dense(kernel, test_rows, test_rows) - (test @ test.T).toarray()
    assert (rest > -2e-6).all() or name == "local slopes"
    if name in ("clusters", "forest", "forest, leaves", "forest, impurity", "inducing points"):
        np.testing.assert_allclose(rest, 0, atol=2e-6)
    if "Mondrian" in name:
        assert rest.diagonal().max() > 0.1


def test_of_flat_partitions_they_are_one_hot_labels_of_cells_with_training_rows():
    kernel = KERNELS["Mondrian"]()
    labels, test_labels = kernel.cluster_ids(X), kernel.cluster_ids(TEST)
    values = [np.unique(column) for column in labels.T]
    found = cluster_features(kernel, TEST, X)
    assert found.shape == (len(TEST), sum(map(len, values)))
    blocks = np.split(found.toarray() * M**0.5, np.cumsum([len(own) for own in values])[:-1], 1)
    for r, block in enumerate(blocks):  # cells of a tree come in the order of the tree
        expected = (test_labels[:, [r]].numpy() == values[r]).astype(float)
        np.testing.assert_allclose(sorted(block.T.tolist()), sorted(expected.T.tolist()), rtol=1e-14)
    assert found.nnz < M * len(TEST)
    assert cluster_features(kernel, X, X).nnz == M * N


def test_names_tell_partitions_clusters_terms_and_loadings():
    features = ClusterFeatures(KERNELS["sum"](), X)
    names = features.names()
    assert len(set(names)) == len(names) == features.num_columns == features(TEST).shape[1]
    assert names[0] == "term0_partition0_cluster0"
    assert names[-1].startswith(f"term2_partition{M - 1}_cluster")
    np.testing.assert_array_equal(np.unique(features.partitions), np.arange(3 * M))
    slopes = ClusterFeatures(KERNELS["local slopes"](), X).names()
    assert len(set(slopes)) == len(slopes)
    assert slopes[-1].endswith("_loading3")


def test_other_kernels_are_refused():
    with pytest.raises(TypeError, match="kernel of this package or a sum.*RBFKernel"):
        cluster_features(RBFKernel(), X, X)
    with pytest.raises(TypeError, match="AdditiveKernel"):
        cluster_features(forest() + RBFKernel(), X, X)


def test_points_that_cannot_be_used_are_refused():
    kernel = KERNELS["Mondrian"]()
    for x, train_x in ((X[:, :2], X), (X, X[:, :2]), (X.unsqueeze(0), X), (X.long(), X), (X, X[:0]), (X.numpy(), X)):
        with pytest.raises(ValueError, match="expected|was built on"):
            cluster_features(kernel, x, train_x)
    with pytest.raises(RuntimeError, match="not fitted"):
        cluster_features(MondrianKernel(), X, X)
