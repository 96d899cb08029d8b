"""The operators S of trees: node weights along paths that leaves share, or that leaves share with points on edges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from linear_operator.operators import LinearOperator
from scipy.sparse import csr_matrix
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import Movable
from gpytorch_partition.clusters.incidence import Incidence, LinearProduct
from gpytorch_partition.clusters.tree_layout import TreeLayout, TreeSums, paths_from_root
from gpytorch_partition.operators.cluster_operators.cluster_operator import (
    ClusterOperator,
    TransposedLinearOperator,
    as_columns,
    of_columns,
)
from gpytorch_partition.operators.cluster_operators.shared_paths import is_cheaper_than_product, shared_path_sums


class PathSumLinearOperator(ClusterOperator):
    r"""
    Multiply by :math:`S = \sum_v w_v 1_v 1_v^\top` (`p x p`): two leaves share the weights of all nodes above both.

    :class:`~gpytorch_partition.RandomForestKernel` uses it. Construct it yourself for other trees, or weights of nodes.

    With the weights of :func:`~gpytorch_partition.clusters.tree_layout.height_average_weights` this is the exact
    average over all heights of the random forest kernel (Davies & Ghahramani 2014, algorithm 1).

    :param node_weights: `V` nonnegative weights :math:`w_v`, trees one after another.
    :param layout: The trees.

    Example:
        >>> from gpytorch_partition.clusters.tree_layout import height_average_weights, lay_out_trees
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> layout = lay_out_trees(left, right, torch.tensor([0, 5]))
        >>> PathSumLinearOperator(3 * height_average_weights(layout), layout=layout).to_dense()
        tensor([[3., 1., 1.],
                [1., 3., 2.],
                [1., 2., 3.]], dtype=torch.float64)
    """

    reaches_nearest = True

    def __init__(self, node_weights: Tensor, *, layout: TreeLayout) -> None:
        super().__init__(node_weights, layout=layout)
        self.node_weights = node_weights
        self.layout = layout

    def root(self) -> NodeLinearOperator:
        return NodeLinearOperator(self.node_weights.sqrt(), layout=self.layout)

    def root_rows(self, clusters: Tensor) -> csr_matrix:
        starts, nodes = paths_from_root(self.layout, self.layout.leaf_nodes[clusters])
        values = self.node_weights.detach().double().sqrt()[nodes]
        parts = tuple(part.cpu().numpy() for part in (values, nodes, starts))
        return csr_matrix(parts, shape=(len(clusters), self.num_nodes))

    @property
    def structure(self) -> tuple[Any, ...]:
        return (type(self), self.layout)

    @property
    def num_nodes(self) -> int:
        return self.layout.num_nodes

    def dense_block(self, left: Incidence, right: Incidence) -> Tensor | None:
        if not is_cheaper_than_product(left, right, self.layout):
            return None
        return shared_path_sums(left, right, self.layout, self.node_weights)

    def _size(self) -> torch.Size:
        return torch.Size((self.layout.num_leaves, self.layout.num_leaves))

    @of_columns
    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.layout.sums.up_and_down(rhs, self.node_weights)

    def _diagonal(self) -> Tensor:
        return LinearProduct.apply(self.layout, _path_sums, _leaf_sums, self.node_weights.unsqueeze(-1)).squeeze(-1)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        shared = self.layout.shared_nodes(*torch.broadcast_tensors(row_index.long(), col_index.long()))
        return torch.where(shared < 0, 0, node_path_sums(self.layout, self.node_weights)[shared])

    def grams(self, leaves: Tensor) -> Tensor:
        """Return sums over m trees of the entries between k rows, for n sets of rows (`n x k x k` from `n x k x m`)."""
        above = node_path_sums(self.layout, self.node_weights)
        num_sets, size = leaves.shape[:2]
        numbers = torch.arange(size, device=above.device)
        first, second = torch.tril_indices(size, size, device=above.device)
        total = torch.zeros(len(first), num_sets, dtype=torch.float64, device=above.device)
        for tree in leaves.unbind(-1):
            ordered, order = tree.sort(-1)
            entries = _entries_in_order(self.layout, above, ordered.long().T.contiguous())
            rank = torch.empty_like(order).scatter_(-1, order, numbers.expand_as(order)).T.contiguous()
            ranks = rank.index_select(0, first), rank.index_select(0, second)
            places = torch.maximum(*ranks).mul_(size).add_(torch.minimum(*ranks))
            total += entries.flatten(0, 1).gather(0, places)
        grams = total.new_empty(num_sets, size, size)
        grams[:, first, second] = grams[:, second, first] = total.T
        return grams

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        if not self.node_weights.requires_grad:
            return (None,)
        return (self.layout.sums.inner_products(left_vecs, right_vecs),)


def _entries_in_order(layout: TreeLayout, above: Tensor, leaves: Tensor) -> Tensor:
    """Return lower triangles of entries (`k x k x n`) between ascending leaves (`k x n`): the least of neighbours'."""
    own, between = above[layout.leaf_nodes[leaves]], above[layout.shared_nodes(leaves[:-1], leaves[1:])]
    entries = above.new_empty(len(leaves), *leaves.shape)
    entries[0, 0] = own[0]
    for last in range(1, len(leaves)):
        entries[last, last], entries[last, last - 1] = own[last], between[last - 1]
        torch.minimum(entries[last - 1, : last - 1], between[last - 1], out=entries[last, : last - 1])
    return entries


