"""The operator S between leaves and new points, which leave Mondrian trees part-way along an edge (their exit)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from gpytorch_partition.clusters.tree_layout import TreeLayout, paths_from_root
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator, as_columns
from gpytorch_partition.operators.cluster_operators.transposed_linear_operator import TransposedLinearOperator


@dataclass(frozen=True, eq=False)
class TreeExits:
    """
    The exits, where points branch off trees.

    :param layout: The trees.
    :param nodes: `E` last nodes that the points of each exit share with any leaf.
    """

    layout: TreeLayout
    nodes: Tensor

    @cached_property
    def places(self) -> Tensor:
        """The positions (`E`) of the nodes in the order of the layout's sums."""
        order = self.layout.sums.nodes
        position = torch.empty_like(order)
        position[order] = torch.arange(order.numel(), device=order.device)
        return position[self.nodes]

    def to(self, device: Any = None, dtype: Any = None) -> TreeExits:
        """Return the exits on another device; a dtype is ignored, since node numbers are integers."""
        return TreeExits(self.layout.to(device), self.nodes.to(device))


class AttachedPathsLinearOperator(ClusterOperator):
    r"""
    The covariance :math:`S_{eb} = \sum_{u > v_e} w_u 1[b \in u] + q_e 1[b \in v_e]` (`E x p`) of exits and leaves.

    Points that leave the trees at an exit e share with a leaf b the weights of the nodes above :math:`v_e`, and the
    part :math:`q_e` of this node's weight that lies before the exit.

    With all weights of the last nodes, :math:`q_e = w_{v_e}`, and a leaf for each exit this is
    :class:`PathSumLinearOperator`. Products cost :math:`O((V + E) t)` for V nodes and t columns, entries O(h).

    :param node_weights: `V` nonnegative weights w.
    :param shares: `E` parts q.
    :param exits: The trees, and the exits from them.

    Example:
        >>> from gpytorch_partition.clusters.tree_layout import lay_out_trees
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> exits = TreeExits(lay_out_trees(left, right, torch.tensor([0, 5])), torch.tensor([2, 4]))
        >>> weights, shares = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), torch.tensor([0.5, 5.0])
        >>> AttachedPathsLinearOperator(weights, shares, exits=exits).to_dense()
        tensor([[1.0000, 1.5000, 1.5000],
                [1.0000, 4.0000, 9.0000]])
    """

    def __init__(self, node_weights: Tensor, shares: Tensor, *, exits: TreeExits) -> None:
        super().__init__(node_weights, shares, exits=exits)
        self.node_weights, self.shares, self.exits = node_weights, shares, exits

    def _size(self) -> torch.Size:
        return torch.Size((self.exits.nodes.numel(), self.exits.layout.num_leaves))

    @property
    def _ordered_weights(self) -> Tensor:
        return self.node_weights[self.exits.layout.sums.nodes].unsqueeze(-1)

    def _matmul(self, rhs: Tensor) -> Tensor:
        sums, places, weights = self.exits.layout.sums, self.exits.places, self._ordered_weights
        inside = sums.up(as_columns(rhs))
        above = sums.paths(weights * inside)
        product = above[places] + (self.shares.unsqueeze(-1) - weights[places]) * inside[places]
        return product.squeeze(-1) if rhs.dim() == 1 else product

    def _t_matmul(self, rhs: Tensor) -> Tensor:
        sums, places, values = self.exits.layout.sums, self.exits.places, as_columns(rhs)
        table = self._ordered_weights * self._below(values)
        table.index_add_(0, places, self.shares.unsqueeze(-1) * values)
        product = sums.down(table)
        return product.squeeze(-1) if rhs.dim() == 1 else product

    def _below(self, values: Tensor) -> Tensor:
        """For every node the sum of the values of the exits at nodes strictly below it (`V x t` from `E x t`)."""
        own = values.new_zeros(self.exits.layout.num_nodes, values.shape[-1])
        own.index_add_(0, self.exits.places, values)
        return self.exits.layout.sums.gathered(own.clone()) - own

    def root_rows(self, clusters: Tensor) -> csr_matrix:
        r"""Return rows of the root, as for leaves, but :math:`q_e / \sqrt{w_v}` at the last node, for its part q."""
        starts, nodes = paths_from_root(self.exits.layout, self.exits.nodes[clusters])
        values = self.node_weights.detach().double().sqrt()[nodes]
        last = starts[1:] - 1
        values[last] = (self.shares.detach().double()[clusters] / values[last]).nan_to_num()  # 0 / 0: there is no part
        parts = tuple(part.cpu().numpy() for part in (values, nodes, starts))
        return csr_matrix(parts, shape=(len(clusters), self.exits.layout.num_nodes))

    def _transpose_nonbatch(self) -> ClusterOperator:
        return _LeavesAndExitsLinearOperator(self)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        row_index, col_index = torch.broadcast_tensors(row_index.long(), col_index.long())
        layout, node = self.exits.layout, self.exits.nodes[row_index]
        weight = self.shares[row_index]
        entries = torch.zeros(node.shape, dtype=self.dtype, device=self.device)
        below_root = torch.ones_like(node, dtype=torch.bool)
        while bool(below_root.any()):
            shared = below_root & (layout.node_low[node] <= col_index) & (col_index < layout.node_high[node])
            entries = entries + torch.where(shared, weight, 0)
            below_root = layout.parent[node] != node
            node = layout.parent[node]
            weight = self.node_weights[node]
        return entries

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        sums = self.exits.layout.sums
        inside = sums.up(as_columns(right_vecs))
        by_node = torch.empty_like(self.node_weights)
        by_node[sums.nodes] = (self._below(as_columns(left_vecs)) * inside).sum(-1)
        return by_node, (as_columns(left_vecs) * inside[self.exits.places]).sum(-1)


class _LeavesAndExitsLinearOperator(TransposedLinearOperator, ClusterOperator):
    """The transpose (`p x E`): covariances of the leaves with the exits."""
