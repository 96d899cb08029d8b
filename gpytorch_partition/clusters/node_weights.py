"""
Nesting: trees as intervals of leaves, and what coordinates along the paths make of them.

Leaves are numbered depth-first, tree after tree. A node is then the interval of its leaves, an ancestor an
interval around it, and a level of a tree a row of intervals side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gpytorch_partition.clusters.tree_layout import TreeSums


@dataclass(frozen=True, eq=False)
class TreeLayout:
    r"""
    m trees side by side: V nodes, numbered tree after tree with parents before children, and p leaves.

    All tensors are int64. Holds `32 V + 8 p` bytes.

    :param node_low: `V` first leaf of each node.
    :param node_high: `V` one past the last leaf of each node.
    :param parent: `V` parent of each node; a root is its own.
    :param depth: `V` number of edges from the root.
    :param leaf_nodes: `p` node of each leaf.
    :param tree_nodes: `m + 1` where the nodes of each tree begin.
    :param tree_leaves: `m + 1` where the leaves of each tree begin.

    Example:
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> layout = lay_out_trees(left, right, torch.tensor([0, 5]))
        >>> layout.node_low, layout.node_high
        (tensor([0, 0, 1, 1, 2]), tensor([3, 1, 3, 2, 3]))
        >>> layout.depth, layout.leaf_nodes
        (tensor([0, 1, 1, 2, 2]), tensor([1, 3, 4]))
    """

    node_low: Tensor
    node_high: Tensor
    parent: Tensor
    depth: Tensor
    leaf_nodes: Tensor
    tree_nodes: Tensor
    tree_leaves: Tensor

    @property
    def num_trees(self) -> int:
        """Number m of trees."""
        return self.tree_nodes.numel() - 1

    @property
    def num_nodes(self) -> int:
        """Number V of nodes of all trees."""
        return self.parent.numel()

    @property
    def num_leaves(self) -> int:
        """Number p of leaves of all trees."""
        return self.leaf_nodes.numel()

    @cached_property
    def heights(self) -> Tensor:
        """`m` depths of the deepest leaves."""
        heights = self.tree_nodes.new_zeros(self.num_trees)
        leaf_depths = self.depth[self.leaf_nodes]
        return heights.scatter_reduce(0, self.of_leaf(torch.arange(self.num_trees)), leaf_depths, "amax")

    @cached_property
    def sums(self) -> TreeSums:
        """Sums up and down the trees; 32 bytes per node, held from the first use on."""
        return TreeSums(self)

    def of_node(self, values: Tensor) -> Tensor:
        """The value (`V`) that each node has from its tree's value (`m`)."""
        return values.to(self.parent.device).repeat_interleave(self.tree_nodes.diff())

    def of_leaf(self, values: Tensor) -> Tensor:
        """The value (`p`) that each leaf has from its tree's value (`m`)."""
        return values.to(self.parent.device).repeat_interleave(self.tree_leaves.diff())

    def to(self, device: Any = None, dtype: Any = None) -> TreeLayout:
        """The layout on another device; a dtype does not concern numbers of nodes and is ignored."""
        if device is None or torch.device(device) == self.parent.device:
            return self
        return TreeLayout(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))

    def cpu(self) -> TreeLayout:
        """The layout on the CPU."""
        return self.to("cpu")

    def cuda(self, device_id: Any = None) -> TreeLayout:
        """The layout on a CUDA device."""
        return self.to(torch.device("cuda", device_id) if isinstance(device_id, int) else device_id or "cuda")


def lay_out_trees(left: Tensor, right: Tensor, tree_nodes: Tensor) -> TreeLayout:
    r"""
    The layout of binary trees, level by level over all trees at once: :math:`O(V)` time and memory.

    :param left: `V` left child of each node (int64); a leaf is its own left and right child.
    :param right: `V` right child of each node.
    :param tree_nodes: `m + 1` where the nodes of each tree begin; the first node of a tree is its root.
    :return: The layout; :class:`TreeLayout` has an example.
    """
    nodes, roots = torch.arange(left.numel(), device=left.device), tree_nodes[:-1]
    levels = _inner_levels(left, right, roots)
    num_leaves = torch.ones_like(nodes)
    for inner in reversed(levels):
        num_leaves[inner] = num_leaves[left[inner]] + num_leaves[right[inner]]
    tree_leaves = torch.cat([tree_nodes.new_zeros(1), num_leaves[roots].cumsum(0)])
    low, depth, parent = torch.zeros_like(nodes), torch.zeros_like(nodes), nodes.clone()
    low[roots] = tree_leaves[:-1]
    for level, inner in enumerate(levels):
        start, first, second = low[inner], left[inner], right[inner]
        low[first], low[second] = start, start + num_leaves[first]
        depth[first] = depth[second] = level + 1
        parent[first] = parent[second] = inner
    leaves = nodes[left == nodes]
    leaf_nodes = torch.empty_like(leaves)
    leaf_nodes[low[leaves]] = leaves
    return TreeLayout(low, low + num_leaves, parent, depth, leaf_nodes, tree_nodes, tree_leaves)


