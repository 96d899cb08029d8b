"""Layouts, weights and cuts against recursion over each tree."""

from __future__ import annotations

import pickle
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpytorch_partition.clusters import tree_layout as tree_sums
from gpytorch_partition.clusters.tree_layout import (
    TreeSums,
    cut_at_depth,
    height_average_weights,
    lay_out_trees,
    softmax_node_weights,
)
from gpytorch_partition.partitions.forest import ForestPartition
from gpytorch_partition.partitions.grown_forest import grow_forest

trees_of_any_shape = st.builds(
    lambda splits, seed: grow(splits, random.Random(seed)),
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
    st.integers(0, 10_000),
)
any_trees = settings(derandomize=True, deadline=None, max_examples=40)


class Node:
    """A node of a tree kept as objects: the oracle."""

    def __init__(self, depth: int, parent: Node | None = None) -> None:
        self.depth, self.parent, self.children = depth, parent, []

    def leaves(self) -> list[Node]:
        return [leaf for child in self.children for leaf in child.leaves()] if self.children else [self]

    def ancestor(self, depth: int) -> Node:
        return self if self.depth <= depth else self.parent.ancestor(depth)

    def path(self) -> list[Node]:
        return [self, *(self.parent.path() if self.parent else [])]


def grow(splits: list[int], chance: random.Random) -> list[list[Node]]:
    """Trees as lists of nodes, parents before children: random leaves are split, as in best-first growth."""
    trees = []
    for count in splits:
        nodes = [Node(0)]
        for _ in range(count):
            parent = chance.choice([node for node in nodes if not node.children])
            parent.children = [Node(parent.depth + 1, parent) for _ in range(2)]
            nodes += parent.children if chance.random() < 0.5 else parent.children[::-1]
        trees.append(nodes)
    return trees


def laid_out(trees: list[list[Node]]):
    everyone = [node for tree in trees for node in tree]
    number = {id(node): i for i, node in enumerate(everyone)}
    children = [[number[id(child)] for child in node.children] or [i, i] for i, node in enumerate(everyone)]
    left, right = torch.tensor(children).unbind(1)
    starts = torch.tensor([0, *(len(tree) for tree in trees)]).cumsum(0)
    return lay_out_trees(left, right, starts), everyone, number


def leaves_of(trees: list[list[Node]]) -> list[Node]:
    return [leaf for tree in trees for leaf in tree[0].leaves()]


@any_trees
@given(trees_of_any_shape)
def test_layout_is_that_of_recursion(trees):
    layout, everyone, number = laid_out(trees)
    code = {id(leaf): i for i, leaf in enumerate(leaves_of(trees))}
    intervals = [[code[id(leaf)] for leaf in node.leaves()] for node in everyone]
    assert [list(range(*pair)) for pair in zip(layout.node_low.tolist(), layout.node_high.tolist())] == intervals
    assert layout.parent.tolist() == [number[id(node.parent or node)] for node in everyone]
    assert layout.depth.tolist() == [node.depth for node in everyone]
    assert layout.leaf_nodes.tolist() == [number[id(leaf)] for leaf in leaves_of(trees)]
    assert layout.tree_leaves.diff().tolist() == [len(tree[0].leaves()) for tree in trees]
    assert layout.tree_nodes.diff().tolist() == [len(tree) for tree in trees]
    assert layout.heights.tolist() == [max(node.depth for node in tree) for tree in trees]
    sizes = (layout.num_trees, layout.num_nodes, layout.num_leaves)
    assert sizes == (len(trees), len(everyone), len(code))


@any_trees
@given(trees_of_any_shape)
def test_the_node_that_leaves_share_is_the_first_of_one_path_on_the_other(trees):
    layout, _, number = laid_out(trees)
    leaves = leaves_of(trees)
    pairs = [[next((node for node in a.path() if node in b.path()), None) for b in leaves] for a in leaves]
    expected = [[-1 if node is None else number[id(node)] for node in row] for row in pairs]
    every = torch.arange(len(leaves))
    assert layout.shared_nodes(*torch.broadcast_tensors(every.unsqueeze(1), every)).tolist() == expected


@any_trees
@given(trees_of_any_shape, st.integers(0, 10_000), st.sampled_from([0.0, 1.0, 300.0]))
def test_softmax_weights_average_the_agreement_of_two_leaves_over_each_trees_own_heights(trees, seed, size):
    layout, _, number = laid_out(trees)
    generator = torch.Generator().manual_seed(seed)
    logits = size * torch.randn(int(layout.heights.max()) + 1, generator=generator, dtype=torch.float64)
    weights = softmax_node_weights(layout, logits)
    assert bool((weights >= 0).all())
    for tree in trees:
        leaves, height = tree[0].leaves(), max(node.depth for node in tree)
        chances = logits[: height + 1].softmax(0)
        for a in leaves:
            for b in leaves:
                agreement = sum(float(u) for d, u in enumerate(chances) if a.ancestor(d) is b.ancestor(d))
                common = [number[id(node)] for node in a.path() if node in b.path()]
                assert float(weights[common].sum()) == pytest.approx(agreement, abs=1e-12)


