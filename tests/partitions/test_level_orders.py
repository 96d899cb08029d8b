"""Trees that split categories into sets of levels: against a walk through the sets written out, and by errors."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.partitions import ForestPartition, grow_forest
from gpytorch_partition.partitions.grown_forest import LevelOrderTree, _scores

RANDOM = np.random.RandomState(0)
LEVELS = 40
X = RANDOM.randn(600, 4)
X[:, 1], X[:, 3] = RANDOM.randint(LEVELS, size=600), RANDOM.randint(3, size=600)
X[:, 1][RANDOM.rand(600) < 0.1] = np.nan
EFFECTS = RANDOM.randn(LEVELS + 1)
Y = EFFECTS[np.where(np.isnan(X[:, 1]), LEVELS, X[:, 1]).astype(int)] + X[:, 0] * X[:, 3] + 0.1 * RANDOM.randn(600)
NEW = np.concatenate([X[:100], RANDOM.randn(200, 4)])
NEW[100:, 1] = RANDOM.choice([-1, 0, 1.5, 8 - 1e-9, LEVELS - 1, LEVELS, 10_000, np.nan], 200)
NEW[100:, 3] = RANDOM.choice([0, 1, 2, 3, np.nan], 200)


def grown(x=X, y=Y, categories=(1, 3), num_trees=12, **options):
    points, targets = torch.from_numpy(x), torch.from_numpy(y)
    options = {"random_state": 0, **options}
    return grow_forest(points, targets, num_trees=num_trees, categories=categories, **options)


def leaf_by_sets(member, point):
    """The leaf of a point, by the set of levels that each node sends left."""
    tree, node = member.tree_, 0
    while tree.children_left[node] >= 0:
        column = tree.feature[node]
        value, threshold = np.float32(point[column]), tree.threshold[node]
        goes_left = bool(value <= threshold)
        if column in member.level_places_:
            left = {level for level, place in enumerate(member.level_places_[column]) if place <= threshold}
            levels = set(range(len(member.level_places_[column])))
            level = None if np.isnan(value) else int(np.floor(value))
            goes_left = level in left
            value = value if level in levels else np.nan
        if np.isnan(value):
            goes_left = bool(tree.missing_go_to_left[node])
        node = (tree.children_left if goes_left else tree.children_right)[node]
    return node


@pytest.mark.parametrize("options", [{}, {"max_features": 1}, {"y": np.stack([Y, Y**2, X[:, 0]], 1)}])
def test_leaves_are_those_of_the_sets(options):
    forest = grown(**options)
    partition = ForestPartition(forest)
    nodes = [[leaf_by_sets(member, point) for member in forest.estimators_] for point in NEW]
    leaves = partition.layout.leaf_nodes - partition.layout.of_leaf(partition.tree_nodes[:-1])
    starts = partition.layout.tree_leaves[:-1]
    assert torch.equal(leaves[partition.labels(torch.from_numpy(NEW)) + starts], torch.tensor(nodes))
    columns = partition.feature[partition.child_nodes[:, 0] != partition.child_nodes[:, 1]]
    assert {1, 3} <= set(columns.tolist())  # there are splits by sets


def test_the_forest_itself_predicts_by_these_leaves():
    forest = grown()
    points = np.where(np.isin(NEW[:, [3]], [3]), np.nan, NEW)
    leaves = np.stack([member.apply(points) for member in forest.estimators_], 1)
    labels = ForestPartition(forest)
    assert np.array_equal(
        leaves, labels.leaf_ids[labels.labels(torch.from_numpy(points)) + labels.layout.tree_leaves[:-1]]
    )
    means = [member.tree_.value[leaf, 0, 0] for member, leaf in zip(forest.estimators_, leaves.T)]
    np.testing.assert_allclose(forest.predict(points), np.mean(means, 0))


def test_the_first_cut_in_the_order_is_the_best_of_all_splits():
    """Fisher 1958: by trying all sets of levels (without shrinkage all levels have the same number of rows)."""
    random = np.random.RandomState(3)
    levels, effects = np.repeat(np.arange(7), 20), random.randn(7)
    y = effects[levels] + 0.3 * random.randn(140)
    places = np.unique(_scores(levels.astype(float), y, 7), return_inverse=True)[1]

    def error(left):
        side = np.isin(levels, left)
        return side.sum() * y[side].var() + (~side).sum() * y[~side].var()

    every = [left for size in range(1, 7) for left in combinations(range(7), size)]
    assert min(map(error, every)) == min(error(np.flatnonzero(places <= cut)) for cut in range(6))


def test_names_of_single_rows_are_not_split_on():
    """No row that a tree grows on has a level that another row has ordered."""
    x = np.stack([np.arange(600.0), X[:, 0]], 1)
    partition = ForestPartition(grown(x, X[:, 0] + X[:, 2], (0,), max_features=1.0))
    is_inner = partition.child_nodes[:, 0] != partition.child_nodes[:, 1]
    assert set(partition.feature[is_inner].tolist()) == {1}


def test_columns_of_levels_have_no_thresholds_and_are_cut_as_others():
    partition, points = ForestPartition(grown()), torch.from_numpy(NEW)
    assert partition.thresholds(1).numel() == 0 < partition.thresholds(0).numel()
    cut = partition.cut(torch.ones(12, dtype=torch.int64))
    assert int(cut.labels(points[~points.isnan().any(1)]).max()) == 1


def test_levels_that_a_subsample_lacks_are_between_the_others_and_unknown_ones_are_missing():
    x = np.array([[0.0], [1.0], [3.0], [4.0]] * 10)
    tree = LevelOrderTree(categories={0: 5}, random_state=0).fit(x, np.array([-2.0, -1.0, 1.0, 2.0] * 10))
    assert tree.level_places_[0].tolist() == [0, 1, 2, 3, 4]
    partition = ForestPartition(tree)
    unknown = partition.labels(torch.tensor([[5.0], [-1.0], [torch.nan]]))
    assert len(unknown.unique()) == 1


@pytest.mark.parametrize("weights", [None, torch.ones(400)])
def test_levels_are_ordered_by_other_groups(weights):
    """Each group has a level of its own: its rows in one half say nothing of it where it is in the other."""
    groups = np.repeat(np.arange(40), 10)
    x, y = np.stack([groups, np.zeros(400)], 1), RANDOM.randn(40)[groups]
    options = {"max_samples": 400, "max_features": 1.0, "sample_weight": weights}
    by_rows, by_groups = (
        grown(x, y, (0,), groups=labels, **options).predict(x).std() / y.std()
        for labels in (None, torch.from_numpy(groups))
    )
    assert by_rows > 0.9
    assert by_groups < 0.4


def test_the_kernel_and_a_state_over_another():
    kernel = RandomForestKernel(torch.from_numpy(X), torch.from_numpy(Y), 12, categories=[1, 3], random_state=0)
    assert torch.equal(
        kernel.cluster_ids(torch.from_numpy(NEW)), ForestPartition(grown()).labels(torch.from_numpy(NEW))
    )
    plain = ForestPartition(grown(categories=()))
    copy = ForestPartition(grown())
    copy.load_state_dict(plain.state_dict())
    assert torch.equal(copy.labels(torch.from_numpy(NEW)), plain.labels(torch.from_numpy(NEW)))


@pytest.mark.parametrize("categories", [(4,), (-1,), (1, 1), (0,)])
def test_columns_that_are_no_codes(categories):
    with pytest.raises(ValueError, match="distinct categories from 0 to 3|codes 0, 1"):
        grown(categories=categories)
