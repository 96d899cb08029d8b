"""Items that are identified by their number, with the sets that contain them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gpytorch_partition.clusters.incidence import Memberships
from gpytorch_partition.descriptions import counted
from gpytorch_partition.inputs.numbers import bits_of, floats_of, largest_exact, weights_of
from gpytorch_partition.partitions.partition import Partition


class MembershipPartition(Partition):
    """
    Give each item a cluster of its own, and hold the sets that contain the items (Davies & Ghahramani 2014, 4.2).

    :class:`~gpytorch_partition.MembershipKernel` uses it. Construct it yourself for another covariance of the items.

    A point is the number of an item, from 0, so all rows of an item are equal points. Two items covary by the m sets
    that contain them: :class:`~gpytorch_partition.operators.MembershipLinearOperator` computes it from the sets.

    :param memberships: A matrix of items by sets, a sparse one of SciPy or an array, 0 where an item is not in a set.
        (Default: None, an unfitted partition for `load_state_dict`.)
    :param set_weights: Weights of the sets, 0 or more. (Default: all the same.)
    :param members_only: Whether to leave out sets that contain neither item. (Default: False.)
    :raises ValueError: If the matrix or the weights cannot be used; in calls, if a point is not the number of an item.

    Example:
        >>> viewed = csr_array([[1, 0, 1], [0, 0, 1]])
        >>> partition = MembershipPartition(viewed)
        >>> partition.labels(torch.tensor([[1.0], [0.0], [1.0]])).squeeze(-1), partition.set_weights
        (tensor([1, 0, 1]), tensor([0.3333, 0.3333, 0.3333], dtype=torch.float64))
    """

    num_features = 1

    item_starts: Tensor  # (n + 1,) where the sets of each item begin
    sets: Tensor  # (E,) set numbers, sorted within an item
    weight_bits: Tensor  # (m,) bit patterns of float64, which sum to 1
    members_only: Tensor  # (1,) bool

    def __init__(self, memberships: Any = None, *, set_weights: Any = None, members_only: bool = False) -> None:
        super().__init__()
        matrix = csr_array((0, 0)) if memberships is None else _checked_memberships(memberships)
        weights, num_sets = np.empty(0), matrix.shape[1]
        if num_sets:
            given = [1.0] * num_sets if set_weights is None else set_weights
            weights = weights_of(given, num_sets, "sets").cpu().numpy()
        self.register_buffer("item_starts", torch.from_numpy(matrix.indptr.astype(np.int64)))
        self.register_buffer("sets", torch.from_numpy(matrix.indices.astype(np.int32)))
        self.register_buffer("weight_bits", bits_of(torch.from_numpy(weights / weights.sum())))
        self.register_buffer("members_only", torch.tensor([bool(members_only)]))

    @property
    def num_partitions(self) -> int:
        return int(self.num_items > 0)

    @property
    def num_items(self) -> int:
        return self.item_starts.numel() - 1

    @property
    def num_sets(self) -> int:
        return self.weight_bits.numel()

    @property
    def cluster_counts(self) -> Tensor:
        return torch.tensor([self.num_items], device=self.sets.device)

    @property
    def set_weights(self) -> Tensor:
        """Return the weights of the sets (`m`, float64), which sum to 1."""
        return floats_of(self.weight_bits)

    @cached_property
    def memberships(self) -> Memberships:
        return Memberships(self.item_starts, self.sets, self.num_sets)

    @cached_property
    def item_scales(self) -> Tensor | None:
        """Return factors (`n`, float64) that give each item in a set the variance 1; None without `members_only`."""
        if not bool(self.members_only):
            return None
        strengths = self.memberships.item_sums(self.set_weights.unsqueeze(-1)).squeeze(-1)
        return torch.where(strengths > 0, strengths.rsqrt(), 0)

    def _described(self) -> str:
        return f"{counted(self.num_items, 'item')} in {counted(self.num_sets, 'set')}"

    def _labels(self, x: Tensor) -> Tensor:
        return x.long()

    def _check_values(self, x: Tensor) -> None:
        super()._check_values(x)
        if self.num_items > largest_exact(x.dtype):
            raise ValueError(
                f"{type(self).__name__} expected points of a dtype that tells {self.num_items:,} items apart, got "
                f"{x.dtype}: give float64"
            )
        is_item = (x >= 0) & (x < self.num_items) & (x == x.round())
        if not is_item.all():
            raise ValueError(
                f"{type(self).__name__} expected points (... x N x 1) that are numbers of items, 0 to "
                f"{self.num_items - 1}, got {float(x[~is_item][0])}: give rows of the matrix"
            )


def _checked_memberships(memberships: Any) -> csr_array:
    try:
        matrix = csr_array(memberships)
    except (TypeError, ValueError) as error:
        got = type(memberships).__name__
        raise ValueError(f"expected a matrix of items by sets, a sparse one or an array, got {got}") from error
    if matrix.ndim != 2 or matrix.dtype.kind not in "buif" or not np.isfinite(matrix.data).all():
        raise ValueError(
            f"expected a matrix of finite numbers, items by sets, got {matrix.dtype} of shape {matrix.shape}: give an "
            "entry other than zero where the item (row) is in the set (column)"
        )
    matrix = csr_array((matrix.data != 0, matrix.indices, matrix.indptr), shape=matrix.shape, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not matrix.nnz:
        raise ValueError(f"expected items that are in sets, got none in a matrix of shape {matrix.shape}")
    return matrix