def node_path_sums(layout: TreeLayout, node_weights: Tensor) -> Tensor:
    """Return the sum of the weights (`V`) along the path to every node, its own included."""
    return LinearProduct.apply(layout.sums, _sums_above, _sums_below, node_weights.unsqueeze(-1)).squeeze(-1)


def _sums_above(sums: TreeSums, values: Tensor) -> Tensor:
    return torch.empty_like(values).index_copy_(0, sums.nodes, sums.paths(values[sums.nodes]))


def _sums_below(sums: TreeSums, values: Tensor) -> Tensor:
    return torch.empty_like(values).index_copy_(0, sums.nodes, sums.gathered(values[sums.nodes]))


def _path_sums(layout: TreeLayout, node_values: Tensor) -> Tensor:
    return layout.sums.down(node_values[layout.sums.nodes])


def _leaf_sums(layout: TreeLayout, leaf_values: Tensor) -> Tensor:
    """The sums of the values (`p x t`) of the leaves below every node (`V x t`)."""
    node_sums = leaf_values.new_empty(layout.num_nodes, leaf_values.shape[-1])
    node_sums[layout.sums.nodes] = layout.sums.up(leaf_values)
    return node_sums


class NodeLinearOperator(LinearOperator):
    """Multiply by :math:`F = [f_v 1_v]_v` (`p x V`): the indicator of the leaves below each node, times its value."""

    def __init__(self, node_values: Tensor, *, layout: TreeLayout) -> None:
        super().__init__(node_values, layout=layout)
        self.node_values = node_values
        self.layout = layout

    def _size(self) -> torch.Size:
        return torch.Size((self.layout.num_leaves, self.layout.num_nodes))

    @of_columns
    def _matmul(self, rhs: Tensor) -> Tensor:
        return _path_sums(self.layout, self.node_values.unsqueeze(-1) * rhs)

    @of_columns
    def _t_matmul(self, rhs: Tensor) -> Tensor:
        return self.node_values.unsqueeze(-1) * _leaf_sums(self.layout, rhs)

    def _transpose_nonbatch(self) -> LinearOperator:
        return TransposedLinearOperator(self)


@dataclass(frozen=True, eq=False)
class TreeExits(Movable):
    """Hold the exits, where points branch off trees: the last nodes (`E`) that they share with any leaf."""

    layout: TreeLayout
    nodes: Tensor

    @cached_property
    def places(self) -> Tensor:
        """Return the positions (`E`) of the exits' nodes in the order of `layout.sums.nodes`."""
        order = self.layout.sums.nodes
        position = torch.empty_like(order)
        position[order] = torch.arange(order.numel(), device=order.device)
        return position[self.nodes]

    @property
    def device(self) -> torch.device:
        return self.nodes.device

    def _moved(self, device: Any) -> TreeExits:
        return TreeExits(self.layout.to(device), self.nodes.to(device))


class AttachedPathsLinearOperator(ClusterOperator):
    r"""
    Multiply by the covariance of exits and leaves, :math:`S_{eb} = \sum_{u > v_e} w_u 1[b \in u] + q_e 1[b \in v_e]`.

    Points that leave the trees at an exit e share with a leaf b the weights of the nodes above :math:`v_e`, and the
    part :math:`q_e` of this node's weight that lies before the exit.
    """

    def __init__(self, node_weights: Tensor, shares: Tensor, *, exits: TreeExits) -> None:
        super().__init__(node_weights, shares, exits=exits)
        self.node_weights, self.shares, self.exits = node_weights, shares, exits

    def _size(self) -> torch.Size:
        return torch.Size((self.exits.nodes.numel(), self.exits.layout.num_leaves))

    @property
    def _ordered_weights(self) -> Tensor:
        return self.node_weights[self.exits.layout.sums.nodes].unsqueeze(-1)

    @of_columns
    def _matmul(self, rhs: Tensor) -> Tensor:
        sums, places, weights = self.exits.layout.sums, self.exits.places, self._ordered_weights
        inside = sums.up(rhs)
        above = sums.paths(weights * inside)
        return above[places] + (self.shares.unsqueeze(-1) - weights[places]) * inside[places]

    @of_columns
    def _t_matmul(self, rhs: Tensor) -> Tensor:
        table = self._ordered_weights * self._below(rhs)
        table.index_add_(0, self.exits.places, self.shares.unsqueeze(-1) * rhs)
        return self.exits.layout.sums.down(table)

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
        rows, leaves = torch.broadcast_tensors(row_index.long(), col_index.long())
        layout, nodes = self.exits.layout, self.exits.nodes[rows]
        is_inside = (layout.node_low[nodes] <= leaves) & (leaves < layout.node_high[nodes])
        above = node_path_sums(layout, self.node_weights)
        shared = layout.shared_nodes(layout.node_low[nodes], leaves)
        apart = torch.where(shared < 0, 0, above[shared])
        return torch.where(is_inside, above[nodes] - self.node_weights[nodes] + self.shares[rows], apart)

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        sums = self.exits.layout.sums
        inside = sums.up(as_columns(right_vecs))
        by_node = torch.empty_like(self.node_weights)
        by_node[sums.nodes] = (self._below(as_columns(left_vecs)) * inside).sum(-1)
        return by_node, (as_columns(left_vecs) * inside[self.exits.places]).sum(-1)


class _LeavesAndExitsLinearOperator(TransposedLinearOperator, ClusterOperator):
    """The transpose (`p x E`)."""
