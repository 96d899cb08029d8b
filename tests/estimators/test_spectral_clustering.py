"""Spectral clustering against scikit-learn's on the precomputed kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import SpectralClustering
from sklearn.datasets import make_moons
from sklearn.manifold import spectral_embedding as embedding_of_sklearn
from sklearn.metrics import adjusted_rand_score

from gpytorch_partition import FastClusterKernel, MondrianKernel, PartitionKernel, RandomForestKernel
from gpytorch_partition.estimators import PartitionSpectralClustering
from gpytorch_partition.models import spectral_embedding

RANDOM = np.random.RandomState(0)
CENTERS = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.5]])
TRUE = np.arange(450) % 3
X = CENTERS[TRUE] + RANDOM.randn(450, 2)
ROWS = torch.from_numpy(X)
KERNELS = {
    "clusters": FastClusterKernel(ROWS, 50, random_state=0),
    "forest": RandomForestKernel(ROWS, ROWS[:, 0] - ROWS[:, 1], 50, random_state=0),
    "Mondrian": MondrianKernel(ROWS, 50, random_state=0),
}


@pytest.mark.parametrize("name", KERNELS)
def test_it_is_that_of_scikit_learn_on_the_precomputed_kernel(name):
    kernel = KERNELS[name]
    affinity = kernel(ROWS).to_dense().detach().numpy()
    machine = PartitionSpectralClustering(3, kernel, tol=1e-9, random_state=0).fit(X)
    expected = embedding_of_sklearn(affinity, n_components=3, drop_first=False, random_state=0)
    signs = np.sign((machine.embedding_ * expected).sum(0))
    np.testing.assert_allclose(machine.embedding_ * signs, expected, atol=1e-6 * np.abs(expected).max())
    labels = SpectralClustering(3, affinity="precomputed", random_state=0).fit_predict(affinity)
    assert adjusted_rand_score(labels, machine.labels_) == 1.0
    assert adjusted_rand_score(TRUE, machine.labels_) > 0.6


def test_supervised_kernels_get_their_targets():
    machine = PartitionSpectralClustering(3, "forest", 20, random_state=0)
    labels = machine.fit_predict(X, TRUE.astype(str))
    np.testing.assert_array_equal(labels, machine.fit(X, TRUE.astype(str)).labels_)
    with pytest.raises(ValueError, match="one target for each of 450 rows, got targets of shape \\(\\)"):
        machine.fit(X, "targets")
    with pytest.raises(ValueError, match="labels of classes, got None or NaN"):
        machine.fit(X, [None] * 450)


def test_eigenvalues_are_those_of_the_normalized_affinity():
    affinity = KERNELS["clusters"](ROWS).to_dense().detach().numpy()
    np.fill_diagonal(affinity, 0)
    root = np.sqrt(affinity.sum(0))
    expected = np.linalg.eigvalsh(affinity / root / root[:, None])[::-1][:5]
    machine = PartitionSpectralClustering(2, KERNELS["clusters"], n_components=5, random_state=0).fit(X)
    np.testing.assert_allclose(machine.eigenvalues_, expected, atol=1e-9)
    assert machine.embedding_.shape == (450, 5)
    assert set(machine.labels_) == {0, 1}


def test_clusters_may_have_any_shape():
    x, true = make_moons(600, noise=0.06, random_state=0)
    kernel = MondrianKernel(torch.from_numpy(x), 100, lifetime=10.0, random_state=0)
    found = PartitionSpectralClustering(2, kernel, random_state=0).fit_predict(x)
    assert adjusted_rand_score(true, found) > 0.9  # K-means: .25


def test_rows_that_are_like_no_other_are_no_error():
    kernel = PartitionKernel(lambda x: x.floor().long())
    x = torch.tensor([[0.1], [0.2], [1.5], [1.6], [7.0]], dtype=torch.float64)
    found = spectral_embedding(kernel, x, 3, random_state=0)
    affinity = kernel(x).to_dense().numpy()
    np.fill_diagonal(affinity, 0)
    np.testing.assert_allclose(found.values, [1, 1, 0], atol=1e-12)
    assert np.isfinite(found.vectors.numpy()).all()
