"""Kernel PCA, spectral clustering and features, against scikit-learn on precomputed kernels and dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from sklearn.cluster import SpectralClustering
from sklearn.datasets import make_moons
from sklearn.decomposition import KernelPCA
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.manifold import spectral_embedding as embedding_of_sklearn
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline

from gpytorch_partition import (
    FastClusterKernel,
    GammaMondrianKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    PartitionKernel,
    RandomForestKernel,
)
from gpytorch_partition.estimators import PartitionFeatures, PartitionKernelPCA, PartitionSpectralClustering
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.models import kernel_distance, spectral_embedding, spectral_truncation

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(400, 3)
Y = np.sin(2 * X[:, 0]) + X[:, 1] * (X[:, 2] > 0)
NEW = np.concatenate([RANDOM.randn(50, 3), [[40.0, -40.0, 40.0]]])
ROWS, TARGETS, POINTS = map(torch.from_numpy, (X, Y, NEW))
CLUSTERS = FastClusterKernel(ROWS, 30, random_state=0)
FOREST = RandomForestKernel(ROWS, TARGETS, 30, random_state=0)
BUILT = {
    "clusters": CLUSTERS,
    "forest": FOREST,
    "Mondrian": MondrianKernel(ROWS, 30, random_state=0),
    "gamma Mondrian": GammaMondrianKernel(ROWS, 30, random_state=0),
    "local slopes": LocalLinearKernel(FOREST, 3),
    "sum": ScaleKernel(FOREST) + CLUSTERS + LandmarkKernel(ROWS, TARGETS, 20, random_state=0),
}


def dense(kernel, x1, x2):
    with torch.no_grad():
        return kernel(x1, x2).to_dense().numpy()


class TestKernelPCA:
    @pytest.mark.parametrize("name", BUILT)
    def test_it_is_that_of_scikit_learn_on_the_precomputed_kernel(self, name):
        kernel = BUILT[name]
        machine = PartitionKernelPCA(3, kernel, random_state=0)
        scores = machine.fit_transform(X)
        oracle = KernelPCA(3, kernel="precomputed", eigen_solver="dense").fit(dense(kernel, ROWS, ROWS))
        np.testing.assert_allclose(machine.eigenvalues_, oracle.eigenvalues_, rtol=1e-6)
        np.testing.assert_allclose(machine.eigenvectors_, oracle.eigenvectors_, atol=1e-6)
        scale = np.abs(scores).max()
        np.testing.assert_allclose(scores, oracle.transform(dense(kernel, ROWS, ROWS)), atol=1e-6 * scale)
        np.testing.assert_allclose(machine.transform(X), scores, atol=1e-6 * scale)
        expected = oracle.transform(dense(kernel, POINTS, ROWS))
        np.testing.assert_allclose(machine.transform(NEW), expected, atol=1e-6 * scale)

    def test_shares_of_the_variance_are_those_of_all_eigenvalues(self):
        machine = PartitionKernelPCA(3, FOREST, random_state=0).fit(X)
        everything = KernelPCA(kernel="precomputed").fit(dense(FOREST, ROWS, ROWS)).eigenvalues_
        np.testing.assert_allclose(machine.explained_variance_ratio_, everything[:3] / everything.sum(), rtol=1e-8)

    def test_named_kernels_see_standardized_columns(self):
        first, second = (PartitionKernelPCA(random_state=0).fit_transform(x) for x in (X, X * [1, 1e3, 1e-3] + 7))
        np.testing.assert_allclose(first, second, atol=1e-6)

    def test_forests_take_targets_and_missing_values(self):
        holes = np.where(RANDOM.rand(*X.shape) < 0.1, np.nan, X)
        for y in (Y, np.where(Y > 0, "yes", "no"), np.digitize(Y, [-1, 1]).astype(str)):
            machine = PartitionKernelPCA(kernel="forest", num_partitions=20, random_state=0)
            assert np.isfinite(machine.fit(holes, y).transform(holes)).all()

    def test_rows_that_are_all_the_same_have_no_components(self):
        scores = PartitionKernelPCA(random_state=0, num_partitions=5).fit_transform(np.ones((10, 2)))
        np.testing.assert_allclose(scores, 0, atol=1e-7)


class TestTruncation:
    @pytest.mark.parametrize("name", BUILT)
    def test_it_is_the_best_approximation_of_its_rank(self, name):
        matrix = dense(BUILT[name], ROWS, ROWS)
        truncation = spectral_truncation(BUILT[name], ROWS, 4, random_state=0)
        values, vectors = np.linalg.eigh(matrix)
        best = vectors[:, -4:] * values[-4:] @ vectors[:, -4:].T
        features = truncation.features(ROWS).numpy()
        np.testing.assert_allclose(features @ features.T, best, atol=1e-6 * values[-1])
        assert truncation.total == pytest.approx(values.sum(), rel=1e-6)

    @pytest.mark.parametrize("number", [30, 3_000], ids=["dense", "Lanczos"])
    def test_what_is_left_of_rows_that_are_the_same_is_zero(self, number):
        """The centred matrix is rounding, which eigenvectors divided by its root would make coordinates of."""
        machine = PartitionKernelPCA(2, random_state=0).fit(np.ones((number, 2)))
        for found in (machine.transform(NEW[:, :2]), machine.eigenvalues_, machine.explained_variance_ratio_):
            np.testing.assert_array_equal(found, 0)

    def test_the_rank_is_checked(self):
        for rank in (0, 401, 1.5, True):
            with pytest.raises(ValueError, match="expected rank to be from 1 to the number of rows, 400"):
                spectral_truncation(CLUSTERS, ROWS, rank)


@pytest.mark.parametrize("name", BUILT)
def test_distances_are_those_of_the_feature_space(name):
    kernel, points = BUILT[name], torch.cat([ROWS[:30], POINTS])
    matrix = dense(kernel, points, points)
    expected = np.sqrt(np.maximum(matrix.diagonal()[:30, None] + matrix.diagonal() - 2 * matrix[:30], 0))
    found = kernel_distance(kernel, points[:30], points).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-6 * matrix.max() ** 0.5)


def standardized_gram(machine, x1, x2):
    columns = Standardization.of_columns(X)
    return dense(machine.kernel_, columns.apply_array(x1), columns.apply_array(x2))


@pytest.mark.parametrize("kernel", ["forest", "fast_cluster", "mondrian"])
def test_products_are_the_kernel_of_standardized_rows(kernel):
    machine = PartitionFeatures(kernel, 20, random_state=0)
    train = machine.fit_transform(X, Y)
    new = machine.transform(NEW)
    assert train.format == "csr"
    assert train.shape == (400, machine.n_columns_)
    assert len(set(machine.get_feature_names_out())) == machine.n_columns_
    np.testing.assert_allclose((train @ train.T).toarray(), standardized_gram(machine, X, X), atol=1e-12)
    np.testing.assert_allclose((new @ train.T).toarray(), standardized_gram(machine, NEW, X), atol=1e-12)


def test_a_built_kernel_sees_rows_as_they_are():
    features = PartitionFeatures(CLUSTERS).fit_transform(X)
    np.testing.assert_allclose((features @ features.T).toarray(), dense(CLUSTERS, ROWS, ROWS), atol=1e-12)


def test_a_linear_model_on_them_is_a_kernel_machine():
    machine = make_pipeline(PartitionFeatures("forest", 20, random_state=0), Ridge(0.5, fit_intercept=False, tol=1e-12))
    kernel = machine.fit(X, Y)[0]
    exact = KernelRidge(alpha=0.5, kernel="precomputed").fit(standardized_gram(kernel, X, X), Y)
    np.testing.assert_allclose(machine.predict(NEW), exact.predict(standardized_gram(kernel, NEW, X)), atol=1e-6)


CENTERS = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.5]])
TRUE = np.arange(450) % 3
BLOBS = CENTERS[TRUE] + RANDOM.randn(450, 2)
OF_BLOBS = torch.from_numpy(BLOBS)
AFFINITIES = {
    "clusters": FastClusterKernel(OF_BLOBS, 50, random_state=0),
    "forest": RandomForestKernel(OF_BLOBS, OF_BLOBS[:, 0] - OF_BLOBS[:, 1], 50, random_state=0),
    "Mondrian": MondrianKernel(OF_BLOBS, 50, random_state=0),
}


@pytest.mark.parametrize("name", AFFINITIES)
def test_spectral_clustering_is_that_of_scikit_learn_on_the_precomputed_kernel(name):
    kernel = AFFINITIES[name]
    affinity = kernel(OF_BLOBS).to_dense().detach().numpy()
    machine = PartitionSpectralClustering(3, kernel, tol=1e-9, random_state=0).fit(BLOBS)
    expected = embedding_of_sklearn(affinity, n_components=3, drop_first=False, random_state=0)
    signs = np.sign((machine.embedding_ * expected).sum(0))
    np.testing.assert_allclose(machine.embedding_ * signs, expected, atol=1e-6 * np.abs(expected).max())
    labels = SpectralClustering(3, affinity="precomputed", random_state=0).fit_predict(affinity)
    assert adjusted_rand_score(labels, machine.labels_) == 1.0
    assert adjusted_rand_score(TRUE, machine.labels_) > 0.6


def test_supervised_kernels_get_their_targets():
    machine = PartitionSpectralClustering(3, "forest", 20, random_state=0)
    labels = machine.fit_predict(BLOBS, TRUE.astype(str))
    np.testing.assert_array_equal(labels, machine.fit(BLOBS, TRUE.astype(str)).labels_)


def test_eigenvalues_are_those_of_the_normalized_affinity():
    affinity = AFFINITIES["clusters"](OF_BLOBS).to_dense().detach().numpy()
    np.fill_diagonal(affinity, 0)
    root = np.sqrt(affinity.sum(0))
    expected = np.linalg.eigvalsh(affinity / root / root[:, None])[::-1][:5]
    machine = PartitionSpectralClustering(2, AFFINITIES["clusters"], n_components=5, random_state=0).fit(BLOBS)
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
