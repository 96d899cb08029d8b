"""Sparse features against dense kernels and one-hot labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from gpytorch_partition import MondrianKernel
from gpytorch_partition.models import ClusterFeatures, cluster_features
from tests.kernels import zoo
from tests.kernels.zoo import BUILD, ROWS, kernel_of, scaled

X = zoo.X.double()
# The last rows are far away, in cells that no training row is in.
TEST = torch.cat(
    [torch.randn(40, 10, generator=torch.Generator().manual_seed(1)), 50 + torch.arange(30.0).view(3, 10)]
).double()
KERNELS = {name: BUILD[name] for name in BUILD if name not in ROWS}
KERNELS["sum"] = lambda x: scaled(BUILD["forest"])(x) + scaled(BUILD["scaled"])(x) + BUILD["fast_cluster"](x)
EXACT = ("fast_cluster", "forest", "leaf", "impurity", "landmark")  # also between points that are no training rows
UNBOUNDED = ("mondrian", "random_binning", "gamma_mondrian")


def dense(kernel, x1, x2):
    with torch.no_grad():
        return kernel(x1, x2).to_dense().double().numpy()


@pytest.mark.parametrize("test_rows", [TEST[-5:], TEST.repeat(5, 1)], ids=["few", "many"])
@pytest.mark.parametrize("name", KERNELS)
def test_their_products_are_the_kernel(name, test_rows):
    kernel = KERNELS[name](zoo.X)
    test, train = (cluster_features(kernel, x, X) for x in (test_rows, X))
    np.testing.assert_allclose((train @ train.T).toarray(), dense(kernel, X, X), atol=2e-6)
    np.testing.assert_allclose((test @ train.T).toarray(), dense(kernel, test_rows, X), atol=2e-6)
    rest = dense(kernel, test_rows, test_rows) - (test @ test.T).toarray()
    assert (rest > -2e-6).all() or name == "local_linear"  # at most the kernel
    if name in EXACT:
        np.testing.assert_allclose(rest, 0, atol=2e-6)
    if name in UNBOUNDED:
        assert rest.diagonal().max() > 0.1


def test_of_flat_partitions_they_are_one_hot_labels_of_cells_with_training_rows():
    kernel = kernel_of("mondrian")
    labels, test_labels = kernel.cluster_ids(X), kernel.cluster_ids(TEST)
    values = [np.unique(column) for column in labels.T]
    found = cluster_features(kernel, TEST, X)
    assert found.shape == (len(TEST), sum(map(len, values)))
    blocks = np.split(found.toarray() * kernel.num_partitions**0.5, np.cumsum([len(own) for own in values])[:-1], 1)
    for r, block in enumerate(blocks):  # cells of a tree come in the order of the tree
        expected = (test_labels[:, [r]].numpy() == values[r]).astype(float)
        np.testing.assert_allclose(sorted(block.T.tolist()), sorted(expected.T.tolist()), rtol=1e-14)
    assert found.nnz < kernel.num_partitions * len(TEST)
    assert cluster_features(kernel, X, X).nnz == kernel.num_partitions * len(X)


def test_names_tell_partitions_clusters_terms_and_loadings():
    features = ClusterFeatures(KERNELS["sum"](zoo.X), X)
    names = features.names()
    assert len(set(names)) == len(names) == features.num_columns == features(TEST).shape[1]
    assert names[0] == "term0_partition0_cluster0"
    assert names[-1].startswith("term2_partition19_cluster")
    np.testing.assert_array_equal(np.unique(features.partitions), np.arange(10 + 30 + 20))
    slopes = ClusterFeatures(kernel_of("local_linear"), X).names()
    assert len(set(slopes)) == len(slopes)
    assert slopes[-1].endswith("_loading10")


def test_other_kernels_are_refused():
    with pytest.raises(TypeError, match="kernel of this package or a sum.*RBFKernel"):
        cluster_features(RBFKernel(), X, X)
    with pytest.raises(TypeError, match="AdditiveKernel"):
        cluster_features(kernel_of("forest") + RBFKernel(), X, X)


def test_points_that_cannot_be_used_are_refused():
    kernel = kernel_of("mondrian")
    for x, train_x in ((X[:, :2], X), (X, X[:, :2]), (X.unsqueeze(0), X), (X.long(), X), (X, X[:0]), (X.numpy(), X)):
        with pytest.raises(ValueError, match="expected|was built on"):
            cluster_features(kernel, x, train_x)
    with pytest.raises(RuntimeError, match="not fitted"):
        cluster_features(MondrianKernel(), X, X)
