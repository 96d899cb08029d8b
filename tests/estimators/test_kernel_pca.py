"""Kernel PCA and what it is made of, against scikit-learn on precomputed kernels and dense decompositions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from sklearn.decomposition import KernelPCA

from gpytorch_partition import (
    FastClusterKernel,
    GammaMondrianKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    RandomForestKernel,
)
from gpytorch_partition.estimators import PartitionKernelPCA
from gpytorch_partition.models import kernel_distance, spectral_truncation

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
        with pytest.raises(ValueError, match=r"Call fit\(X, y\)"):
            PartitionKernelPCA(kernel="forest").fit(X)

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
