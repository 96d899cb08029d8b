"""Labels of forests against scikit-learn's own `apply`, cuts against a walk up the tree."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from joblib import parallel_config
from sklearn.ensemble import (
    ExtraTreesRegressor,
    RandomForestRegressor,
)
from sklearn.tree import ExtraTreeRegressor

from gpytorch_partition.partitions.forest import ForestPartition
from gpytorch_partition.partitions.grown_forest import grow_forest


def data(n=300, d=4, seed=0):
    random = np.random.RandomState(seed)
    x = random.randn(n, d)
    return x, np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.2 * random.randn(n)


def fitted(kind, x, y, **options):
    target = y if "Regressor" in kind.__name__ else (y > 0).astype(int) + (y > 1)
    return kind(n_estimators=9, random_state=3, **options).fit(x, target)


def applied(forest, x):
    """scikit-learn's own node ids of the leaves, `N x m`."""
    return np.stack([tree.apply(x) for tree in forest.estimators_], 1)


def node_ids(partition, x):
    """The same, from labels."""
    codes = partition.labels(x) + partition.layout.tree_leaves[:-1]
    return partition.leaf_ids[codes].numpy()


@pytest.fixture(scope="module")
def partition():
    x, y = data()
    return ForestPartition(fitted(ExtraTreesRegressor, x, y, min_samples_leaf=3))


@pytest.fixture(scope="module")
def points():
    return torch.from_numpy(data(n=200, seed=1)[0])


@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (1, 1e6), (1e6, -3), (1e-6, 0)])
def test_labels_agree_on_and_next_to_thresholds(scale, shift):
    x, y = data(n=400)
    x = shift + scale * x
    forest = fitted(ExtraTreesRegressor, x, y)
    partition = ForestPartition(forest)
    trees = [tree.tree_ for tree in forest.estimators_]
    thresholds = np.concatenate([tree.threshold[tree.feature == 0] for tree in trees])
    singles = thresholds.astype(np.float32)
    near = [
        thresholds,
        singles,
        np.nextafter(singles, np.float32(-np.inf)),
        np.nextafter(singles, np.float32(np.inf)),
    ]
    near += [np.nextafter(thresholds, -np.inf), np.nextafter(thresholds, np.inf)]
    column = np.concatenate(near)
    points = np.resize(x, (column.size, x.shape[1]))
    points[:, 0] = column
    assert np.array_equal(node_ids(partition, torch.from_numpy(points)), applied(forest, points))
    points32 = points.astype(np.float32)
    assert np.array_equal(node_ids(partition, torch.from_numpy(points32)), applied(forest, points32))


def test_values_beyond_float32_go_to_the_outermost_leaf():
    x = np.linspace(0, 1, 64)[:, None]
    partition = ForestPartition(fitted(RandomForestRegressor, x, x[:, 0]))
    labels = partition.labels(torch.tensor([[-1e300], [1e300]], dtype=torch.float64))
    assert torch.equal(labels, torch.stack([torch.zeros(9, dtype=torch.int64), partition.cluster_counts - 1]))


def test_loading_replaces_the_layout(points):
    one, other = (ForestPartition(fitted(RandomForestRegressor, *data(seed=seed))) for seed in (0, 1))
    assert not torch.equal(one.layout.node_high, other.layout.node_high)
    one.load_state_dict(other.state_dict())
    assert torch.equal(one.layout.node_low, other.layout.node_low)
    assert torch.equal(one.labels(points), other.labels(points))
    assert deepcopy(one).layout is one.layout
    assert "layout" not in deepcopy(one).to("meta").__dict__


def walked_up(forest, x, depths):
    """For each row and tree, scikit-learn's number of the deepest node on its path above or at the cut."""
    columns = []
    for tree, depth in zip(forest.estimators_, depths):
        path = tree.decision_path(x).toarray().astype(bool)
        node_depth = tree.tree_.compute_node_depths() - 1
        columns.append(np.where(path & (node_depth <= depth), node_depth, -1).argmax(1))
    return np.stack(columns, 1)


@pytest.mark.parametrize("options", [{}, {"max_leaf_nodes": 25}, {"min_samples_split": 1000}])
@pytest.mark.parametrize("depth", [0, 1, 3, 99])
def test_cut_is_the_ancestor_at_the_depth(options, depth, points):
    forest = fitted(ExtraTreesRegressor, *data(), **options)
    depths = np.maximum(0, depth + np.arange(9) % 3 - 1)
    cut = ForestPartition(forest).cut(torch.from_numpy(depths))
    labels, nodes = cut.labels(points).numpy(), walked_up(forest, points.numpy(), depths)
    for mine, theirs in zip(labels.T, nodes.T):
        assert np.array_equal(mine[:, None] == mine, theirs[:, None] == theirs)
    assert labels.min() >= 0
    reached = cut.labels(torch.from_numpy(data()[0])).T  # every cluster holds rows that the trees have seen
    assert [column.unique().numel() for column in reached] == cut.cluster_counts.tolist()
    assert torch.equal(reached.amax(1) + 1, cut.cluster_counts)


