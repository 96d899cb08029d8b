"""
Sums over trees: of leaves up to every node, and of nodes down to every leaf, for all trees at once.

Trees are taken a few at a time, so that their table stays in the cache. It holds the leaves, in their own order, and
then the inner nodes from the deepest level to the roots: a level goes up as the sum of what its two children hold, and
comes down as an addition of what its parents hold. All of it gathers; scatters run on one core in PyTorch. Sums grow
like the tree, so float32 keeps its digits; the textbook's two cumulative sums over depth-first leaves need float64 and
were measured 10 to 30 times slower.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from gpytorch_partition.clusters.node_weights import TreeLayout


# Nodes whose table is worked on at once: a few megabytes with a dozen columns.
_NODES_AT_ONCE = 2**18


class TreeSums:
    r"""
    The order of binary trees' nodes, and the two sums in it.

    A sum costs :math:`O(V t)` time and workspace for V nodes and t columns. Held are 32 bytes per node.

    :param layout: The trees; every inner node has two children.

    Example:
        >>> from gpytorch_partition.clusters.node_weights import lay_out_trees
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> sums = TreeSums(lay_out_trees(left, right, torch.tensor([0, 5])))
        >>> node_sums = sums.up(torch.tensor([[1.0], [2.0], [4.0]]))
        >>> sums.nodes, node_sums.squeeze(-1)
        (tensor([1, 3, 4, 2, 0]), tensor([1., 2., 4., 6., 7.]))
        >>> sums.down(node_sums).squeeze(-1)
        tensor([ 8., 15., 17.])
    """

    def __init__(self, layout: TreeLayout) -> None:
        self._groups = [_TreeGroup(layout, first, last) for first, last in pairwise(_cuts(layout.tree_nodes))]
        self.nodes = torch.cat([group.nodes for group in self._groups])  # layout number of the node in each place

    def up(self, leaf_values: Tensor) -> Tensor:
        """For every node the sum over its leaves: `V x t` in the order of `nodes` from `p x t`."""
        return torch.cat([group.up(leaf_values[group.leaves]) for group in self._groups])

    def down(self, node_values: Tensor) -> Tensor:
        """For every leaf the sum over the nodes above it and itself: `p x t` from `V x t`, which is overwritten."""
        return torch.cat([group.down(node_values[group.places]) for group in self._groups])

    def gathered(self, node_values: Tensor) -> Tensor:
        """For every node the sum over itself and all nodes below: `V x t` from `V x t`, overwritten, as in `nodes`."""
        for group in self._groups:
            group.gather(node_values[group.places])
        return node_values

    def paths(self, node_values: Tensor) -> Tensor:
        """For every node the sum over itself and all nodes above: `V x t` from `V x t`, overwritten, as in `nodes`."""
        for group in self._groups:
            values = node_values[group.places]
            leaves = group.down(values)
            values[: len(leaves)] = leaves
        return node_values

    def up_and_down(self, leaf_values: Tensor, node_weights: Tensor) -> Tensor:
        """For every leaf the weighted sums of all nodes above it: `p x t` from `p x t` and `V` (in layout order)."""
        result = torch.empty_like(leaf_values)
        for group in self._groups:
            table = group.up(leaf_values[group.leaves])
            result[group.leaves] = group.down(table.mul_(node_weights[group.nodes].unsqueeze(-1)))
        return result

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        """For every node the inner product of its sums of two tables of leaves (`p x t`): `V`, in layout order."""
        products = left.new_empty(self.nodes.numel())
        for group in self._groups:
            sums = group.up(left[group.leaves]).mul_(group.up(right[group.leaves]))
            products[group.nodes] = sums.sum(-1)
        return products


class _TreeGroup:
    """The order of the nodes of some trees."""

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


def _cuts(tree_nodes: Tensor) -> list[int]:
    """Numbers of trees at which a new group begins: as many trees as have so many nodes, but at least one."""
    ends = tree_nodes[1:].tolist()
    cuts, start = [0], 0
    for tree, end in enumerate(ends, start=1):
        if tree < len(ends) and ends[tree] - start > _NODES_AT_ONCE:
            cuts, start = [*cuts, tree], end
    return [*cuts, len(ends)]
