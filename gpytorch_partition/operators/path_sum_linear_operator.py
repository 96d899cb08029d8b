"""
Trees in cluster space: sums over each node's leaves, and sums along each leaf's path.

Leaves are numbered depth-first, so that a node is an interval of leaves and both sums are differences of one
cumulative sum. Cumulative sums run in float64, because small nodes are differences of large sums, over a few trees
at a time, so that the tables stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

if TYPE_CHECKING:
    from gpytorch_partition.partitions.levels import TreeLayout

_TABLE_ENTRIES = 2**19


class PathSumLinearOperator(LinearOperator):
    r"""
    :math:`S = \sum_v w_v 1_v 1_v^\top` (`p x p`): two leaves of a tree share the weights of the nodes above both.

    With the weights of :func:`~gpytorch_partition.partitions.levels.height_average_weights` this is the exact
    average over all heights of the random forest kernel (Davies & Ghahramani 2014, algorithm 1):
    :math:`S_{ab} = (\mathrm{depth}(\mathrm{lca}(a, b)) + 1) / (h + 1)`.

    A product costs :math:`O(V t)` for V nodes and t columns: node sums on the way up, path sums on the way down.
    An entry is found by climbing from its row's leaf to the root.

    :param node_weights: `V` nonnegative weights :math:`w_v`, trees one after another.
    :param layout: The trees.
    """

    def __init__(self, node_weights: Tensor, *, layout: TreeLayout) -> None:
        super().__init__(node_weights, layout=layout)
        self.node_weights = node_weights
        self.layout = layout

    def root(self) -> NodeLinearOperator:
        r"""The exact root :math:`F` with :math:`S = F F^\top` (`p x V`)."""
        return NodeLinearOperator(self.node_weights.sqrt(), layout=self.layout)

    def _size(self) -> torch.Size:
        return torch.Size((self.layout.num_leaves, self.layout.num_leaves))

    def _transpose_nonbatch(self) -> LinearOperator:
        return self

    def _matmul(self, rhs: Tensor) -> Tensor:
        sums = node_sums(rhs, self.layout)
        return path_sums(_times_columns(self.node_weights, sums), self.layout)

    def _diagonal(self) -> Tensor:
        return path_sums(self.node_weights, self.layout)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        row_index, col_index = torch.broadcast_tensors(row_index.long(), col_index.long())
        layout, node = self.layout, self.layout.leaf_nodes[row_index]
        entries = torch.zeros(node.shape, dtype=self.dtype, device=self.device)
        below_root = torch.ones_like(node, dtype=torch.bool)
        while bool(below_root.any()):
            shared = below_root & (layout.node_low[node] <= col_index) & (col_index < layout.node_high[node])
            entries = entries + torch.where(shared, self.node_weights[node], 0)
            below_root = layout.parent[node] != node
            node = layout.parent[node]
        return entries

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        if not self.node_weights.requires_grad:
            return (None,)
        return ((node_sums(left_vecs, self.layout) * node_sums(right_vecs, self.layout)).sum(-1),)


class NodeLinearOperator(LinearOperator):
    r"""
    :math:`F = [f_v 1_v]_v` (`p x V`): which leaves lie below each node, times the node's value.

    :param node_values: `V` values :math:`f_v`.
    :param layout: The trees.
    """

    def __init__(self, node_values: Tensor, *, layout: TreeLayout) -> None:
        super().__init__(node_values, layout=layout)
        self.node_values = node_values
        self.layout = layout

    def _size(self) -> torch.Size:
        return torch.Size((self.layout.num_leaves, self.layout.num_nodes))

    def _matmul(self, rhs: Tensor) -> Tensor:
        return path_sums(_times_columns(self.node_values, rhs), self.layout)

    def _t_matmul(self, rhs: Tensor) -> Tensor:
        return _times_columns(self.node_values, node_sums(rhs, self.layout))

    def _transpose_nonbatch(self) -> LinearOperator:
        return _NodeTransposeLinearOperator(self)


class _NodeTransposeLinearOperator(LinearOperator):
    """The transpose of a :class:`NodeLinearOperator`."""

    def __init__(self, base: NodeLinearOperator) -> None:
        super().__init__(base)
        self.base = base

    def _size(self) -> torch.Size:
        return torch.Size(self.base.shape[::-1])

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.base._t_matmul(rhs)

    def _transpose_nonbatch(self) -> LinearOperator:
        return self.base


def node_sums(leaf_values: Tensor, layout: TreeLayout) -> Tensor:
    r"""
    For every node the sum over its leaves, `V x t` from `p x t` (or `V` from `p`), in :math:`O((p + V) t)`.
    """

    def of_trees(values: Tensor, nodes: slice, leaves: slice) -> Tensor:
        running = torch.cat([values.new_zeros(1, values.shape[-1]), values.cumsum(0)])
        return running[layout.node_high[nodes] - leaves.start] - running[layout.node_low[nodes] - leaves.start]

    return _by_trees(of_trees, leaf_values, layout, of_leaves=True)


def path_sums(node_values: Tensor, layout: TreeLayout) -> Tensor:
    r"""
    For every leaf the sum over the nodes above it, `p x t` from `V x t` (or `p` from `V`), in :math:`O((p + V) t)`:
    a node's value enters at the low end of its interval and leaves at the high end.
    """

    def of_trees(values: Tensor, nodes: slice, leaves: slice) -> Tensor:
        steps = values.new_zeros(leaves.stop - leaves.start + 1, values.shape[-1])
        steps = steps.index_add(0, layout.node_low[nodes] - leaves.start, values)
        steps = steps.index_add(0, layout.node_high[nodes] - leaves.start, values, alpha=-1)
        return steps[:-1].cumsum(0)

    return _by_trees(of_trees, node_values, layout, of_leaves=False)


def _by_trees(
    function: Callable[[Tensor, slice, slice], Tensor], values: Tensor, layout: TreeLayout, of_leaves: bool
) -> Tensor:
    """Apply a function of float64 tables to groups of trees; a vector is a table of one column."""
    table = values.unsqueeze(-1) if values.dim() == 1 else values
    results = [
        function(table[leaves if of_leaves else nodes].double(), nodes, leaves).to(values.dtype)
        for nodes, leaves in _groups(layout, table.shape[-1])
    ]
    result = torch.cat(results)
    return result.squeeze(-1) if values.dim() == 1 else result


def _groups(layout: TreeLayout, num_columns: int) -> Iterator[tuple[slice, slice]]:
    """The nodes and the leaves of runs of trees whose tables stay small."""
    nodes, leaves = layout.tree_nodes.tolist(), layout.tree_leaves.tolist()
    start = 0
    for stop in range(1, layout.num_trees + 1):
        is_last = stop == layout.num_trees
        if is_last or (nodes[stop + 1] - nodes[start]) * num_columns > _TABLE_ENTRIES:
            yield slice(nodes[start], nodes[stop]), slice(leaves[start], leaves[stop])
            start = stop


def _times_columns(values: Tensor, table: Tensor) -> Tensor:
    return values * table if table.dim() == 1 else values.unsqueeze(-1) * table