def test_sampled_cuts_are_uniform_over_each_trees_heights():
    x, y = data()
    trees = 2000
    grown = RandomForestRegressor(1, random_state=0, max_depth=4).fit(x, y)
    shallow = RandomForestRegressor(1, random_state=0, max_depth=1).fit(x, y)
    grown.estimators_ = (grown.estimators_ + shallow.estimators_) * trees
    partition = ForestPartition(grown)
    counts = partition.sample_cut(7).cluster_counts.view(trees, 2)
    for column, height in zip(counts.T, (4, 1)):
        _, hits = column.unique(return_counts=True)
        expected = trees / (height + 1)
        assert hits.numel() == height + 1
        chi2 = ((hits - expected) ** 2 / expected).sum()
        assert chi2 < 20  # 99.95 % of a chi-square with 4 degrees of freedom


@pytest.mark.parametrize(
    ("depths", "message"),
    [
        (None, "one depth per tree"),
        ([1] * 9, "one depth per tree"),
        (
            torch.ones(8, dtype=torch.int64),
            r"one depth per tree \(int64 of shape \(9,\)\), got torch.int64 of shape \(8,\)",
        ),
        (torch.ones(9), "torch.float32"),
        (torch.tensor([1] * 8 + [-2]), "0 or more, got -2"),
    ],
)
def test_bad_depths_are_refused(partition, depths, message):
    with pytest.raises(ValueError, match=message):
        partition.cut(depths)


class TestGrowForest:
    def test_trees_are_extremely_randomized_and_see_few_rows(self):
        x, y = (torch.from_numpy(array) for array in data(n=1000))
        forest = grow_forest(x, y, num_trees=20, random_state=0)
        assert len(forest.estimators_) == 20
        for tree, rows in zip(forest.estimators_, forest.estimators_samples_):
            assert isinstance(tree, ExtraTreeRegressor)
            assert np.unique(rows).size == rows.size == 200
            assert tree.tree_.n_node_samples[0] == 200
            assert tree.tree_.n_node_samples.min() >= 3

    @pytest.mark.parametrize(
        ("max_samples", "num_rows", "expected"),
        [(0.5, 1000, 500), (0.1, 1000, 128), (0.1, 100, 100), (1.0, 300, 300), (30, 1000, 30), (1, 50, 1)]
        + [(None, 1000, 200), (None, 120, 120), (None, 101_000, 20_000)],
    )
    def test_rows_of_each_tree(self, max_samples, num_rows, expected):
        x, y = (torch.from_numpy(array) for array in data(n=num_rows))
        forest = grow_forest(x, y, num_trees=2, max_samples=max_samples, random_state=0)
        assert [rows.size for rows in forest.estimators_samples_] == [expected] * 2

    def test_follows_the_seed_whatever_the_number_of_jobs(self):
        x, y = (torch.from_numpy(array) for array in data())

        def thresholds(seed, jobs=None):
            with parallel_config(backend="threading"):
                forest = grow_forest(x, y, num_trees=4, random_state=seed, n_jobs=jobs)
            return ForestPartition(forest).threshold

        assert torch.equal(thresholds(0), thresholds(0, jobs=2))
        assert not torch.equal(thresholds(0), thresholds(1))

    def test_several_targets_and_gradients(self):
        x, y = (torch.from_numpy(array) for array in data())
        forest = grow_forest(x.float().requires_grad_(), torch.stack([y, -y], 1), num_trees=2, random_state=0)
        assert forest.predict(x.numpy()).shape == (300, 2)
        one, column = (grow_forest(x, target, num_trees=2, random_state=0) for target in (y, y.unsqueeze(1)))
        assert np.array_equal(one.predict(x.numpy()), column.predict(x.numpy()))

    @pytest.mark.parametrize("max_samples", [0, 0.0, 1.5, -1, 301, "all"])
    def test_bad_numbers_of_rows_are_refused(self, max_samples):
        x, y = (torch.from_numpy(array) for array in data())
        with pytest.raises(ValueError, match="max_samples"):
            grow_forest(x, y, max_samples=max_samples)

    def test_bad_data_are_refused(self):
        x, y = (torch.from_numpy(array) for array in data())
        with pytest.raises(ValueError, match="at least one row"):
            grow_forest(x[:0], y[:0])
        with pytest.raises(ValueError, match="finite rows"):
            grow_forest(1 / (x - x[0]), y)
        for targets in (y[:-1], y.numpy(), y[:, None, None], y[:, None][:, :0]):
            with pytest.raises(ValueError, match="expected targets"):
                grow_forest(x, targets)
        with pytest.raises(ValueError, match="finite targets"):
            grow_forest(x, y.log())
