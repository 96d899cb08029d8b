"""The kernel of items that are described by the sets that contain them, such as users by films."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import ClusterSizes
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator
from gpytorch_partition.operators.cluster_operators.membership_linear_operator import MembershipLinearOperator
from gpytorch_partition.partitions.membership_partition import MembershipPartition


class MembershipKernel(PartitionKernel):
    r"""
    The kernel whose value is the weight of the sets in which two items are both members or both not (Davies &
    Ghahramani 2014, section 4.2).

    Use it for points that are members of sets: films split users into those who have seen them and the others,
    documents split words, words split documents.

    .. math:: k(i, j) = \sum_s w_s\, (b_{is} b_{js} + (1 - b_{is}) (1 - b_{js})), \qquad \sum_s w_s = 1

    with :math:`b_{is} = 1` where item i is in set s. Points are numbers of items (`N x 1`), rows of the matrix B. An
    item may have many rows of points, or none. Transpose the matrix for the kernel of films.

    **Where sets are small**, two items are both outside most sets, and k is nearly 1 for all pairs (with 50 of 20,000
    sets for an item, .995 or more). The outputscale multiplies the uncertainty of this constant as well; fits then need
    outputscales of hundreds and float64. `members_only=True` leaves out the sets that contain neither item,

    .. math:: k(i, j) = \sum_s w_s b_{is} b_{js} \Big/ \sqrt{\textstyle\sum_s w_s b_{is} \sum_s w_s b_{js}},

    the cosine of two items; items in no set have the variance 0. Rare sets count more with `set_weights` of one over
    their sizes.

    A product costs :math:`O(E)` for E memberships, and not the n m of the table. Memory: 12 bytes per membership.

    :param memberships: `n x m` sparse matrix of SciPy (or an array), not zero where an item (row) is in a set (column).
        (Default: None, an unfitted kernel for `load_state_dict`.)
    :param members_only: Whether only sets that contain both items count. (Default: False.)
    :param set_weights: `m` weights w of the sets, 0 or more, in any unit. (Default: all the same.)
    :param batch_shape: As in :class:`~gpytorch_partition.PartitionKernel`.
    :param active_dims: The number of the column that holds the items, as in
        :class:`~gpytorch_partition.PartitionKernel`.
    :raises ValueError: If `memberships` is not a finite matrix with one membership or more, or there are not m weights
        of 0 or more.

    Calls raise a `ValueError` for points that are not `N x 1` numbers of items.

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
    def _items(self) -> MembershipPartition:
        return cast(MembershipPartition, self.partition)

    @property
    def num_items(self) -> int:
        """Number n of items."""
        return self._items.num_items

    @property
    def num_sets(self) -> int:
        """Number m of sets."""
        return self._items.num_sets

    @property
    def set_weights(self) -> Tensor:
        """Weights of the sets (`m`, float64), which sum to 1."""
        return self._items.set_weights

    def _cluster_operator(self, sizes: ClusterSizes, like: Tensor) -> ClusterOperator:
        items, scales = self._items, self._items.item_scales
        return MembershipLinearOperator(
            items.set_weights.to(like),
            memberships=items.memberships,
            item_scales=None if scales is None else scales.to(like),
        )
