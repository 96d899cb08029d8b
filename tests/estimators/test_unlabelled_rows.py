"""Rows without targets: kernels are built on all rows, estimators are trained on those with targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.svm import SVC, SVR

from gpytorch_partition import FastClusterKernel, MondrianKernel
from gpytorch_partition.estimators import PartitionGPClassifier, PartitionGPRegressor, PartitionSVC, PartitionSVR

RANDOM = np.random.RandomState(0)
X, NEW = RANDOM.randn(150, 3) * [1, 5, 0.1] + 10, RANDOM.randn(20, 3) * [1, 5, 0.1] + 10
Y = np.sin(2 * X[:, 0]) + X[:, 1] / 5 + 0.3 * RANDOM.randn(150)
MORE = 2 * RANDOM.randn(300, 3) * X.std(0) + 7
ROWS = np.concatenate([X, MORE])
POINTS, NEW_POINTS = (torch.from_numpy((values - ROWS.mean(0)) / ROWS.std(0)) for values in (ROWS, NEW))


def fast_clusters(x, y):
    assert len(y) == 150
    return FastClusterKernel(x, 10, height=7, random_state=0)


def fitted(model, **options):
    regresses = isinstance(model, PartitionGPRegressor | PartitionSVR)
    return model.fit(X, Y if regresses else Y > 2, unlabelled=MORE, **options)


ESTIMATORS = {
    "regressor": lambda kernel: PartitionGPRegressor(kernel, 10, random_state=0),
    "classifier": lambda kernel: PartitionGPClassifier(kernel, 10, random_state=0),
    "SVC": lambda kernel: PartitionSVC(1.0, kernel, 10, random_state=0),
    "SVR": lambda kernel: PartitionSVR(1.0, kernel=kernel, num_partitions=10, random_state=0),
}
OF_EACH = pytest.mark.parametrize("new", ESTIMATORS.values(), ids=list(ESTIMATORS))


def dense(kernel, x1, x2):
    with torch.no_grad():
        return kernel(x1, x2).to_dense().double().numpy()


@pytest.mark.parametrize("kernel", ["fast_cluster", "mondrian", fast_clusters])
def test_a_gaussian_process_is_that_of_the_rows_with_targets(kernel):
    model = fitted(ESTIMATORS["regressor"](kernel))
    built = MondrianKernel(POINTS, 10, random_state=0) if kernel == "mondrian" else fast_clusters(POINTS, Y)
    assert torch.equal(model.kernel_.cluster_ids(NEW_POINTS), built.cluster_ids(NEW_POINTS))
    assert model.model_.train_inputs[0].shape == (150, 3)
    both = model.outputscale_ * dense(built.double(), *2 * [torch.cat([POINTS[:150], NEW_POINTS])])
    constant = Y.mean() + Y.std() * model.model_.mean_module.constant.item()
    noisy = both[:150, :150] + model.noise_ * np.eye(150)
    mean = constant + both[150:, :150] @ np.linalg.solve(noisy, Y - constant)
    np.testing.assert_allclose(model.predict(NEW), mean, rtol=1e-7)
    if isinstance(kernel, str):
        copy = PartitionGPRegressor.from_state(model.to_state())
        assert np.array_equal(copy.predict(NEW), model.predict(NEW))


def test_machines_are_those_of_the_dense_kernel():
    kernel = fast_clusters(POINTS, Y)
    gram, cross = dense(kernel, POINTS[:150], POINTS[:150]), dense(kernel, NEW_POINTS, POINTS[:150])
    exact = SVC(kernel="precomputed").fit(gram, Y > 2)
    found = fitted(ESTIMATORS["SVC"](fast_clusters))
    np.testing.assert_allclose(found.decision_function(NEW), exact.decision_function(cross), atol=2e-3)
    np.testing.assert_allclose(
        fitted(ESTIMATORS["SVR"](fast_clusters)).predict(NEW),
        SVR(kernel="precomputed").fit(gram, Y).predict(cross),
        atol=2e-3,
    )


def test_a_classifier_is_that_of_the_rows_with_targets_and_its_folds_build_kernels_on_all():
    seen = []

    def kernel(x, y):
        seen.append((len(x), len(y)))
        return FastClusterKernel(x, 10, random_state=0)

    model = fitted(ESTIMATORS["classifier"](kernel))
    assert all(rows == targets + 300 for rows, targets in seen)
    assert seen[-1] == (450, 150)
    assert len(seen) > 3
    built = kernel(POINTS, Y)
    scale = model.outputscales_["kernel"]
    gram, cross = (scale * dense(built.double(), points, POINTS[:150]) for points in (POINTS[:150], NEW_POINTS))
    excess = cross @ np.linalg.solve(gram + np.eye(150), (Y > 2) - np.mean(Y > 2))
    expected = model.link_.log_probabilities(torch.from_numpy(np.stack([-excess, excess], 1)))
    np.testing.assert_allclose(model.predict_log_proba(NEW), expected, atol=1e-6)


@OF_EACH
@pytest.mark.parametrize("kernel", ["forest", "auto"])
def test_a_kernel_that_learns_from_targets_refuses_them(kernel, new):
    with pytest.raises(ValueError, match="learns its partitions from targets|expected kernel to be one of"):
        fitted(new(kernel))


@OF_EACH
def test_a_kernel_that_is_built_refuses_them(new):
    with pytest.raises(ValueError, match="which is built already"):
        fitted(new(MondrianKernel(torch.from_numpy(X), 5)))


@OF_EACH
@pytest.mark.parametrize("rows", [np.zeros((3, 2)), np.full((3, 3), np.nan), np.zeros((0, 3)), "rows", 1e200 * X])
def test_rows_that_cannot_be_used(rows, new):
    with pytest.raises((ValueError, TypeError), match="features|NaN|minimum of 1|numbers|expected an array"):
        new("fast_cluster").fit(X, Y > 2, unlabelled=rows)


def test_sigmoids_are_fitted_without_them():
    with pytest.raises(ValueError, match="probability=True, whose folds do not know them, got 300"):
        fitted(PartitionSVC(kernel="mondrian", probability=True))
