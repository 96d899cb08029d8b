"""Proximities against their definitions by dense algebra, and against the forest's own predictions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine, make_friedman1
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.ensemble import RandomForestRegressor as Forest

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.explain import proximities

X, Y = make_friedman1(200, 6, noise=1.0, random_state=0)
NEW = make_friedman1(40, 6, random_state=1)[0]
FOREST = Forest(50, oob_score=True, random_state=0).fit(X, Y)
TWO_TREES = Forest(2, random_state=0).fit(X, Y)
COUNTS = np.stack([np.bincount(rows, minlength=200) for rows in FOREST.estimators_samples_], 1)
UNSEEN = COUNTS == 0
WINE, KINDS = load_wine(return_X_y=True)
WINES = RandomForestClassifier(100, oob_score=True, random_state=0).fit(WINE, KINDS)


def shared(rows):
    """Return whether each pair shares a leaf of each tree (`n x N x m`)."""
    return FOREST.apply(rows)[:, None] == FOREST.apply(X)[None]


def expected(rows, weighting):
    same, is_training = shared(rows), rows is X
    if weighting in ("leaf", "kerf"):
        leaf = same.mean(-1)
        return leaf if weighting == "leaf" else leaf / leaf.sum(1, keepdims=True)
    unseen = UNSEEN if is_training else np.ones((len(rows), 50), bool)
    if weighting == "oob":
        both = unseen[:, None] & UNSEEN[None]
        return (same & both).sum(-1) / np.maximum(both.sum(-1), 1)
    in_leaf = (same * COUNTS[None]).sum(1, keepdims=True)
    return (unseen[:, None] * same * COUNTS[None] / np.maximum(in_leaf, 1)).sum(-1) / unseen.sum(1)[:, None]


@pytest.mark.parametrize("rows", [X, NEW], ids=["training rows", "new rows"])
@pytest.mark.parametrize("weighting", ["leaf", "kerf", "oob", "gap"])
def test_they_are_as_defined(weighting, rows, monkeypatch):
    monkeypatch.setattr("gpytorch_partition.explain.forest_proximities._ENTRIES", 2_000)  # ten rows at once
    found = proximities(FOREST, X, None if rows is X else rows, weighting=weighting)
    dense = expected(rows, weighting)
    assert found.shape == dense.shape
    np.testing.assert_allclose(found.matrix().toarray(), dense, atol=1e-12)
    np.testing.assert_allclose(found @ Y, dense @ Y, rtol=1e-10)
    rows_nearest, values = found.nearest(3)
    if rows is X:
        np.fill_diagonal(dense, -1.0)
    np.testing.assert_allclose(values, -np.sort(-dense, 1)[:, :3], atol=1e-12)
    np.testing.assert_allclose(np.take_along_axis(dense, rows_nearest, 1), values, atol=1e-12)


def test_gap_gives_the_predictions_of_the_forest():
    np.testing.assert_allclose(proximities(FOREST, X, weighting="gap") @ Y, FOREST.oob_prediction_)
    np.testing.assert_allclose(proximities(FOREST, X, NEW, weighting="gap") @ Y, FOREST.predict(NEW))
    of_classes = proximities(WINES, WINE, weighting="gap") @ np.eye(3)[KINDS]
    np.testing.assert_allclose(of_classes, WINES.oob_decision_function_)


def test_leaves_are_those_of_the_kernel():
    boosting = GradientBoostingRegressor(n_estimators=30, random_state=0).fit(X, Y)
    weighted = AdaBoostRegressor(n_estimators=10, random_state=0).fit(X, Y)
    for ensemble in (FOREST, boosting, weighted):
        kernel = RandomForestKernel.from_forest(ensemble, "leaf").double()
        rows = kernel.unit.new_tensor(X)
        dense = kernel(rows).to_dense().detach().numpy()
        np.testing.assert_allclose(proximities(ensemble, X).matrix().toarray(), dense, atol=1e-6)


def test_outlier_scores_are_as_defined_and_find_rows_of_another_class():
    moved = np.append(KINDS[:-1], 0)  # the last row looks like the others of class 2
    forest = RandomForestClassifier(100, random_state=0).fit(WINE, KINDS)
    found = proximities(forest, WINE, weighting="oob")
    scores = found.outlier_scores(moved)
    dense = found.matrix().toarray()
    np.fill_diagonal(dense, 0.0)
    own = moved == 0
    raw = len(WINE) / np.square(dense[own][:, own]).sum(1).clip(1e-12)
    middle = np.median(raw)
    np.testing.assert_allclose(scores[own], (raw - middle) / np.abs(raw - middle).mean())
    assert scores.argmax() == len(WINE) - 1
    assert scores.max() > 10


def test_prototypes_are_typical():
    found = proximities(WINES, WINE).prototypes(WINE, KINDS, 20)
    assert list(found) == [0, 1, 2]
    medians = np.array([np.median(WINE[kind == KINDS], 0) for kind in range(3)])
    typical = np.array(list(found.values()))
    assert (np.abs(typical - medians) < WINE.std(0)).all()
    assert WINES.predict(typical).tolist() == [0, 1, 2]


@pytest.mark.parametrize("weighting", ["leaf", "oob", "gap"])
def test_missing_cells_are_means_of_near_rows(weighting):
    is_missing = np.random.RandomState(0).rand(*WINE.shape) < 0.1
    holes = np.where(is_missing, np.nan, WINE)
    forest = RandomForestClassifier(100, random_state=0).fit(holes, KINDS)
    found = proximities(forest, holes, weighting=weighting)
    filled = found.imputed(holes)
    np.testing.assert_array_equal(filled[~is_missing], WINE[~is_missing])
    row, column = np.argwhere(is_missing)[0]
    weights = found.matrix().toarray()[row] * ~is_missing[:, column]
    assert filled[row, column] == pytest.approx(np.average(WINE[:, column], weights=weights))
    errors = ((filled - WINE) / WINE.std(0))[is_missing]
    assert np.mean(errors**2) < 0.75  # 1 for the columns' means


def test_no_rows_have_no_neighbors():
    numbers, values = proximities(FOREST, X, NEW[:0]).nearest(3)
    assert numbers.shape == values.shape == (0, 3)


def test_rows_without_a_neighbor():
    few = Forest(1, random_state=0, min_samples_leaf=1, bootstrap=False).fit(X, Y)
    found = proximities(few, X)
    rows, values = found.nearest(2)
    assert rows[0].tolist() == [1, 2]
    assert rows[1].tolist() == [0, 2]  # not itself
    assert not values.any()
    assert np.isfinite(found.outlier_scores()).all()


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: proximities(FOREST, X, weighting="swim"), ValueError, "weighting to be one of .*'swim'"),
        (lambda: proximities(ExtraTreesRegressor(5).fit(X, Y), X, weighting="gap"), TypeError, "bootstrap=True"),
        (
            lambda: proximities(TWO_TREES, X, weighting="gap"),
            ValueError,
            "seen row .* none among 2: grow more",
        ),
        (lambda: proximities(FOREST, X[:50], weighting="oob"), ValueError, "that the forest was fitted to, got 50"),
        (lambda: proximities(FOREST, X[:, :3]), ValueError, "3"),
        (lambda: proximities(FOREST, X).nearest(200), ValueError, "k below the number of training rows, 200, got 200"),
        (lambda: proximities(FOREST, X, NEW).imputed(NEW), ValueError, "got those of new rows"),
        (lambda: proximities(FOREST, X).outlier_scores(Y[:5]), ValueError, "a class for each of 200 training rows"),
    ],
)
def test_bad_arguments(call, error, told):
    with pytest.raises(error, match=told):
        call()
