"""Kernels of divisions that the data hold: columns of categories, hierarchies, and sets that contain items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import ClusterSizes
from gpytorch_partition.inputs.kernel_columns import Columns
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.kernels.partition_mixture_kernel import PartitionMixtureKernel
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator
from gpytorch_partition.operators.cluster_operators.membership_linear_operator import MembershipLinearOperator
from gpytorch_partition.partitions.hashed_cells import GroupPartition
from gpytorch_partition.partitions.membership_partition import MembershipPartition


class GroupKernel(PartitionMixtureKernel):
    r"""
    Compare points by the weight of the levels in which they share a group (Davies & Ghahramani 2014, section 4.2).

    Use it for columns that are categories or a hierarchy (region, town, shop), in a sum with kernels of the other
    columns: `ScaleKernel(GroupKernel((0, 1, 2), nested=True)) + ScaleKernel(RandomForestKernel(x, y))`.

    .. math:: k(x, x') = \sum_l w_l\, 1[x \text{ and } x' \text{ are in the same group of level } l],
        \qquad w_l > 0, \quad \sum_l w_l = 1

    With `nested=True` columns are the levels of a hierarchy. Two points are in the same group of a level if they agree
    in its column and in all columns before it, so equal numbers in two regions are two towns. Otherwise every column is
    a level of its own (carrier, weekday).

    A group without training rows has only the effects of the levels above it: new shops are predicted from their towns.

    A product costs :math:`O(N L)` for L levels, an exact training step :math:`O(N L + p^3)` for p groups with rows. If
    they are more than half of the rows or `max_cholesky_size`, train weights on some 2,000 rows, and give them to a
    kernel with `learn_weights=False`, which is fitted in one pass.

    :param columns: Numbers of the columns of whole numbers, from 0; with `nested`, from the coarsest to the finest.
    :param nested: Whether columns are the levels of a hierarchy. (Default: False.)
    :param weights: Initial weights of the levels, :attr:`mixture_weights`. (Default: all the same.)
    :param learn_weights: Whether weights are trained. (Default: True.)
    :param batch_shape: As in :class:`~gpytorch_partition.PartitionKernel`.
    :raises ValueError: If columns are not distinct numbers from 0, or weights not one positive number for each; in
        calls, for values in `columns` that are not whole numbers.

    Example:
        >>> places = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 1.0]])  # region, town
        >>> GroupKernel((0, 1), nested=True)(places).to_dense().detach()
        tensor([[1.0000, 0.5000, 0.0000, 0.5000],
                [0.5000, 1.0000, 0.0000, 1.0000],
                [0.0000, 0.0000, 1.0000, 0.0000],
                [0.5000, 1.0000, 0.0000, 1.0000]])
        >>> GroupKernel((0, 1))(places).to_dense().detach()[1]
        tensor([0.5000, 1.0000, 0.5000, 1.0000])
    """

    _instead_of_lengthscale = "points of a group look alike, and mixture_weights say how much each level counts"

    def __init__(
        self,
        columns: Sequence[int],
        *,
        nested: bool = False,
        weights: Sequence[float] | Tensor | None = None,
        learn_weights: bool = True,
        batch_shape: torch.Size | tuple[int, ...] = (),
    ) -> None:
        chosen = tuple(Columns(() if columns is None else columns).numbers.tolist())  # None is no choice here
        levels = [chosen[: level + 1] if nested else (column,) for level, column in enumerate(chosen)]
        kernels = [PartitionKernel(GroupPartition(), active_dims=level) for level in levels]
        super().__init__(kernels, weights, learn_weights=learn_weights, batch_shape=batch_shape)


class MembershipKernel(PartitionKernel):
    r"""
    Compare items by the weight of the sets that hold both or neither of them (Davies & Ghahramani 2014, section 4.2).

    Use it for points that are members of sets: users by films, words by documents.

    .. math:: k(i, j) = \sum_s w_s\, (b_{is} b_{js} + (1 - b_{is}) (1 - b_{js})), \qquad \sum_s w_s = 1

    with :math:`b_{is} = 1` where item i is in set s. Points are numbers of items (`N x 1`), rows of the matrix B.

    **Where sets are small**, two items are both outside most sets, and k is nearly 1 for all pairs; fits then need
    outputscales of hundreds and float64. `members_only=True` leaves out the sets that contain neither item,

    .. math:: k(i, j) = \sum_s w_s b_{is} b_{js} \Big/ \sqrt{\textstyle\sum_s w_s b_{is} \sum_s w_s b_{js}},

    the cosine of two items. Rare sets count more with `set_weights` of one over their sizes.

    A product costs :math:`O(E)` for E memberships, 12 bytes each.

    Parameters and errors are those of :class:`~gpytorch_partition.partitions.MembershipPartition`; `active_dims` has
    the number of the column that holds the items.

    Example:
        >>> from scipy.sparse import csr_array
        >>> viewed = csr_array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1]])  # three users, four films
        >>> users = torch.tensor([[0.0], [1.0], [2.0]])
        >>> MembershipKernel(viewed)(users).to_dense()
        tensor([[1.0000, 0.7500, 0.0000],
                [0.7500, 1.0000, 0.2500],
                [0.0000, 0.2500, 1.0000]])
        >>> MembershipKernel(viewed, members_only=True)(users[:1], users).to_dense()
        tensor([[1.0000, 0.7071, 0.0000]])
    """

    partition: MembershipPartition
    _instead_of_lengthscale = "the sets that it was given say which items are alike"

    def __init__(
        self,
        memberships: Any = None,
        *,
        members_only: bool = False,
        set_weights: Any = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        partition = MembershipPartition(memberships, set_weights=set_weights, members_only=members_only)
        super().__init__(partition, batch_shape=batch_shape, active_dims=active_dims)

    @property
    def num_items(self) -> int:
        return self.partition.num_items

    @property
    def num_sets(self) -> int:
        return self.partition.num_sets

    @property
    def set_weights(self) -> Tensor:
        """Return the weights of the sets (`m`, float64), which sum to 1."""
        return self.partition.set_weights

    def _cluster_operator(self, sizes: ClusterSizes, like: Tensor) -> ClusterOperator:
        items, scales = self.partition, self.partition.item_scales
        scales = None if scales is None else scales.to(like)
        return MembershipLinearOperator(items.set_weights.to(like), memberships=items.memberships, item_scales=scales)