def _inner_levels(left: Tensor, right: Tensor, roots: Tensor) -> list[Tensor]:
    """The inner nodes of all trees at depth 0, 1, 2, ..."""
    levels, level = [], roots[left[roots] != roots]
    while level.numel():
        levels.append(level)
        # Side by side from left to right: memory is then read in order.
        children = torch.stack([left[level], right[level]], 1).view(-1)
        level = children[left[children] != children]
    return levels


def height_average_weights(layout: TreeLayout) -> Tensor:
    r"""
    Weights of nodes that average the random forest kernel over all heights at which its trees can be cut.

    Algorithm 1 of Davies & Ghahramani (2014) cuts each tree at a height d drawn from 0 ... h, h the depth of
    that tree. A leaf at depth l falls in the cluster of its ancestor at depth :math:`\min(d, l)`, so the
    exact expectation is a sum over the nodes above both points with

    .. math:: w_v = \frac{1}{h + 1} \text{ (inner nodes)}, \qquad w_v = \frac{h - \text{depth}_v + 1}{h + 1}
        \text{ (leaves)}.

    The weights on each path from a root to a leaf sum to 1. :math:`O(V)` time and memory.

    :param layout: The trees.
    :return: `V` weights (float64).

    Example:
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> height_average_weights(lay_out_trees(left, right, torch.tensor([0, 5])))
        tensor([0.3333, 0.6667, 0.3333, 0.3333, 0.3333], dtype=torch.float64)
    """
    cuts = layout.of_node(layout.heights) + 1
    hits = torch.ones_like(layout.depth)
    hits[layout.leaf_nodes] = (cuts - layout.depth)[layout.leaf_nodes]
    return hits.double() / cuts


def level_node_weights(layout: TreeLayout, level_weights: Tensor) -> Tensor:
    r"""
    Weights of nodes that average the trees, all cut at one depth, over the depths with given weights.

    With weights :math:`u_0, \ldots, u_H` of the depths and a leaf at depth l in the cluster of its ancestor at depth
    :math:`\min(d, l)`, the average :math:`\sum_d u_d K_d` is a sum over the nodes above both points with

    .. math:: w_v = u_{\text{depth}_v} \text{ (inner nodes)}, \qquad w_v = \sum_{d \ge \text{depth}_v} u_d
        \text{ (leaves)}.

    A tree cut below its height is cut into its leaves. :math:`O(V)` time and memory; differentiable.

    :param layout: The trees.
    :param level_weights: `H + 1` weights of the depths 0 ... H, H the height of the tallest tree.
    :return: `V` weights, in the dtype of `level_weights`.

    Example:
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> level_node_weights(lay_out_trees(left, right, torch.tensor([0, 5])), torch.tensor([0.5, 0.25, 0.25]))
        tensor([0.5000, 0.5000, 0.2500, 0.2500, 0.2500])
    """
    is_leaf = layout.node_high - layout.node_low == 1
    tails = level_weights.flip(0).cumsum(0).flip(0)
    return torch.where(is_leaf, tails[layout.depth], level_weights[layout.depth])


