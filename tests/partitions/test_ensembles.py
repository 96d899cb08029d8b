"""Labels of every ensemble of scikit-learn against the leaves that its own trees give, bit by bit."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    RandomTreesEmbedding,
    VotingRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor

from gpytorch_partition.partitions import ForestPartition

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(400, 4)
X[:, 2] = RANDOM.randint(0, 7, 400) / 2  # ties: points on thresholds and midpoints between them
Y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * RANDOM.randn(400)
CLASSES = np.digitize(Y, [-0.5, 0.7])
POINTS = np.concatenate([RANDOM.randn(150, 4), X[:100], np.round(4 * RANDOM.randn(150, 4)) / 4])
WITH_MISSING = np.where(RANDOM.rand(400, 4) < 0.2, np.nan, X)
POINTS_WITH_MISSING = np.where(RANDOM.rand(400, 4) < 0.3, np.nan, POINTS)

ENSEMBLES = {
    "forest": RandomForestRegressor(7, random_state=0),
    "best leaves first": RandomForestRegressor(7, max_leaf_nodes=17, random_state=0),
    "pruned": RandomForestRegressor(7, ccp_alpha=0.01, random_state=0),
    "single leaves": RandomForestRegressor(7, min_samples_split=1000, random_state=0),
    "forest of classes": RandomForestClassifier(7, random_state=0),
    "extra-trees": ExtraTreesRegressor(7, random_state=0),
    "extra-trees of classes": ExtraTreesClassifier(7, random_state=0),
    "boosting": GradientBoostingRegressor(n_estimators=9, random_state=0),
    "boosting of classes": GradientBoostingClassifier(n_estimators=4, random_state=0),
    "AdaBoost": AdaBoostRegressor(DecisionTreeRegressor(max_depth=5), n_estimators=6, random_state=0),
    "AdaBoost of classes": AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=6, random_state=0),
    "bagging": BaggingRegressor(n_estimators=6, random_state=0),
    "bagging of columns": BaggingRegressor(n_estimators=9, max_features=0.5, random_state=0),
    "bagging of repeated columns": BaggingClassifier(n_estimators=9, bootstrap_features=True, random_state=0),
    "isolation forest": IsolationForest(n_estimators=9, max_features=0.7, random_state=0),
    "embedding": RandomTreesEmbedding(9, random_state=0),
    "tree": DecisionTreeRegressor(random_state=0),
    "tree of classes": DecisionTreeClassifier(max_depth=4, random_state=0),
    "random tree": ExtraTreeRegressor(random_state=0),
    "random tree of classes": ExtraTreeClassifier(random_state=0),
}
MISSING = ("forest", "forest of classes", "extra-trees", "bagging", "bagging of columns", "isolation forest", "tree")


def _fit(ensemble, x=X):
    by_class = isinstance(ensemble, (RandomForestClassifier,)) or "Classifier" in type(ensemble).__name__
    return deepcopy(ensemble).fit(x, CLASSES if by_class else Y)


def _own_leaves(ensemble, x):
    """The node numbers of the leaves (`N x m`) that the member trees say."""
    members = _members(ensemble)
    columns = getattr(ensemble, "estimators_features_", [slice(None)] * len(members))
    return np.stack([tree.apply(x[:, seen]) for tree, seen in zip(members, columns)], 1)


def _members(ensemble):
    return np.ravel(ensemble.estimators_).tolist() if hasattr(ensemble, "estimators_") else [ensemble]


def _leaves(partition, x):
    codes = partition.labels(torch.from_numpy(x)) + partition.layout.tree_leaves[:-1]
    return partition.leaf_ids[codes].numpy()


@pytest.mark.parametrize("name", ENSEMBLES)
def test_labels_are_the_ensembles_own_leaves(name):
    ensemble = _fit(ENSEMBLES[name])
    partition = ForestPartition(ensemble)
    assert np.array_equal(_leaves(partition, POINTS), _own_leaves(ensemble, POINTS))
    singles = POINTS.astype(np.float32)
    assert np.array_equal(_leaves(partition, singles), _own_leaves(ensemble, singles))
    assert partition.num_features == 4
    assert partition.cluster_counts.tolist() == [tree.get_n_leaves() for tree in _members(ensemble)]
    assert partition.layout.heights.tolist() == [tree.get_depth() for tree in _members(ensemble)]


@pytest.mark.parametrize("name", MISSING)
def test_missing_values_go_where_the_ensemble_sends_them(name):
    for x in (X, WITH_MISSING):
        ensemble = _fit(ENSEMBLES[name], x)
        partition = ForestPartition(ensemble)
        assert partition.handles_missing
        own = _own_leaves(ensemble, POINTS_WITH_MISSING)
        assert np.array_equal(_leaves(partition, POINTS_WITH_MISSING), own)
        assert np.array_equal(_leaves(partition, POINTS), _own_leaves(ensemble, POINTS))


def _histogram_leaves(boosting, x):
    """What the library itself returns for trees whose leaves have their node numbers for values."""
    raw = boosting._preprocess_X(x, reset=False)
    bitsets = boosting._bin_mapper.make_known_categories_bitsets()
    leaves = []
    for predictor in (tree for iteration in boosting._predictors for tree in iteration):
        numbered = deepcopy(predictor)
        numbered.nodes["value"] = np.arange(len(numbered.nodes))
        leaves.append(numbered.predict(np.ascontiguousarray(raw), *bitsets, 1))
    return np.stack(leaves, 1).astype(int)


CATEGORIES = np.array([-3.0, 0.5, 2.0, 7.0, 300.0, 1e6])


def _with_categories(x, seed, unknown=False):
    random, x = np.random.RandomState(seed), x.copy()
    x[:, 1] = random.choice(CATEGORIES, len(x))
    x[:, 3] = random.randint(0, 40, len(x))
    if unknown:
        x[::5, 1], x[1::5, 3], x[2::5, 1], x[3::5, 3] = 1.25, 99, np.nan, np.nan
    return x


@pytest.mark.parametrize("kind", [HistGradientBoostingRegressor, HistGradientBoostingClassifier])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("categories", [None, [1, 3], [False, True, False, True]])
def test_histogram_boosting(kind, missing, categories):
    x = _with_categories(WITH_MISSING if missing else X, 1)
    y = CLASSES if kind is HistGradientBoostingClassifier else Y + (x[:, 1] > 1) * 2 - np.sin(x[:, 3])
    boosting = kind(max_iter=8, categorical_features=categories, min_samples_leaf=5, random_state=0).fit(x, y)
    partition = ForestPartition(boosting)
    for points in (_with_categories(POINTS, 2), _with_categories(POINTS_WITH_MISSING, 3, unknown=True), x):
        assert np.array_equal(_leaves(partition, points), _histogram_leaves(boosting, points))
    assert bool(partition.category_sets.numel()) == (categories is not None)
    values = [tree.nodes["value"] for iteration in boosting._predictors for tree in iteration]
    if kind is HistGradientBoostingRegressor:  # by agreement with predict
        leaves = _leaves(partition, x)
        total = boosting._baseline_prediction + sum(v[leaves[:, t]] for t, v in enumerate(values))
        np.testing.assert_allclose(np.ravel(total), boosting.predict(x), rtol=1e-12)


def test_bagging_of_single_columns():
    for x, options in ((X[:, :1], {}), (X, {"max_features": 1})):
        ensemble = BaggingRegressor(n_estimators=5, random_state=0, **options).fit(x, Y)
        points = POINTS[:, : x.shape[1]]
        assert np.array_equal(_leaves(ForestPartition(ensemble), points), _own_leaves(ensemble, points))


def test_points_stay_as_they_are():
    x = _with_categories(X, 1)
    partition = ForestPartition(HistGradientBoostingRegressor(max_iter=3, categorical_features=[1]).fit(x, Y))
    points = torch.from_numpy(x)
    partition.labels(points)
    assert np.array_equal(points.numpy(), x)


def test_thresholds_of_histogram_boosting_keep_their_precision():
    """Points that float32 cannot tell apart."""
    x = 1 + 1e-12 * np.arange(400.0)[:, None]
    boosting = HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=2).fit(x, Y)
    assert np.array_equal(_leaves(ForestPartition(boosting), x), _histogram_leaves(boosting, x))


@pytest.mark.parametrize("name", [name for name in ENSEMBLES if name != "isolation forest"])
def test_impurities_are_the_ensembles_own(name):
    ensemble = _fit(ENSEMBLES[name])
    expected = np.concatenate([tree.tree_.impurity / tree.tree_.impurity[0] for tree in _members(ensemble)])
    partition = ForestPartition(ensemble)
    np.testing.assert_allclose(partition.impurities, expected, rtol=1e-6, atol=1e-7)
    twin = ForestPartition()
    twin.load_state_dict(partition.state_dict())
    assert torch.equal(twin.half().impurities, partition.impurities)


def test_impurities_of_equal_targets_are_zero_and_of_boosting_by_histograms_none():
    assert ForestPartition(DecisionTreeRegressor().fit(X, np.ones(400))).impurities.tolist() == [0.0]
    assert ForestPartition(_fit(HistGradientBoostingRegressor(max_iter=2))).impurities is None


def test_what_is_no_ensemble_of_trees_is_refused():
    strings = np.array([["a"], ["b"]] * 50, dtype=object)
    boosting = HistGradientBoostingRegressor(max_iter=2, categorical_features=[0]).fit(strings, Y[:100])
    for ensemble, error, message in (
        ("forest", TypeError, "got str"),
        (Ridge(), TypeError, "expected a fitted tree ensemble of scikit-learn .*, got Ridge"),
        (VotingRegressor([("a", Ridge())]), TypeError, "got VotingRegressor"),
        (AdaBoostRegressor(Ridge()).fit(X, Y), TypeError, "decision trees, got one of Ridge"),
        (HistGradientBoostingRegressor(), ValueError, "call fit"),
        (DecisionTreeRegressor(), ValueError, "call fit"),
        (GradientBoostingRegressor(), ValueError, "call fit"),
        (BaggingRegressor(), ValueError, "call fit"),
        (boosting, ValueError, "expected categories that are numbers, got 'a' in column 0"),
    ):
        with pytest.raises(error, match=message):
            ForestPartition(ensemble)
