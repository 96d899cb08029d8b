"""Trees from arrays against a walk down their nodes, and levels of splits into many against definition 2."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.partitions import ForestPartition
from gpytorch_partition.partitions.ensembles import array_trees

X = torch.from_numpy(np.random.RandomState(0).randint(0, 9, size=(200, 3)) / 2.0)  # many values are thresholds


def random_tree(random, num_columns=3, most_children=5, depth=4):
    """Nodes with two to five children, numbered in no order."""
    children, columns, thresholds = [], [], []

    def grow(level):
        node = len(children)
        children.append([-1] * most_children)
        columns.append(random.randint(num_columns))
        thresholds.append(np.full(most_children - 1, np.nan))
        if level and (node == 0 or random.rand() < 0.8):
            count = random.randint(2, most_children + 1)
            thresholds[node][: count - 1] = np.sort(random.permutation(8)[: count - 1]) / 2
            children[node][:count] = [grow(level - 1) for _ in range(count)]
        return node

    grow(depth)
    order = np.concatenate([[0], 1 + random.permutation(len(children) - 1)])  # new numbers
    place = np.argsort(order)
    renamed = np.array(children)[place]
    return np.where(renamed >= 0, order[renamed], -1), np.array(columns)[place], np.array(thresholds)[place]


def path(tree, point):
    """The nodes that a point passes, from the root to its leaf."""
    children, columns, thresholds = tree
    nodes = [0]
    while children[nodes[-1], 0] >= 0:
        node = nodes[-1]
        count = (children[node] >= 0).sum()
        nodes.append(children[node, (point[columns[node]] > thresholds[node, : count - 1]).sum()])
    return nodes


TREES = [random_tree(np.random.RandomState(seed)) for seed in range(6)]
PATHS = [[path(tree, point) for point in X.numpy()] for tree in TREES]


def at_depth(paths, depth):
    """Which pairs of points are in one node of a tree that is cut at a depth."""
    nodes = np.array([nodes[min(depth, len(nodes) - 1)] for nodes in paths])
    return torch.from_numpy(nodes[:, None] == nodes).double()


def heights():
    """The height of each whole tree, which rows need not reach."""
    return [int(height) for height in ForestPartition(array_trees(TREES, 3)).layout.heights]


def test_heights_are_levels():
    def height(children, node=0):
        return (
            1 + max(height(children, child) for child in children[node] if child >= 0) if children[node, 0] > 0 else 0
        )

    assert heights() == [height(tree[0]) for tree in TREES]


@pytest.mark.parametrize("kind", ["all", "learned", "leaf"])
def test_the_kernel_is_the_average_over_levels(kind):
    kernel = RandomForestKernel.from_arrays(TREES, 3, kind).double()
    expected = 0
    for paths, height in zip(PATHS, heights()):
        cuts = torch.stack([at_depth(paths, depth) for depth in range(height + 1)])
        if kind == "learned":
            kernel.level_weights = torch.arange(1.0, max(heights()) + 2)
            weights = torch.arange(1.0, height + 2).double()
            expected = expected + torch.einsum("d,dij->ij", weights / weights.sum(), cuts)
        else:
            expected = expected + (cuts[-1] if kind == "leaf" else cuts.mean(0))
    torch.testing.assert_close(kernel(X).to_dense().detach(), expected / len(TREES))
    values = torch.randn(200, 2, dtype=torch.float64)
    torch.testing.assert_close((kernel(X) @ values).detach(), expected @ values / len(TREES))


def test_cuts_at_sampled_heights():
    forest = ForestPartition(array_trees(TREES, 3))
    for depth in range(5):
        cut = forest.cut(torch.full((len(TREES),), depth))
        labels = cut.labels(X)
        for column, paths in zip(labels.T, PATHS):
            assert torch.equal((column[:, None] == column).double(), at_depth(paths, depth))
        assert bool((labels.amax(0) < cut.cluster_counts).all())


def test_binary_trees_are_those_of_the_library():
    forest = ExtraTreesRegressor(5, random_state=0).fit(X, X[:, 0])
    inner = [tree.tree_ for tree in forest.estimators_]
    arrays = [(np.stack([t.children_left, t.children_right], 1), t.feature, t.threshold) for t in inner]
    expected = RandomForestKernel.from_forest(forest)
    torch.testing.assert_close(RandomForestKernel.from_arrays(arrays, 3)(X).to_dense(), expected(X).to_dense())


def test_weights_of_trees():
    kernel = RandomForestKernel.from_arrays(TREES[:2], 3, "leaf", weights=[3.0, 1.0]).double()
    parts = [RandomForestKernel.from_arrays([tree], 3, "leaf").double()(X).to_dense() for tree in TREES[:2]]
    torch.testing.assert_close(kernel(X).to_dense(), 0.75 * parts[0] + 0.25 * parts[1])


LEAF = [-1, -1]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (([[1, 2], LEAF], [0, 0], [1.0, 0.0]), "child of one node each"),
        (([[1, 1], LEAF], [0, 0], [1.0, 0.0]), "child of one node each"),
        (([[1, -1], LEAF], [0, 0], [1.0, 0.0]), "two children or more, or none, got others at node 0 of tree 0"),
        (([[-1, 1], LEAF], [0, 0], [1.0, 0.0]), "two children or more"),
        (([[-1, 1, 2], [-1] * 3, [-1] * 3], [0, 0, 0], np.zeros((3, 2))), "children first"),
        (([[1, 2], LEAF, LEAF], [3, 0, 0], [1.0, 0, 0]), "columns from 0 to 2"),
        (([[1, 2], LEAF, LEAF], [0, 0, 0], [np.nan, 0, 0]), "thresholds that increase"),
        (([[1, 2, 3], *[[-1] * 3] * 3], [0] * 4, [[2.0, 1.0]] * 4), "thresholds that increase"),
        (([[1, 2, 3], *[[-1] * 3] * 3], [0] * 4, [1.0] * 4), "one less than children"),
        (([[1, 2], LEAF, LEAF], [0], [1.0, 0, 0]), "3 columns and thresholds"),
        (([[1.0, 2.0], LEAF, LEAF], [0] * 3, [1.0, 0, 0]), "integers in 2 dimension"),
        (([LEAF, [2, 3], [1, 4], LEAF, LEAF], [0] * 5, [1.0] * 5), "to be below node 0"),
        (([[1, 2], LEAF, LEAF], [0, 0, 0], [1.0, 0]), "a row for each of 3 nodes"),
        (([[1, 2], LEAF, LEAF], [0, 0, 0], ["a"] * 3), "thresholds of tree 0 as numbers"),
        (([[1, 2], LEAF, LEAF], [0, 0, 0]), r"tree 0 as \(children, columns, thresholds\)"),
    ],
)
def test_clear_errors(tree, message):
    with pytest.raises(ValueError, match=message):
        RandomForestKernel.from_arrays([tree], 3)


@pytest.mark.parametrize("weights", [[1.0], [1.0] * 9, 2.0])
def test_other_numbers_of_weights_than_trees(weights):
    with pytest.raises(ValueError, match=f"expected {len(TREES)} weights, one for each tree"):
        RandomForestKernel.from_arrays(TREES, 3, weights=weights)


@pytest.mark.parametrize("num_columns", [0, 1.5, True, "3"])
def test_other_numbers_of_columns_than_whole_ones(num_columns):
    with pytest.raises(ValueError, match="expected a number of columns"):
        RandomForestKernel.from_arrays(TREES, num_columns)


def test_no_trees_and_missing_values():
    with pytest.raises(ValueError, match="one tree or more"):
        RandomForestKernel.from_arrays([], 3)
    with pytest.raises(ValueError, match="NaN or infinity"):
        RandomForestKernel.from_arrays(TREES, 3)(torch.full((2, 3), torch.nan)).evaluate_kernel()
