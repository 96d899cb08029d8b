"""
Weights of tree nodes: how much each node adds to the covariance of the points below it.

The depth of a node is its level, and auxiliary nodes (:class:`~gpytorch_partition.clusters.tree_layout.TreeLayout`)
have the weight 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpytorch_partition.clusters.tree_layout import TreeLayout


def height_average_weights(layout: TreeLayout) -> Tensor:
    r"""
    Return weights of nodes that average the random forest kernel over all heights at which its trees can be cut.

    Algorithm 1 of Davies & Ghahramani (2014) cuts each tree at a height d drawn from 0 ... h, with h the depth of that
    tree. A leaf at depth l falls in the cluster of its ancestor at depth :math:`\min(d, l)`. The exact expectation is
    therefore a sum over the nodes above both points with

    .. math:: w_v = \frac{1}{h + 1} \text{ (inner nodes)}, \qquad w_v = \frac{h - \text{depth}_v + 1}{h + 1}
        \text{ (leaves)}.

    The weights on each path from a root to a leaf sum to 1. :math:`O(V)` time and memory.

    :param layout: The trees.
    :return: `V` weights (float64).

    Example:
        >>> from gpytorch_partition.clusters.tree_layout import lay_out_trees
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> height_average_weights(lay_out_trees(left, right, torch.tensor([0, 5])))
        tensor([0.3333, 0.6667, 0.3333, 0.3333, 0.3333], dtype=torch.float64)
    """
    num_heights = layout.of_node(layout.heights) + 1
    num_cuts = (~layout.is_auxiliary).long()  # heights at which the node is a cluster
    num_cuts[layout.leaf_nodes] = (num_heights - layout.level)[layout.leaf_nodes]
    return num_cuts.double() / num_heights


def level_node_weights(layout: TreeLayout, level_weights: Tensor) -> Tensor:
    r"""
    Return node weights of the weighted average, over the depths d, of the kernels of trees cut at depth d.

    With weights :math:`u_0, \ldots, u_H` of the depths and a leaf at depth l in the cluster of its ancestor at depth
    :math:`\min(d, l)`, the average :math:`\sum_d u_d K_d` is a sum over the nodes above both points with

    .. math:: w_v = u_{\text{depth}_v} \text{ (inner nodes)}, \qquad w_v = \sum_{d \ge \text{depth}_v} u_d
        \text{ (leaves)}.

    A tree cut below its height is cut into its leaves. :math:`O(V)` time and memory; differentiable.

    :param layout: The trees.
    :param level_weights: `H + 1` weights of the depths 0 ... H, H the height of the tallest tree.
    :return: `V` weights, in the dtype of `level_weights`.

    Example:
        >>> from gpytorch_partition.clusters.tree_layout import lay_out_trees
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> level_node_weights(lay_out_trees(left, right, torch.tensor([0, 5])), torch.tensor([0.5, 0.25, 0.25]))
        tensor([0.5000, 0.5000, 0.2500, 0.2500, 0.2500])
    """
    is_leaf = layout.node_high - layout.node_low == 1
    tails = level_weights.flip(0).cumsum(0).flip(0)
    inner = level_weights[layout.level].masked_fill(layout.is_auxiliary, 0)
    return torch.where(is_leaf, tails[layout.level], inner)


def softmax_node_weights(layout: TreeLayout, logits: Tensor) -> Tensor:
    r"""
    Return weights of nodes that average the random forest kernel over heights drawn from a softmax. The softmax is
    restricted in each tree to the tree's own heights.

    A tree of height h is cut at depth d with the probability :math:`u_d = e^{l_d} / \sum_{e \le h} e^{l_e}`, so

    .. math:: w_v = u_{\text{depth}_v} \text{ (inner nodes)}, \qquad w_v = \sum_{d = \text{depth}_v}^h u_d
        \text{ (leaves)}.

    The weights on each path from a root to a leaf sum to 1. Logits of zero give :func:`height_average_weights`, the
    uniform heights of algorithm 1 of Davies & Ghahramani (2014). :math:`O(V)` time and memory; differentiable, and safe
    for logits of any size.

    :param layout: The trees.
    :param logits: `H + 1` logits l of the depths 0 ... H, H the height of the tallest tree.
    :return: `V` weights, in the dtype of `logits`.

    Example:
        >>> from gpytorch_partition.clusters.tree_layout import lay_out_trees
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> layout = lay_out_trees(left, right, torch.tensor([0, 5]))
        >>> softmax_node_weights(layout, torch.tensor([0.5, 0.25, 0.25]).log())
        tensor([0.5000, 0.5000, 0.2500, 0.2500, 0.2500])
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
    r"""
    Return weights of nodes by the decrease of impurity from their parents:

    .. math:: w_v = \max(i_{\text{parent}(v)} - i_v, 0) + \text{floor}.

    A root has no parent, so its weight is the floor, which stands for a constant function. :math:`O(V)` time and
    memory.

    :param layout: The trees.
    :param impurities: `V` impurities i, as shares of the root's.
    :param floor: The weight of nodes without a decrease.
    :return: `V` weights, in the dtype of `impurities`.

    Example:
        >>> from gpytorch_partition.clusters.tree_layout import lay_out_trees
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> layout = lay_out_trees(left, right, torch.tensor([0, 5]))
        >>> impurity_decrease_weights(layout, torch.tensor([1.0, 0.25, 0.5, 0.0, 0.75]), floor=0.125)
        tensor([0.1250, 0.8750, 0.6250, 0.6250, 0.1250])
    """
    return (impurities[layout.parent] - impurities).clamp_min(0) + floor


def height_average_levels(layout: TreeLayout) -> Tensor:
    r"""
    Return the weights of depths, shared by all trees, that come nearest to :func:`height_average_weights`. They are the
    probabilities of a depth drawn uniformly from 0 ... h, with h the height of a tree drawn at random.

    The kernel is unchanged if all trees have the same height; otherwise tall trees are cut a little nearer to their
    roots.

    :param layout: The trees.
    :return: `H + 1` weights (float64), H the height of the tallest tree.

    Example:
        >>> from gpytorch_partition.clusters.tree_layout import lay_out_trees
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> height_average_levels(lay_out_trees(left, right, torch.tensor([0, 5])))
        tensor([0.3333, 0.3333, 0.3333], dtype=torch.float64)
    """
    depths = torch.arange(int(layout.heights.max()) + 1, device=layout.heights.device).unsqueeze(-1)
    return ((depths <= layout.heights) / (layout.heights + 1).double()).mean(-1)
