"""Support vector machines against scikit-learn's on precomputed kernels."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC, SVR

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel
from gpytorch_partition.estimators import PartitionSVC, PartitionSVR, svm

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(400, 3)
NEW = np.concatenate([RANDOM.randn(100, 3), [[40.0, -40.0, 40.0]]])
SIGNAL = np.sin(2 * X[:, 0]) + X[:, 1] * (X[:, 2] > 0) + 0.5 * RANDOM.randn(400)
TWO = np.where(SIGNAL > 0, "yes", "no")
THREE = np.array(["few", "more", "most"])[np.digitize(SIGNAL, [-0.8, 1.0])]
RARE = np.where(SIGNAL > 1.9, "yes", "no")
ROWS, POINTS = torch.from_numpy(X), torch.from_numpy(NEW)


def scaled(kernel):
    kernel = ScaleKernel(kernel)
    kernel.outputscale = 5.0
    return kernel


KERNELS = {
    "clusters": FastClusterKernel(ROWS, 50, random_state=0),
    "forest": RandomForestKernel(ROWS, torch.from_numpy(SIGNAL), 30, random_state=0),
    "scaled Mondrian": scaled(MondrianKernel(ROWS, 50, random_state=0)),
}


def dense(kernel, x1, x2):
    with torch.no_grad():
        return kernel(x1, x2).to_dense().numpy()


def dual_of(machine):
    """Return the coefficient of each training row."""
    found = np.zeros(len(X))
    found[machine.support_] = machine.dual_coef_[0]
    return found


@pytest.fixture(params=[True, False], ids=["sparse", "dense"])
def is_sparse(request, monkeypatch):
    """Above a number of rows the solver sees sparse features, which is tried on few rows here."""
    if request.param:
        monkeypatch.setattr(svm, "_MOST_DENSE_ROWS", 0)
    return request.param


class TestClassifier:
    @pytest.mark.parametrize("y", [TWO, RARE], ids=["balanced", "rare"])
    @pytest.mark.parametrize("C", [1e-4, 0.01, 10.0])  # of which the first leaves all rows at their costs
    @pytest.mark.parametrize("name", KERNELS)
    def test_it_is_that_of_scikit_learn_on_the_precomputed_kernel(self, name, C, y, is_sparse):
        kernel, tolerance = KERNELS[name], 5e-3  # SVC itself is up to 2e-3 off at its default tolerance
        exact = SVC(C=C, kernel="precomputed", tol=1e-8).fit(dense(kernel, ROWS, ROWS), y)
        expected = exact.decision_function(dense(kernel, POINTS, ROWS))
        machine = PartitionSVC(C, kernel, random_state=0).fit(X, y)
        np.testing.assert_allclose(machine.decision_function(NEW), expected, atol=tolerance)
        sure = np.abs(expected) > tolerance
        np.testing.assert_array_equal(machine.predict(NEW)[sure], exact.predict(dense(kernel, POINTS, ROWS))[sure])

    @pytest.mark.parametrize("class_weight", [None, "balanced", {"few": 5.0}], ids=str)
    def test_several_classes_are_separated_one_against_one(self, class_weight, is_sparse):
        kernel = KERNELS["clusters"]
        exact = SVC(kernel="precomputed", tol=1e-8, class_weight=class_weight, break_ties=True)
        exact.fit(dense(kernel, ROWS, ROWS), THREE)
        machine = PartitionSVC(kernel=kernel, class_weight=class_weight, random_state=0).fit(X, THREE)
        expected = exact.decision_function(dense(kernel, POINTS, ROWS))
        assert machine.coef_.shape[0] == 3
        close = np.isclose(machine.decision_function(NEW), expected, atol=2e-3).all(1)
        assert close.mean() > 0.97  # others have a vote that is as good as tied
        assert (machine.predict(NEW) == exact.predict(dense(kernel, POINTS, ROWS))).mean() > 0.97

    @pytest.mark.parametrize("class_weight", [None, {"yes": 3.0}], ids=str)
    @pytest.mark.parametrize("name", KERNELS)
    def test_support_vectors_are_those_of_scikit_learn(self, name, class_weight):
        gram = dense(KERNELS[name], ROWS, ROWS)
        exact = SVC(C=2.0, kernel="precomputed", tol=1e-8, class_weight=class_weight).fit(gram, TWO)
        machine = PartitionSVC(2.0, KERNELS[name], tol=1e-5, class_weight=class_weight, random_state=0).fit(X, TWO)
        found = dual_of(machine)
        assert len(set(machine.support_) ^ set(exact.support_)) <= 2  # coefficients of nearly 0
        np.testing.assert_allclose(machine.margin_, (found @ gram @ found) ** -0.5, rtol=1e-4)
        np.testing.assert_allclose(gram @ found + machine.intercept_, machine.decision_function(X), atol=1e-3)
        assert (found * np.where(TWO == "yes", 1, -1) >= 0).all()
        if name == "clusters":  # the others are singular, so that several rows could share a coefficient
            np.testing.assert_allclose(found, dual_of(exact), atol=1e-3)

    def test_each_pair_of_classes_has_dual_coefficients(self):
        machine = PartitionSVC(kernel=KERNELS["clusters"], tol=1e-5, random_state=0).fit(X, THREE)
        gram = dense(KERNELS["clusters"], ROWS, ROWS)
        for (first, second), dual in zip(combinations(machine.classes_, 2), machine.dual_coef_):
            rows = np.flatnonzero(np.isin(THREE, [first, second]))
            exact = SVC(kernel="precomputed", tol=1e-8).fit(gram[np.ix_(rows, rows)], THREE[rows])
            found, expected = np.zeros(len(X)), np.zeros(len(X))
            found[machine.support_], expected[rows[exact.support_]] = dual, exact.dual_coef_[0]
            np.testing.assert_allclose(found, expected, atol=1e-3)

    def test_probabilities_are_calibrated_on_rows_held_out(self):
        machine = PartitionSVC(num_partitions=30, probability=True, random_state=0).fit(X[:300], TWO[:300])
        plain = PartitionSVC(num_partitions=30, random_state=0).fit(X[:300], TWO[:300])
        np.testing.assert_array_equal(machine.decision_function(NEW), plain.decision_function(NEW))
        found = machine.predict_proba(X[300:])[:, 1]
        rises = np.argsort(found, kind="stable") == np.argsort(machine.decision_function(X[300:]), kind="stable")
        assert rises.all()
        assert np.mean((found - (TWO[300:] == "yes")) ** 2) < 0.17  # .25 without any knowledge
        three = PartitionSVC(num_partitions=20, probability=True, random_state=0).fit(X, THREE).predict_proba(NEW)
        np.testing.assert_allclose(three.sum(1), 1)
        assert three.shape == (len(NEW), 3)
        for machine in (plain, clone(plain), plain.set_params(probability=True)):
            assert hasattr(machine, "predict_proba") == (machine.probability and machine is not plain)
        with pytest.raises(AttributeError) as error:
            plain.predict_proba(X)
        assert "fit again" in str(error.value.__cause__)

    def test_default_forests_learn_classes(self):
        assert cross_val_score(PartitionSVC(random_state=0), X, THREE, cv=3).mean() > 0.55  # .36 by chance


class TestRegressor:
    @pytest.mark.parametrize("C", [0.01, 10.0])
    @pytest.mark.parametrize("name", KERNELS)
    def test_it_is_that_of_scikit_learn_on_the_precomputed_kernel(self, name, C, is_sparse):
        kernel, y = KERNELS[name], 7 + 3 * SIGNAL
        exact = SVR(C=C, kernel="precomputed", tol=1e-8).fit(dense(kernel, ROWS, ROWS), y)
        machine = PartitionSVR(C, kernel=kernel, random_state=0).fit(X, y)
        expected = exact.predict(dense(kernel, POINTS, ROWS))
        np.testing.assert_allclose(machine.predict(NEW), expected, atol=5e-3 * y.std())

    @pytest.mark.parametrize("epsilon", [0.0, 0.1])
    def test_support_vectors_are_those_of_scikit_learn(self, epsilon):
        kernel, y = KERNELS["clusters"], 7 + 3 * SIGNAL
        exact = SVR(C=10.0, epsilon=epsilon, kernel="precomputed", tol=1e-8).fit(dense(kernel, ROWS, ROWS), y)
        machine = PartitionSVR(10.0, epsilon, kernel, tol=1e-6, random_state=0).fit(X, y)
        np.testing.assert_allclose(dual_of(machine), dual_of(exact), atol=1e-3)

    def test_whole_numbers_and_constants_are_targets(self, is_sparse):
        machine = PartitionSVR(10.0, num_partitions=20, random_state=0)
        assert machine.fit(X, np.round(5 * SIGNAL).astype(int)).score(X, 5 * SIGNAL) > 0.5
        np.testing.assert_allclose(machine.fit(X, np.full(400, 3.0)).predict(NEW), 3.0, atol=0.11)


def test_many_rows_have_no_dual_coefficients(monkeypatch):
    monkeypatch.setattr(svm, "_MOST_DENSE_ROWS", 399)
    machine = PartitionSVC(kernel=KERNELS["clusters"], random_state=0)
    for name in ("support_", "margin_"):
        with pytest.raises(AttributeError, match="a PartitionSVC that is fitted"):
            getattr(PartitionSVC(), name)
    for name in ("support_", "dual_coef_"):
        assert not hasattr(machine.fit(X, TWO), name)
        with pytest.raises(AttributeError, match="expected 399 training rows or fewer"):
            getattr(machine, name)


def test_blocks_of_rows_do_not_change_predictions(monkeypatch):
    machine = PartitionSVR(num_partitions=20, random_state=0).fit(X, SIGNAL)
    whole = machine.predict(NEW)
    monkeypatch.setattr(svm, "_ENTRIES", 1000)
    np.testing.assert_allclose(machine.predict(NEW), whole, rtol=1e-12)


def test_too_few_passes_are_told(monkeypatch):
    monkeypatch.setattr(svm, "_MOST_DENSE_ROWS", 0)
    with pytest.warns(ConvergenceWarning, match="Liblinear failed to converge"):
        PartitionSVC(1000.0, num_partitions=20, max_iter=2, random_state=0).fit(X, TWO)
