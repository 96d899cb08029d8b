"""The operator S of trees, which sums node weights along the paths that leaves share, and its exact root."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator.operators import LinearOperator
from scipy.sparse import csr_matrix
from torch import Tensor

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.clusters.tree_layout import TreeLayout, paths_from_root
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator, as_columns
from gpytorch_partition.operators.cluster_operators.shared_paths import is_cheaper_than_product, shared_path_sums
from gpytorch_partition.operators.cluster_operators.transposed_linear_operator import TransposedLinearOperator


class PathSumLinearOperator(ClusterOperator):
    r"""
    The covariance :math:`S = \sum_v w_v 1_v 1_v^\top` (`p x p`): two leaves of a tree share the weights of all nodes
    above both.

    :class:`~gpytorch_partition.RandomForestKernel` uses it where several levels of its trees count (`heights` of
    `"all"`, `"learned"` or `"impurity"`). Construct it yourself for other trees, or other weights of their nodes.

    With the weights of :func:`~gpytorch_partition.clusters.tree_layout.height_average_weights` this is the exact
    average over all heights of the random forest kernel (Davies & Ghahramani 2014, algorithm 1):
    :math:`S_{ab} = (\mathrm{depth}(\mathrm{lca}(a, b)) + 1) / (h + 1)`.

    A product costs :math:`O(V t)` time and workspace for V nodes and t columns: node sums on the way up, path sums on
    the way down. An entry takes a climb from its row's leaf to the root: :math:`O(h)`, h the height of the tree. The
    weights and the layout's sums are held.

    :param node_weights: `V` nonnegative weights :math:`w_v`, trees one after another.
    :param layout: The trees.

    Example:
        >>> from gpytorch_partition.clusters.tree_layout import height_average_weights
        >>> from gpytorch_partition.clusters.tree_layout import lay_out_trees
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> layout = lay_out_trees(left, right, torch.tensor([0, 5]))
        >>> PathSumLinearOperator(3 * height_average_weights(layout), layout=layout).to_dense()
        tensor([[3., 1., 1.],
                [1., 3., 2.],
                [1., 2., 3.]], dtype=torch.float64)
    """

    def __init__(self, node_weights: Tensor, *, layout: TreeLayout) -> None:
        super().__init__(node_weights, layout=layout)
        self.node_weights = node_weights
        self.layout = layout

    def root(self) -> NodeLinearOperator:
        r"""Return the exact root :math:`F` with :math:`S = F F^\top` (`p x V`)."""
        return NodeLinearOperator(self.node_weights.sqrt(), layout=self.layout)

    def root_rows(self, clusters: Tensor) -> csr_matrix:
        r"""Return rows of the root, with :math:`\sqrt{w_v}` for each node v on the path from the root to the leaf."""
        starts, nodes = paths_from_root(self.layout, self.layout.leaf_nodes[clusters])
        values = self.node_weights.detach().double().sqrt()[nodes]
        parts = tuple(part.cpu().numpy() for part in (values, nodes, starts))
        return csr_matrix(parts, shape=(len(clusters), self.num_nodes))

    @property
    def structure(self) -> tuple[Any, ...]:
        """The class and the layout."""
        return (type(self), self.layout)

    @property
    def num_nodes(self) -> int:
        """The number V of nodes of all trees."""
        return self.layout.num_nodes

    def dense_block(self, left: Incidence, right: Incidence) -> Tensor | None:
        r"""Return :math:`Z S Z'^\top` from pairs of rows in small nodes and tables of large ones, if cheaper."""
        if not is_cheaper_than_product(left, right, self.layout):
            return None
        return shared_path_sums(left, right, self.layout, self.node_weights)

    def _size(self) -> torch.Size:
        return torch.Size((self.layout.num_leaves, self.layout.num_leaves))

    def _transpose_nonbatch(self) -> LinearOperator:
        return self

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.layout.sums.up_and_down(as_columns(rhs), self.node_weights).view(rhs.shape)

    def _diagonal(self) -> Tensor:
        return _PathSums.apply(self.layout, self.node_weights)

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
        return (self.layout.sums.inner_products(left_vecs, right_vecs),)


class _PathSums(torch.autograd.Function):
    """The sum of the weights (`V`) along the path of every leaf (`p`); the derivative is a sum up the trees."""

    @staticmethod
    def forward(ctx: Any, layout: TreeLayout, node_weights: Tensor) -> Tensor:
        ctx.layout = layout
        return layout.sums.down(node_weights[layout.sums.nodes].unsqueeze(-1)).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        sums = ctx.layout.sums
        node_sums = gradient.new_empty(sums.nodes.numel())
        node_sums[sums.nodes] = sums.up(gradient.unsqueeze(-1)).squeeze(-1)
        return None, node_sums


class NodeLinearOperator(LinearOperator):
    r"""
    The matrix :math:`F = [f_v 1_v]_v` (`p x V`): the indicators of the leaves below each node, times the node's value.

    A product, also with the transpose, costs :math:`O(V t)` time and workspace for t columns.

    :param node_values: `V` values :math:`f_v`.
    :param layout: The trees.

    Example:
        >>> from gpytorch_partition.clusters.tree_layout import lay_out_trees
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> layout = lay_out_trees(left, right, torch.tensor([0, 5]))
        >>> NodeLinearOperator(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), layout=layout).to_dense()
        tensor([[1., 2., 0., 0., 0.],
                [1., 0., 3., 4., 0.],
                [1., 0., 3., 0., 5.]])
    """

    def __init__(self, node_values: Tensor, *, layout: TreeLayout) -> None:
        super().__init__(node_values, layout=layout)
        self.node_values = node_values
        self.layout = layout

    def _size(self) -> torch.Size:
        return torch.Size((self.layout.num_leaves, self.layout.num_nodes))

    def _matmul(self, rhs: Tensor) -> Tensor:
        sums, values = self.layout.sums, self.node_values.unsqueeze(-1) * as_columns(rhs)
        result = sums.down(values[sums.nodes])
        return result.squeeze(-1) if rhs.dim() == 1 else result

    def _t_matmul(self, rhs: Tensor) -> Tensor:
        sums, values = self.layout.sums, self.node_values.unsqueeze(-1)
        result = torch.empty(self.layout.num_nodes, as_columns(rhs).shape[-1], dtype=rhs.dtype, device=rhs.device)
        result[sums.nodes] = sums.up(as_columns(rhs))
        result = values * result
        return result.squeeze(-1) if rhs.dim() == 1 else result

    def _transpose_nonbatch(self) -> LinearOperator:
        return TransposedLinearOperator(self)
