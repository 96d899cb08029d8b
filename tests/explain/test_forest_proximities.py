"""Proximities against their definitions by dense algebra, and against the forest's own predictions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.datasets import load_wine, make_friedman1
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.ensemble import RandomForestRegressor as Forest

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.explain import geometric_importance, proximities
from gpytorch_partition.partitions import ForestPartition
from gpytorch_partition.partitions.ensembles.tree_values import tree_values

X, Y = make_friedman1(200, 6, noise=1.0, random_state=0)
NEW = make_friedman1(40, 6, random_state=1)[0]
FOREST = Forest(50, oob_score=True, random_state=0).fit(X, Y)
FRAME = pd.DataFrame(X, columns=list("abcdef"))
OF_FRAME = Forest(5, random_state=0).fit(FRAME, Y)
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
    raw = len(WINE) / np.square(dense[own][:, own]).sum(1)
    middle = np.median(raw)
    np.testing.assert_allclose(scores[own], (raw - middle) / (1.4826 * np.median(np.abs(raw - middle))), rtol=1e-4)
    assert scores.argmax() == len(WINE) - 1
    assert scores.max() > 10


def test_isolated_rows_leave_the_scores_of_others():
    """A row without near rows of its class has infinity, and one that is moved changes others a little."""
    found = proximities(WINES, WINE)
    before, isolated = found.outlier_scores(KINDS), int(KINDS.argmax())
    other = np.where(np.arange(len(WINE)) == isolated, 9, KINDS)
    after = found.outlier_scores(other)
    assert np.isposinf(after[isolated])
    kept = np.arange(len(WINE)) != isolated
    np.testing.assert_allclose(after[kept], before[kept], rtol=0, atol=0.15)
    assert before[kept].max() > 10


def test_prototypes_are_typical():
    found = proximities(WINES, WINE).prototypes(WINE, KINDS, 20)
    assert list(found) == [0, 1, 2]
    medians = np.array([np.median(WINE[kind == KINDS], 0) for kind in range(3)])
    typical = np.array([each.median for each in found.values()])
    assert all((each.lower <= each.median).all() and (each.median <= each.upper).all() for each in found.values())
    assert [KINDS[each.row] for each in found.values()] == [0, 1, 2]
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


def test_prototypes_do_not_depend_on_the_order_of_rows():
    """Rows of proximity 0 are no neighbors, of which the first rows of a sorted file would be taken."""
    forest = ExtraTreesClassifier(5, random_state=0).fit(WINE[:, :3], KINDS)
    order = np.random.RandomState(0).permutation(len(WINE))
    found = proximities(forest, WINE[:, :3]).prototypes(WINE, KINDS, 100)
    again = proximities(forest, WINE[order, :3]).prototypes(WINE[order], KINDS[order], 100)
    for kind in range(3):
        assert order[again[kind].row] == found[kind].row
        np.testing.assert_array_equal(found[kind].median, again[kind].median)


def test_categories_are_filled_by_the_commonest_one():
    codes = np.where(WINE[:, 0] > 13, 7.0, 2.0)
    is_missing = np.arange(len(WINE)) % 10 == 0
    holes = pd.DataFrame(WINE).assign(code=np.where(is_missing, np.nan, codes)).astype({"code": "Int64"})
    forest = RandomForestClassifier(100, random_state=0).fit(holes.to_numpy(float, na_value=np.nan), KINDS)
    filled = proximities(forest, holes).imputed(holes, categories=[13])
    assert filled.columns.tolist() == holes.columns.tolist()
    assert (filled["code"][is_missing] == codes[is_missing]).mean() > 0.7  # .53 for the commonest
    assert set(filled["code"]) == {2.0, 7.0}


def boostings():
    lightgbm, xgboost, catboost = (pytest.importorskip(name) for name in ("lightgbm", "xgboost", "catboost"))
    few = {"n_estimators": 12, "random_state": 0, "max_depth": 3}
    return [
        HistGradientBoostingRegressor(max_iter=12, random_state=0),
        lightgbm.LGBMRegressor(**few, verbose=-1),
        lightgbm.LGBMClassifier(**few, verbose=-1),
        xgboost.XGBRegressor(**few),
        xgboost.XGBClassifier(**few),
        catboost.CatBoostRegressor(**few, verbose=False, allow_writing_files=False),
        catboost.CatBoostClassifier(**few, verbose=False, allow_writing_files=False),
    ]


def test_boosted_trees_weigh_as_much_as_they_vary():
    """By the variance of each tree's predictions; those of other libraries are constant in leaves and sum to theirs."""
    boosting = GradientBoostingClassifier(n_estimators=30, random_state=0).fit(WINE, KINDS)
    trees = boosting.estimators_.ravel()
    weights = np.array([tree.predict(WINE).var() for tree in trees])
    leaves = np.stack([tree.apply(WINE) for tree in trees], 1)
    dense = (leaves[:, None] == leaves[None]) @ (weights / weights.sum())
    np.testing.assert_allclose(proximities(boosting, WINE, weighting="boosting").matrix().toarray(), dense)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_boosted_trees_of_a_frame_see_its_levels_as_codes(library):
    pandas, module = pytest.importorskip("pandas"), pytest.importorskip(library)
    years = pandas.Categorical(2000 + np.random.RandomState(0).randint(0, 12, len(X)))
    frame = pandas.DataFrame({"year": years, "x": X[:, 0]})
    kind, options = (
        ("LGBMRegressor", {"verbose": -1}) if library == "lightgbm" else ("XGBRegressor", {"enable_categorical": True})
    )
    boosting = getattr(module, kind)(n_estimators=9, **options).fit(frame, Y + years.codes % 3)
    partition = ForestPartition(boosting)
    labels, starts = partition.labels(torch.tensor(frame.to_numpy(np.float64))).numpy(), partition.cluster_counts
    nodes = partition.layout.leaf_nodes.numpy()[labels + np.cumsum([0, *starts.tolist()])[:-1]]
    rest = boosting.predict(frame) - tree_values(boosting, frame.to_numpy(np.float64), nodes).sum((1, 2))
    np.testing.assert_allclose(rest, rest.mean(), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("number", range(7))
def test_values_of_trees_are_constant_in_leaves_and_sum_to_predictions(number):
    boosting = boostings()[number].fit(WINE, KINDS)
    partition = ForestPartition(boosting)
    leaves = partition.layout.leaf_nodes.numpy()
    labels = partition.labels(torch.from_numpy(WINE)).numpy()
    starts = np.cumsum([0, *partition.cluster_counts.tolist()])[:-1]
    values = tree_values(boosting, WINE, leaves[labels + starts])
    num_outputs = 3 if "Classifier" in type(boosting).__name__ else 1
    assert values.shape[:2] == labels.shape
    for tree in range(labels.shape[1]):
        for leaf in np.unique(labels[:, tree]):
            assert np.ptp(values[labels[:, tree] == leaf, tree], axis=0).max() < 1e-6
    sums = values.sum(1) if values.shape[2] == num_outputs else values.reshape(len(WINE), -1, num_outputs).sum(1)
    known = {"raw_score": True} if "LGBM" in type(boosting).__name__ else {}
    known = {"output_margin": True} if "XGB" in type(boosting).__name__ else known
    known = {"prediction_type": "RawFormulaVal"} if "CatBoost" in type(boosting).__name__ else known
    rest = boosting.predict(WINE, **known).reshape(len(WINE), -1) - sums
    np.testing.assert_allclose(rest, np.broadcast_to(rest[:1], rest.shape), atol=1e-5)  # a constant


def test_where_most_rows_are_copies_others_are_no_outliers():
    rows = np.append(np.zeros(120), 1 + np.random.RandomState(0).rand(80))[:, None]
    forest = Forest(50, random_state=0, min_samples_leaf=3).fit(rows, rows[:, 0])
    assert proximities(forest, rows).outlier_scores().max() < 10


def test_names_of_columns_are_compared_as_the_libraries_store_them():
    lightgbm = pytest.importorskip("lightgbm")
    spaced = FRAME.rename(columns={"a": "a b"})
    boosting = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(spaced, Y)
    np.testing.assert_array_equal(boosting.feature_names_in_[:1], ["a_b"])
    assert proximities(boosting, spaced).shape == (200, 200)
    digits = FRAME.set_axis(list("012345"), axis=1)
    of_digits = Forest(5, random_state=0).fit(digits, Y)
    with pytest.raises(ValueError, match="columns of the forest in their order"):
        proximities(of_digits, digits, digits[list("543210")])


@pytest.mark.parametrize("options", [{"num_parallel_tree": 2}, {"multi_strategy": "multi_output_tree"}])
def test_trees_of_which_a_round_has_several_are_not_weighted(options):
    xgboost = pytest.importorskip("xgboost")
    boosting = xgboost.XGBRegressor(n_estimators=10, **options).fit(X, np.c_[Y, Y**2])
    with pytest.raises(TypeError, match="one tree for each round"):
        proximities(boosting, X, weighting="boosting")


def test_geometric_importance_is_how_far_permuted_rows_move():
    found = geometric_importance(FOREST, X, n_repeats=2, random_state=3)
    random, moves = np.random.RandomState(3), np.zeros((2, 6))
    for repeat, column in np.ndindex(2, 6):
        moved = X.copy()
        moved[:, column] = random.permutation(X[:, column])
        moves[repeat, column] = 1 - proximities(FOREST, X, moved).matrix().diagonal().mean()
    np.testing.assert_allclose(found, moves.mean(0), atol=1e-12)
    assert found[:5].min() > found[5]  # the last column is noise


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_geometric_importance_of_a_stump_is_the_chance_of_the_other_side(share):
    sides = np.random.RandomState(0).rand(2_000, 3) < share
    stump = Forest(3, max_depth=1, max_features=None, random_state=0).fit(sides, sides[:, 1])
    found = geometric_importance(stump, sides, n_repeats=20, random_state=0)
    own = sides[:, 1].mean()
    np.testing.assert_allclose(found, [0, 2 * own * (1 - own), 0], atol=4 * 0.5 / (20 * 2_000) ** 0.5)


def test_geometric_importance_weighs_trees_and_takes_missing_cells():
    boosted = AdaBoostRegressor(n_estimators=5, random_state=0).fit(X, Y)
    moved = X.copy()
    moved[:, 0] = np.random.RandomState(1).permutation(X[:, 0])
    found = geometric_importance(boosted, X[:, :6], n_repeats=1, random_state=1)[0]
    assert found == pytest.approx(1 - proximities(boosted, X, moved).matrix().diagonal().mean())
    holes = np.where(np.random.RandomState(0).rand(*X.shape) < 0.2, np.nan, X)
    assert (geometric_importance(Forest(5, random_state=0).fit(holes, Y), holes, random_state=0) > 0).all()


def test_no_rows_have_no_neighbors():
    for weighting in ("leaf", "oob"):
        found = proximities(FOREST, X, NEW[:0], weighting=weighting)
        numbers, values = found.nearest(3)
        assert numbers.shape == values.shape == (0, 3)
        assert found.matrix().shape == (0, 200)
        assert (found @ Y).shape == (0,)


def test_rows_that_share_no_leaf_have_no_kerf_weights():
    found = proximities(FOREST, X[:3], NEW, weighting="kerf")
    np.testing.assert_allclose(found @ np.ones(3), found.matrix().toarray().sum(1))


def test_rows_without_a_neighbor():
    few = Forest(1, random_state=0, min_samples_leaf=1, bootstrap=False).fit(X, Y)
    found = proximities(few, X)
    rows, values = found.nearest(2)
    assert rows[0].tolist() == [1, 2]
    assert rows[1].tolist() == [0, 2]  # not itself
    assert not values.any()
    assert np.isposinf(found.outlier_scores()).all()
    with pytest.raises(ValueError, match="rows near those of class 0"):
        found.prototypes(X, np.zeros(200, int))


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
        (lambda: proximities(FOREST, X[::-1], weighting="gap"), ValueError, "was fitted to, in their order"),
        (lambda: proximities(FOREST, np.r_[X, X], weighting="oob"), ValueError, "was fitted to, in their order"),
        (lambda: proximities(FOREST, X, weighting="boosting"), TypeError, "expected gradient boosting"),
        (lambda: proximities(OF_FRAME, FRAME[["f", "e", "d", "c", "b", "a"]]), ValueError, "columns of the forest"),
        (lambda: proximities(FOREST, X).imputed(X[:50]), ValueError, "the 200 training rows, got 50"),
        (lambda: proximities(FOREST, X).imputed(X * [np.nan, 1, 1, 1, 1, 1]), ValueError, "none in column 0"),
        (lambda: proximities(FOREST, X).prototypes(X, Y[:50]), ValueError, "a class for each of 200 training rows"),
        (lambda: proximities(FOREST, X).prototypes(X, [None] * 200), ValueError, "got missing ones"),
        (lambda: proximities(FOREST, X).prototypes(X, [pd.NA] * 200), ValueError, "got missing ones"),
        (lambda: proximities(FOREST, X).imputed(X, ["a"]), ValueError, "numbers of columns from 0, got .'a'"),
        (lambda: proximities(FOREST, X[:0]), ValueError, "0 sample"),
        (lambda: proximities(FOREST, csr_matrix(X)), TypeError, "[Ss]parse"),
        (lambda: proximities(FOREST, np.ma.masked_less(X, 0.1)), ValueError, "without a mask"),
        (lambda: proximities(FOREST, X).outlier_scores(Y[:5]), ValueError, "a class for each of 200 training rows"),
        (lambda: geometric_importance(FOREST, X, n_repeats=0), ValueError, "n_repeats=0"),
        (lambda: geometric_importance(OF_FRAME, FRAME[["f", *"abcde"]]), ValueError, "columns of the forest"),
    ],
)
def test_bad_arguments(call, error, told):
    with pytest.raises(error, match=told):
        call()
