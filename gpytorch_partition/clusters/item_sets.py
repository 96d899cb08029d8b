"""The memberships of items in sets: a sparse matrix of zeros and ones, and products with it and its transpose."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import Movable, code_dtype
from gpytorch_partition.clusters.incidence import LinearProduct, Members, blocked_members, sums_at, sums_over_members


class Memberships(Movable):
    """
    Hold the matrix B (`n x m`) with a one where an item is in a set; an item may be in any number of sets.

    Products cost :math:`O(E t)` for E ones and t columns.

    :param starts: `n + 1` where the sets of each item begin.
    :param sets: `E` set numbers, each once for an item, sorted within an item.
    """

    def __init__(self, starts: Tensor, sets: Tensor, num_sets: int) -> None:
        dtype = code_dtype(max(starts.numel(), num_sets), sets.numel())
        self.starts, self.sets, self.num_sets = starts.to(dtype), sets.to(dtype), num_sets

    @property
    def num_items(self) -> int:
        return self.starts.numel() - 1

    def item_sums(self, table: Tensor) -> Tensor:
        r"""Return :math:`B C`: for every item (`n x t`) the sum of the table (`m x t`) over the sets of the item."""
        return LinearProduct.apply(self, _item_sums, _set_sums, table)

    def set_sums(self, values: Tensor) -> Tensor:
        r"""Return :math:`B^\top V`: for every set (`m x t`) the sum of the values (`n x t`) of its items."""
        return LinearProduct.apply(self, _set_sums, _item_sums, values)

    @cached_property
    def _members(self) -> Members:
        order = torch.sort(self.sets, stable=True).indices
        counts = torch.bincount(self.sets, minlength=self.num_sets)
        found = counts.nonzero().squeeze(-1)
        items = torch.arange(self.num_items, device=self.sets.device).repeat_interleave(self.starts.diff())
        return blocked_members(items[order].to(self.sets.dtype), found, counts[found], self.num_sets)

    def rows(self, items: Tensor) -> csr_array:
        """Return the rows (`n' x m`, float64) of some items (`n'`), as a sparse matrix of SciPy."""
        items = items.reshape(-1).long()
        counts = self.starts.diff()[items].long()
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        places = torch.arange(int(starts[-1]), device=items.device)
        places += (self.starts[items] - starts[:-1]).repeat_interleave(counts)
        sets = self.sets[places].cpu().numpy()
        return csr_array((np.ones(len(sets)), sets, starts.cpu().numpy()), shape=(len(items), self.num_sets))

    @property
    def device(self) -> torch.device:
        return self.sets.device

    def _moved(self, device: Any) -> Memberships:
        return Memberships(self.starts.to(device), self.sets.to(device), self.num_sets)


def _item_sums(memberships: Memberships, table: Tensor) -> Tensor:
    return sums_at(memberships.starts, memberships.sets, table)


def _set_sums(memberships: Memberships, values: Tensor) -> Tensor:
    return sums_over_members(memberships._members, values)