@pytest.mark.parametrize("size", [0.5, 30.0])
def test_softmax_weights_have_the_right_gradient(size):
    layout, _, _ = laid_out(grow([9, 0, 4], random.Random(0)))
    generator = torch.Generator().manual_seed(0)
    logits = size * torch.randn(int(layout.heights.max()) + 1, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda logits: softmax_node_weights(layout, logits), logits.requires_grad_())


@any_trees
@given(trees_of_any_shape, st.integers(0, 10_000))
def test_cut_is_that_of_each_leafs_ancestor(trees, seed):
    layout, _, _ = laid_out(trees)
    chance = random.Random(seed)
    depths = [chance.randint(0, 1 + max(node.depth for node in tree)) for tree in trees]
    clusters, counts = cut_at_depth(layout, torch.tensor(depths))
    expected_clusters, expected_counts = [], []
    for tree, depth in zip(trees, depths):
        seen: list[Node] = []
        for leaf in tree[0].leaves():
            if leaf.ancestor(depth) not in seen:
                seen.append(leaf.ancestor(depth))
            expected_clusters.append(seen.index(leaf.ancestor(depth)))
        expected_counts.append(len(seen))
    assert clusters.tolist() == expected_clusters
    assert counts.tolist() == expected_counts
    assert clusters.dtype == counts.dtype == torch.int64


def test_layout_moves_and_pickles():
    layout, _, _ = laid_out(grow([5, 3], random.Random(0)))
    assert layout.cpu() is layout.to(dtype=torch.float32) is layout.to("cpu") is layout
    copy = pickle.loads(pickle.dumps(layout))
    for name in layout.__dataclass_fields__:
        assert torch.equal(getattr(copy, name), getattr(layout, name))
    assert layout.to("meta").parent.device.type == "meta"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_layout_on_a_gpu():
    layout, _, _ = laid_out(grow([5, 3], random.Random(0)))
    there = layout.cuda()
    assert torch.equal(height_average_weights(there).cpu(), height_average_weights(layout))
    clusters, counts = cut_at_depth(there, torch.tensor([1, 2]))
    assert torch.equal(clusters.cpu(), cut_at_depth(layout, torch.tensor([1, 2]))[0])
    assert torch.equal(counts.cpu(), cut_at_depth(layout, torch.tensor([1, 2]))[1])


def test_a_chain_as_deep_as_it_has_splits():
    nodes = [Node(0)]
    for _ in range(300):
        nodes[-1].children = [Node(nodes[-1].depth + 1, nodes[-1]) for _ in range(2)]
        nodes += nodes[-1].children
    layout, _, _ = laid_out([nodes])
    assert layout.heights.tolist() == [300]
    assert layout.depth[layout.leaf_nodes].tolist() == [*range(1, 301), 300]


@pytest.mark.parametrize(
    ("left", "right"), [([1, 0, 2], [2, 2, 2]), ([1, 2, 2], [2, 2, 2]), ([1, 1, 2, 3], [2, 1, 2, 3])]
)
def test_nodes_that_make_no_tree_are_an_error(left, right):
    with pytest.raises(ValueError, match="no child, or the child of several"):
        lay_out_trees(torch.tensor(left), torch.tensor(right), torch.tensor([0, len(left)]))


@pytest.mark.parametrize("nodes_at_once", [1, 40, 2**18])
def test_groups_of_trees_of_any_size_give_the_same_sums(nodes_at_once, monkeypatch):
    monkeypatch.setattr(tree_sums, "_NODES_PER_GROUP", nodes_at_once)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(60, 2, generator=generator)
    forest = grow_forest(x, x[:, 0], num_trees=7, min_samples_leaf=5, random_state=0)
    stump = grow_forest(x, x[:, 0], num_trees=1, min_samples_leaf=60, random_state=0)
    forest.estimators_[3] = stump.estimators_[0]  # a tree of one leaf among the others
    layout = ForestPartition(forest).layout
    leaves = torch.arange(layout.num_leaves)
    below = ((layout.node_low.unsqueeze(1) <= leaves) & (leaves < layout.node_high.unsqueeze(1))).double()
    values = torch.randn(layout.num_leaves, 3, generator=generator, dtype=torch.float64)
    weights = torch.rand(layout.num_nodes, generator=generator, dtype=torch.float64)
    sums = TreeSums(layout)
    assert sums.nodes.sort().values.tolist() == list(range(layout.num_nodes))
    torch.testing.assert_close(sums.up(values), (below @ values)[sums.nodes])
    table = torch.randn(layout.num_nodes, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(sums.down(table[sums.nodes]), below.mT @ table)
    node_sums = weights.unsqueeze(1) * (below @ values)
    torch.testing.assert_close(sums.up_and_down(values, weights), below.mT @ node_sums)
    right = torch.randn(layout.num_leaves, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(sums.inner_products(values, right), ((below @ values) * (below @ right)).sum(-1))