def softmax_node_weights(layout: TreeLayout, logits: Tensor) -> Tensor:
    r"""
    Weights of nodes that average the random forest kernel over heights drawn from a softmax, that of each tree
    restricted to the tree's own heights.

    A tree of height h is cut at depth d with the probability :math:`u_d = e^{l_d} / \sum_{e \le h} e^{l_e}`, so that

    .. math:: w_v = u_{\text{depth}_v} \text{ (inner nodes)}, \qquad w_v = \sum_{d = \text{depth}_v}^h u_d
        \text{ (leaves)}.

    The weights on each path from a root to a leaf sum to 1. Logits of zero give :func:`height_average_weights`, the
    uniform heights of algorithm 1 of Davies & Ghahramani (2014). :math:`O(V)` time and memory; differentiable, and safe
    for logits of any size.

    :param layout: The trees.
    :param logits: `H + 1` logits l of the depths 0 ... H, H the height of the tallest tree.
    :return: `V` weights, in the dtype of `logits`.

    Example:
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> layout = lay_out_trees(left, right, torch.tensor([0, 5]))
        >>> softmax_node_weights(layout, torch.tensor([0.5, 0.25, 0.25]).log())
        tensor([0.5000, 0.5000, 0.2500, 0.2500, 0.2500])
    """
    # The logarithm of the sum over depths below 0, 1, ..., H + 1.
    below = torch.cat([logits.new_full((1,), -torch.inf), logits.logcumsumexp(0)])
    total = layout.of_node(below[layout.heights + 1])
    is_leaf = layout.node_high - layout.node_low == 1
    # A leaf has what the inner nodes above it leave of 1.
    inner = (logits.index_select(0, layout.depth) - total).exp()
    above = (below.index_select(0, layout.depth) - total).clamp_max(0)
    return torch.where(is_leaf, -above.expm1(), inner)


def impurity_decrease_weights(layout: TreeLayout, impurities: Tensor, floor: float) -> Tensor:
    r"""
    Weights of nodes by how much their own split from their siblings explained:

    .. math:: w_v = \max(i_{\text{parent}(v)} - i_v, 0) + \text{floor}.

    A root has no parent, and the floor as its weight: it stands for a constant. :math:`O(V)` time and memory.

    :param layout: The trees.
    :param impurities: `V` impurities i, as shares of the root's.
    :param floor: The least weight, of nodes that explained nothing.
    :return: `V` weights, in the dtype of `impurities`.

    Example:
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> layout = lay_out_trees(left, right, torch.tensor([0, 5]))
        >>> impurity_decrease_weights(layout, torch.tensor([1.0, 0.25, 0.5, 0.0, 0.75]), floor=0.125)
        tensor([0.1250, 0.8750, 0.6250, 0.6250, 0.1250])
    """
    return (impurities[layout.parent] - impurities).clamp_min(0) + floor


def height_average_levels(layout: TreeLayout) -> Tensor:
    r"""
    The weights of depths nearest to :func:`height_average_weights`: those of a depth that is drawn from 0 ... h for a
    tree drawn at random, h its own height, and then cuts all trees.

    The same kernel if all trees have the same height; with different ones, tall trees are cut a little higher up.

    :param layout: The trees.
    :return: `H + 1` weights (float64), H the height of the tallest tree.

    Example:
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> height_average_levels(lay_out_trees(left, right, torch.tensor([0, 5])))
        tensor([0.3333, 0.3333, 0.3333], dtype=torch.float64)
    """
    depths = torch.arange(int(layout.heights.max()) + 1, device=layout.heights.device).unsqueeze(-1)
    return ((depths <= layout.heights) / (layout.heights + 1).double()).mean(-1)


def cut_at_depth(layout: TreeLayout, depths: Tensor) -> tuple[Tensor, Tensor]:
    r"""
    The clusters of each tree cut at a depth: a leaf belongs to its ancestor at depth min(d, depth of the
    leaf). With a depth drawn from 0 ... h this is a sample of Algorithm 1 of Davies & Ghahramani (2014).

    :math:`O(V)` time and memory.

    :param layout: The trees.
    :param depths: `m` depths, 0 or more (int64); a tree cut at its height or below is cut into its leaves.
    :return: The cluster of each leaf (`p`), numbered 0, 1, ... depth-first within its tree, and the number of
        clusters of each tree (`m`).

    Example:
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> cut_at_depth(lay_out_trees(left, right, torch.tensor([0, 5])), torch.tensor([1]))
        (tensor([0, 1, 1]), tensor([2]))
    """
    cut = layout.of_node(depths)
    is_cluster = layout.depth == cut
    is_cluster[layout.leaf_nodes] |= (layout.depth < cut)[layout.leaf_nodes]
    # Clusters are intervals side by side: each begins where its node's leaves begin.
    begins = torch.zeros_like(layout.leaf_nodes)
    begins[layout.node_low[is_cluster]] = 1
    ends = torch.cat([begins.new_zeros(1), begins.cumsum(0)])
    first = ends[layout.tree_leaves]
    return ends[1:] - 1 - layout.of_leaf(first[:-1]), first.diff()
