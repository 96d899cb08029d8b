"""
Trees of clusters: their nodes as intervals of leaves, sums up and down the trees, and weights of the nodes.

Leaves are numbered depth-first, tree after tree. A node is then the interval of its leaves, an ancestor an interval
around it, and a level of a tree a row of intervals side by side.

Sums are made for a few trees at a time, so that their table of values stays in the cache, level by level: on the way up
each node is the sum of its two children, on the way down it adds its parent. So float32 keeps its digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import Movable

_NODES_PER_GROUP = 2**18  # nodes of the trees that are summed together: a table of a few megabytes with a dozen columns


@dataclass(frozen=True, eq=False)
class TreeLayout(Movable):
    """
    Hold a layout of m binary trees with V nodes and p leaves, numbered tree after tree with parents before children.

    A split into more than two children is made of several nodes: the nodes after the first one are auxiliary and form
    no clusters. All children of the split are on the level below it.

    Example:
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> layout = lay_out_trees(left, right, torch.tensor([0, 5]))
        >>> layout.node_low, layout.node_high
        (tensor([0, 0, 1, 1, 2]), tensor([3, 1, 3, 2, 3]))
        >>> layout.depth, layout.leaf_nodes
        (tensor([0, 1, 1, 2, 2]), tensor([1, 3, 4]))
    """

    node_low: Tensor  # (V,) first leaf of each node
    node_high: Tensor  # (V,) one past the last leaf of each node
    parent: Tensor  # (V,) a root is its own parent
    depth: Tensor  # (V,) number of edges from the root
    leaf_nodes: Tensor  # (p,) node of each leaf
    tree_nodes: Tensor  # (m + 1,) where the nodes of each tree begin
    tree_leaves: Tensor  # (m + 1,) where the leaves of each tree begin
    level: Tensor  # (V,) number of nodes above each that are not auxiliary: the depth, without auxiliary nodes
    is_auxiliary: Tensor  # (V,) bool

    @property
    def num_trees(self) -> int:
        return self.tree_nodes.numel() - 1

    @property
    def num_nodes(self) -> int:
        return self.parent.numel()

    @property
    def num_leaves(self) -> int:
        return self.leaf_nodes.numel()

    @cached_property
    def heights(self) -> Tensor:
        """The level of the deepest leaf of each tree (`m`)."""
        return self._deepest_leaves(self.level)

    @cached_property
    def num_steps(self) -> Tensor:
        """The largest number of edges from the root to a leaf of each tree (`m`), auxiliary nodes included."""
        return self._deepest_leaves(self.depth)

    def _deepest_leaves(self, depth: Tensor) -> Tensor:
        deepest = self.tree_nodes.new_zeros(self.num_trees)
        return deepest.scatter_reduce(0, self.of_leaf(torch.arange(self.num_trees)), depth[self.leaf_nodes], "amax")

    @cached_property
    def sums(self) -> TreeSums:
        """Return the functions that sum up and down the trees; 32 bytes per node, kept from the first use on."""
        return TreeSums(self)

    def shared_nodes(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the deepest node above each pair of leaves: a leaf's own node for equal leaves, -1 between trees."""
        low, high = torch.minimum(left, right), torch.maximum(left, right)
        table = self._shared_by_neighbours
        exponent = torch.frexp((high - low).double()).exponent.long().sub_(1).clamp_(0, len(table) - 1)
        last = (high - (1 << exponent)).clamp_min(0)
        shared = torch.minimum(table[exponent, low], table[exponent, last])
        return torch.where(low == high, self.leaf_nodes[low], shared)

    @cached_property
    def _shared_by_neighbours(self) -> Tensor:
        """The deepest (smallest) node above the leaves l ... l + 2^k (entry k, l); the end of a row is padding."""
        is_right = (self.node_low > self.node_low[self.parent]).nonzero().squeeze(-1)
        rows = [torch.full_like(self.leaf_nodes, -1, dtype=torch.int32)]
        rows[0][self.node_low[is_right] - 1] = self.parent[is_right].int()
        most = int(self.tree_leaves.diff().max())
        while (step := 1 << (len(rows) - 1)) < most:
            rows.append(rows[-1].clone())
            rows[-1][:-step] = torch.minimum(rows[-2][:-step], rows[-2][step:])
        return torch.stack(rows)

    def of_node(self, values: Tensor) -> Tensor:
        return values.to(self.parent.device).repeat_interleave(self.tree_nodes.diff())

    def of_leaf(self, values: Tensor) -> Tensor:
        return values.to(self.parent.device).repeat_interleave(self.tree_leaves.diff())

    @property
    def device(self) -> torch.device:
        return self.parent.device

    def _moved(self, device: Any) -> TreeLayout:
        return TreeLayout(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


def lay_out_trees(left: Tensor, right: Tensor, tree_nodes: Tensor, is_auxiliary: Tensor | None = None) -> TreeLayout:
    """
    Return the layout of binary trees, built level by level over all trees at once, in :math:`O(V)`.

    :param left: `V` left child of each node (int64); a leaf is its own left and right child.
    :param right: `V` right child of each node.
    :param tree_nodes: `m + 1` where the nodes of each tree begin; the first node of a tree is its root.
    :param is_auxiliary: `V` (bool) which nodes are auxiliary: no roots, and no leaves. (Default: none.)
    """
    nodes, roots = torch.arange(left.numel(), device=left.device), tree_nodes[:-1]
    levels = _inner_levels(left, right, roots)
    num_leaves = torch.ones_like(nodes)
    for inner in reversed(levels):
        num_leaves[inner] = num_leaves[left[inner]] + num_leaves[right[inner]]
    tree_leaves = torch.cat([tree_nodes.new_zeros(1), num_leaves[roots].cumsum(0)])
    low, depth, parent = torch.zeros_like(nodes), torch.zeros_like(nodes), nodes.clone()
    low[roots] = tree_leaves[:-1]
    level_of = depth if is_auxiliary is None else torch.zeros_like(nodes)
    for level, inner in enumerate(levels):
        start, first, second = low[inner], left[inner], right[inner]
        low[first], low[second] = start, start + num_leaves[first]
        depth[first] = depth[second] = level + 1
        parent[first] = parent[second] = inner
        if is_auxiliary is not None:
            level_of[first] = level_of[second] = level_of[inner] + (~is_auxiliary[inner]).long()
    leaves = nodes[left == nodes]
    leaf_nodes = torch.empty_like(leaves)
    leaf_nodes[low[leaves]] = leaves
    is_auxiliary = torch.zeros_like(nodes, dtype=torch.bool) if is_auxiliary is None else is_auxiliary
    return TreeLayout(low, low + num_leaves, parent, depth, leaf_nodes, tree_nodes, tree_leaves, level_of, is_auxiliary)


def _inner_levels(left: Tensor, right: Tensor, roots: Tensor) -> list[Tensor]:
    levels, level = [], roots[left[roots] != roots]
    num_reached = len(roots)
    while level.numel():
        num_reached += 2 * level.numel()
        if num_reached > left.numel():
            break  # a cycle
        levels.append(level)
        # Side by side from left to right: memory is then read in order.
        children = torch.stack([left[level], right[level]], 1).view(-1)
        level = children[left[children] != children]
    if num_reached != left.numel():
        raise ValueError("expected trees, got a node that is no child, or the child of several: the state is damaged")
    return levels


def paths_from_root(layout: TreeLayout, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Return where the path from the root to each node (`n`) begins, and the nodes of all paths, one after another."""
    depths = layout.depth[nodes]
    starts = torch.cat([nodes.new_zeros(1), (depths + 1).cumsum(0)])
    path, places = nodes.new_empty(int(starts[-1])), starts[:-1] + depths
    while nodes.numel():
        path[places] = nodes
        below = (layout.parent[nodes] != nodes).nonzero().squeeze(-1)
        nodes, places = layout.parent[nodes[below]], places[below] - 1
    return starts, path


def cut_at_depth(layout: TreeLayout, depths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cluster of each leaf (`p`), and their number in each tree (`m`), of trees cut at `m` depths."""
    cut = layout.of_node(depths)
    is_cluster = layout.level == cut
    is_cluster[layout.leaf_nodes] |= (layout.level < cut)[layout.leaf_nodes]
    # Clusters are intervals side by side: each begins where its node's leaves begin, as an auxiliary node does, too.
    begins = torch.zeros_like(layout.leaf_nodes)
    begins[layout.node_low[is_cluster]] = 1
    ends = torch.cat([begins.new_zeros(1), begins.cumsum(0)])
    first = ends[layout.tree_leaves]
    return ends[1:] - 1 - layout.of_leaf(first[:-1]), first.diff()


class TreeSums:
    """Sum over the nodes of binary trees, upwards and downwards; tables have the nodes in the order of `nodes`."""

    def __init__(self, layout: TreeLayout) -> None:
        self._groups = [_TreeGroup(layout, first, last) for first, last in pairwise(_group_starts(layout.tree_nodes))]
        self.nodes = torch.cat([group.nodes for group in self._groups])  # the node number of each row of the table

    def up(self, leaf_values: Tensor) -> Tensor:
        """Return the sum of the values of leaves (`p x t`) below each node (`V x t`, in the order of `nodes`)."""
        return torch.cat([group.up(leaf_values[group.leaves]) for group in self._groups])

    def down(self, node_values: Tensor) -> Tensor:
        """Return the sum over each leaf and the nodes above it (`p x t`) of values of nodes (`V x t`), which change."""
        return torch.cat([group.down(node_values[group.places]) for group in self._groups])

    def gathered(self, node_values: Tensor) -> Tensor:
        """Add to each node the values of all nodes below it, in place (`V x t`, in the order of `nodes`)."""
        for group in self._groups:
            group.gather(node_values[group.places])
        return node_values

    def paths(self, node_values: Tensor) -> Tensor:
        """Add to each node the values of all nodes above it, in place (`V x t`, in the order of `nodes`)."""
        for group in self._groups:
            values = node_values[group.places]
            leaves = group.down(values)
            values[: len(leaves)] = leaves
        return node_values

    def up_and_down(self, leaf_values: Tensor, node_weights: Tensor) -> Tensor:
        """Return the product of a tree covariance (`V` node weights, layout order) with values of leaves (`p x t`)."""
        result = torch.empty_like(leaf_values)
        for group in self._groups:
            table = group.up(leaf_values[group.leaves])
            result[group.leaves] = group.down(table.mul_(node_weights[group.nodes].unsqueeze(-1)))
        return result

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        """Return each node's inner product (`V`, in layout order) of its sums over two tables of leaves (`p x t`)."""
        products = left.new_empty(self.nodes.numel())
        for group in self._groups:
            sums = group.up(left[group.leaves]).mul_(group.up(right[group.leaves]))
            products[group.nodes] = sums.sum(-1)
        return products


class _TreeGroup:
    def __init__(self, layout: TreeLayout, first: int, last: int) -> None:
        self.leaves = slice(*layout.tree_leaves[[first, last]].tolist())
        self.places = slice(*layout.tree_nodes[[first, last]].tolist())
        start, num_leaves = self.places.start, self.leaves.stop - self.leaves.start
        parent, depth = layout.parent[self.places] - start, layout.depth[self.places]
        numbers, leaf_nodes = torch.arange(len(parent), device=parent.device), layout.leaf_nodes[self.leaves] - start
        inner = torch.ones_like(parent, dtype=torch.bool).index_fill_(0, leaf_nodes, False).nonzero().squeeze(-1)
        # Deepest first; the sort is stable, so that a level keeps the order of the trees.
        depths, order = torch.sort(depth[inner], descending=True, stable=True)
        nodes = torch.cat([leaf_nodes, inner[order]])
        place = torch.empty_like(numbers).index_copy_(0, nodes, numbers)
        self.nodes = nodes + start
        sizes = torch.unique_consecutive(depths, return_counts=True)[1]
        self._level_starts = [num_leaves, *(num_leaves + sizes.cumsum(0)).tolist()]
        self._parents = place[parent[nodes]]
        self._lone_leaves = (self._parents == numbers)[:num_leaves].nonzero().squeeze(-1)  # trees of one leaf
        # Places sorted by the place of their parent: two for each inner node, as a root is its own parent.
        below = (self._parents != numbers).nonzero().squeeze(-1)
        self._children = below[torch.sort(self._parents[below], stable=True).indices].view(-1, 2).T.contiguous()

    def up(self, leaf_values: Tensor) -> Tensor:
        num_leaves = leaf_values.shape[0]
        table = leaf_values.new_zeros(self.nodes.numel(), leaf_values.shape[-1])
        table[:num_leaves] = leaf_values
        self.gather(table)
        return table

    def gather(self, table: Tensor) -> None:
        num_leaves = self._level_starts[0]
        for start, stop in pairwise(self._level_starts):
            left, right = self._children[:, start - num_leaves : stop - num_leaves]
            table[start:stop] += table.index_select(0, left).add_(table.index_select(0, right))

    def down(self, node_values: Tensor) -> Tensor:
        for start, stop in reversed(list(pairwise(self._level_starts))[:-1]):
            node_values[start:stop] += node_values.index_select(0, self._parents[start:stop])
        num_leaves = self._level_starts[0]
        above = node_values.index_select(0, self._parents[:num_leaves])
        above[self._lone_leaves] = 0
        return above.add_(node_values[:num_leaves])


def _group_starts(tree_nodes: Tensor) -> list[int]:
    """First tree of each group, and m; a group has one tree, or several with at most `_NODES_PER_GROUP` nodes."""
    ends = tree_nodes[1:].tolist()
    cuts, start = [0], 0
    for tree, end in enumerate(ends, start=1):
        if tree < len(ends) and ends[tree] - start > _NODES_PER_GROUP:
            cuts, start = [*cuts, tree], end
    return [*cuts, len(ends)]


def height_average_weights(layout: TreeLayout) -> Tensor:
    r"""
    Return weights of nodes (`V`, float64) that average the random forest kernel over all heights of its trees.

    With a height d drawn from 0 ... h, the depth of the tree (Algorithm 1 of Davies & Ghahramani 2014), a leaf at depth
    l falls in the cluster of its ancestor at depth :math:`\min(d, l)`. Inner nodes have :math:`w_v = 1 / (h + 1)`,
    leaves :math:`(h - \text{depth}_v + 1) / (h + 1)`. The weights on each path from a root to a leaf sum to 1.
    """
    num_heights = layout.of_node(layout.heights) + 1
    num_cuts = (~layout.is_auxiliary).long()  # heights at which the node is a cluster
    num_cuts[layout.leaf_nodes] = (num_heights - layout.level)[layout.leaf_nodes]
    return num_cuts.double() / num_heights


def softmax_node_weights(layout: TreeLayout, logits: Tensor) -> Tensor:
    r"""
    Return weights of nodes (`V`) that average the random forest kernel over heights drawn from each tree's softmax.

    A tree of height h is cut at depth d with the probability :math:`u_d = e^{l_d} / \sum_{e \le h} e^{l_e}`. Weights
    are :math:`u_{\text{depth}_v}` for inner nodes, and :math:`\sum_{d \ge \text{depth}_v} u_d` for leaves: a tree cut
    below its height is cut into its leaves. Logits of zero give :func:`height_average_weights`. Differentiable.
    """
    # Entry d is the logarithm of the sum over the depths below d, for d = 0, 1, ..., H + 1.
    below = torch.cat([logits.new_full((1,), -torch.inf), logits.logcumsumexp(0)])
    total = layout.of_node(below[layout.heights + 1])
    is_leaf = layout.node_high - layout.node_low == 1
    # The weight of a leaf is 1 less the weights of the inner nodes above it.
    inner = (logits.index_select(0, layout.level) - total).exp().masked_fill(layout.is_auxiliary, 0)
    above = (below.index_select(0, layout.level) - total).clamp_max(0)
    return torch.where(is_leaf, -above.expm1(), inner)


def impurity_decrease_weights(layout: TreeLayout, impurities: Tensor, floor: float) -> Tensor:
    r"""Return weights of nodes (`V`): :math:`\max(i_{\text{parent}} - i, 0) + \text{floor}`, the floor for roots."""
    return (impurities[layout.parent] - impurities).clamp_min(0) + floor
