"""Sparse features against one-hot labels and kernels; models that inherit weights against those that do not."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from sklearn.linear_model import Perceptron, Ridge, SGDClassifier, SGDRegressor

from gpytorch_partition import (
    FastClusterKernel,
    MondrianKernel,
    RandomBinningKernel,
    RandomForestKernel,
)
from gpytorch_partition.lifetimes import fit_along_lifetimes
from gpytorch_partition.lifetimes.lifetime_path import LifetimeCells, inherit_weights
from gpytorch_partition.models import cluster_features
from tests.random_states import untouched_random_states

N, M = 120, 15
GENERATOR = torch.Generator().manual_seed(1)
X = torch.randn(N, 3, generator=GENERATOR).double()
Y = X[:, 0].sin() + 0.1 * torch.randn(N, generator=GENERATOR)
CLASSES = np.array(["no", "yes", "perhaps"])[(X[:, 0] > 0).long() + (X[:, 1] > 0.7).long()]
# The last rows are far away, in cells that no training row is in.
TEST = torch.cat([torch.randn(40, 3, generator=GENERATOR).double(), 50 + torch.arange(9).double().view(3, 3)])
LIFETIMES = [0.2, 0.5, 1.0]


def kernel_of(name, **options):
    if name == "Mondrian":
        return MondrianKernel(X, M, lifetime=1.0, random_state=0, **options)
    if name == "binning":
        return RandomBinningKernel(X, M, lengthscale=1.0, random_state=0, **options)
    if name == "forest":
        return RandomForestKernel(X, Y, M, heights="sampled", random_state=0, **options)
    return FastClusterKernel(X, M, random_state=0, **options)


def regressor(**options):
    return SGDRegressor(**{"alpha": 1e-4, "learning_rate": "constant", "eta0": 0.3} | options)


def path_of(estimator=None, y=Y, lifetimes=LIFETIMES, x=X, **options):
    options = {"random_state": 0} | options
    return fit_along_lifetimes(kernel_of("Mondrian"), estimator or regressor(), x, y, lifetimes, **options)


def cells():
    before = LifetimeCells(kernel_of("Mondrian"), 0.3, X)
    return before, LifetimeCells(kernel_of("Mondrian"), 0.9, X, before)


class TestInheritance:
    @pytest.mark.parametrize(
        ("estimator", "y"),
        [
            (regressor(), Y.numpy()),
            (regressor(average=True), Y.numpy()),
            (SGDClassifier(random_state=0), CLASSES != "no"),
            (SGDClassifier(average=10, random_state=0), CLASSES),
            (Perceptron(random_state=0), CLASSES),
        ],
    )
    def test_all_predictions_are_preserved_and_learning_goes_on(self, estimator, y):
        """Also those of points in new cells without training rows."""
        before, after = cells()
        decide = "predict" if isinstance(estimator, SGDRegressor) else "decision_function"
        fitted = deepcopy(estimator).fit(before.features(X), y)
        expected = [getattr(fitted, decide)(before.features(x)) for x in (X, TEST)]
        inherit_weights(fitted, before.features(X), after.features(X))
        for x, values in zip((X, TEST), expected):
            np.testing.assert_allclose(getattr(fitted, decide)(after.features(x)), values, rtol=1e-12, atol=1e-12)
            assert np.abs(values).max() > 0.1
        fitted.partial_fit(after.features(X), y)
        assert np.abs(getattr(fitted, decide)(after.features(X)) - expected[0]).max() > 1e-4

    def test_cells_with_training_rows_have_columns_of_their_own(self):
        before, after = cells()
        early, late = (cluster_features(kernel_of("Mondrian").cut(lifetime), TEST, X) for lifetime in (0.3, 0.9))
        found = after.features(TEST)
        assert found.shape[1] == late.shape[1] + early.shape[1] > late.shape[1] > early.shape[1]
        np.testing.assert_array_equal(found[:, : late.shape[1]].toarray(), late.toarray())
        # Every point is where it was before, in as many trees as there, and in a cell that was not seen later.
        np.testing.assert_array_equal(np.diff(found.indptr), np.diff(early.indptr))
        assert late.nnz < early.nnz < M * len(TEST)
        inherited = found[:, late.shape[1] :].toarray()
        assert ((inherited > 0) <= (early.toarray() > 0)).all()


class TestPath:
    def test_columns_follow_from_those_of_the_lifetime_before(self):
        cells, before = None, None
        for lifetime in LIFETIMES:
            cells = LifetimeCells(kernel_of("Mondrian"), lifetime, X, cells)
            columns, before = cells.columns(TEST), cells.columns(TEST, before)
            assert np.array_equal(before[0], columns[0])
            assert before[1] == columns[1]
        assert (before[0] < 0).any()  # the rows far away have none at any lifetime

    def test_each_model_predicts_by_its_own_cells(self):
        path = path_of(validation=(TEST[:40], TEST[:40, 0].sin()))
        for model in path.models:
            features = model.features(TEST)
            expected = features @ model.estimator.coef_ + model.estimator.intercept_
            own = cluster_features(kernel_of("Mondrian").cut(model.lifetime), TEST, X)
            np.testing.assert_array_equal(features[:, : own.shape[1]].toarray(), own.toarray())
            np.testing.assert_allclose(model.predict(TEST), expected, rtol=1e-10)
            assert model.score == model.estimator.score(features[:40], TEST[:40, 0].sin().numpy())
        assert path.lifetimes.tolist() == LIFETIMES
        assert path.best.score == path.scores.max()
        assert path.best.score > 0.7

    def test_the_seed_is_all_that_matters(self):
        """Whatever the estimator's own seed and NumPy's global one."""
        first = path_of(SGDClassifier(random_state=1), CLASSES)
        with untouched_random_states():
            second = path_of(SGDClassifier(), CLASSES)
            other = path_of(SGDClassifier(), CLASSES, random_state=3)
        for a, b, c in zip(first.models, second.models, other.models):
            np.testing.assert_array_equal(a.estimator.coef_, b.estimator.coef_)
            assert (a.estimator.coef_ != c.estimator.coef_).any()

    def test_the_kernels_own_columns_are_selected(self):
        kernel = MondrianKernel(X, M, lifetime=1.0, random_state=0, active_dims=(2, 0))
        path = fit_along_lifetimes(kernel, regressor(), X, Y, LIFETIMES, random_state=0)
        twin = MondrianKernel(X[:, [2, 0]], M, lifetime=1.0, random_state=0)
        expected = fit_along_lifetimes(twin, regressor(), X[:, [2, 0]], Y, LIFETIMES, random_state=0)
        np.testing.assert_array_equal(path.models[-1].predict(TEST), expected.models[-1].predict(TEST[:, [2, 0]]))

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"lifetimes": []}, ValueError, "lifetimes"),
            ({"lifetimes": [0.5, 0.2]}, ValueError, "increasing"),
            ({"lifetimes": [0.0, 0.2]}, ValueError, "positive"),
            ({"lifetimes": [float("nan")]}, ValueError, "positive"),
            ({"lifetimes": [0.5, 1.5]}, ValueError, "at most 1"),
            ({"lifetimes": 0.5}, ValueError, "several numbers, got 0.5"),
            ({"epochs": 0}, ValueError, "epochs.*got 0"),
            ({"epochs": 2.5}, ValueError, "epochs.*got 2.5"),
            ({"x": X.numpy()}, TypeError, "points as a tensor, got ndarray"),
            ({"x": X.expand(len(Y), *X.shape)}, ValueError, "x as a matrix"),
            ({"y": Y[:5]}, ValueError, "one target"),
            ({"validation": (TEST, Y[:5])}, ValueError, "validation"),
            ({"validation": (X[:, :2], Y)}, ValueError, "was built on 3"),
            ({"estimator": Ridge()}, TypeError, "partial_fit"),
        ],
    )
    def test_bad_input_is_refused(self, options, error, message):
        with pytest.raises(error, match=message):
            path_of(**options)

    def test_kernels_without_trees_are_refused(self):
        with pytest.raises(TypeError, match="MondrianKernel"):
            fit_along_lifetimes(kernel_of("binning"), regressor(), X, Y, [0.5])
        with pytest.raises(RuntimeError, match="not fitted"):
            fit_along_lifetimes(MondrianKernel(), regressor(), X, Y, [0.5])

    def test_without_validation_there_are_no_scores(self):
        with pytest.raises(RuntimeError, match="validation"):
            path_of().best  # noqa: B018
