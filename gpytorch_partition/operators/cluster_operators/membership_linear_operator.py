"""The operator S of items, members of sets: the weights of the sets that two items share."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from linear_operator.operators import LinearOperator
from scipy.sparse import csr_matrix
from torch import Tensor

from gpytorch_partition.clusters.incidence import Incidence, Memberships
from gpytorch_partition.operators.cluster_operators.cluster_operator import (
    ClusterOperator,
    TransposedLinearOperator,
    as_columns,
    of_columns,
)

_ENTRIES = 2**22  # entries of a sparse product held at a time, at most, of 12 bytes each
_PAIRS = 2**16  # pairs of items looked up at a time


class MembershipLinearOperator(ClusterOperator):
    r"""
    Multiply by the covariance of items :math:`\sum_s w_s (b_{is} b_{js} + (1 - b_{is}) (1 - b_{js}))` (`n x n`).

    :class:`~gpytorch_partition.MembershipKernel` uses it (Davies & Ghahramani 2014, section 4.2), for items in so many
    sets that codes would be too many.

    A product costs :math:`O(E t)` for E memberships and t columns: :math:`b b' + (1 - b) (1 - b') = \frac12 + 2 (b -
    \frac12)(b' - \frac12)`, so S is a sparse matrix times its transpose and a few sums.

    :param weights: `m` nonnegative weights w of the sets.
    :param memberships: B (`n x m`).
    :param item_scales: `n` factors a of the items, with which S counts only the sets that hold both items,
        :math:`S_{ij} = a_i a_j \sum_s w_s b_{is} b_{js}`. (Default: none.)

    Example:
        >>> B = Memberships(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), num_sets=4)  # {0, 1} and {1}
        >>> MembershipLinearOperator(torch.full((4,), 0.25), memberships=B).to_dense()
        tensor([[1.0000, 0.7500],
                [0.7500, 1.0000]])
    """

    def __init__(self, weights: Tensor, *, memberships: Memberships, item_scales: Tensor | None = None) -> None:
        super().__init__(weights, memberships=memberships, item_scales=item_scales)
        self.weights, self.memberships, self.item_scales = weights, memberships, item_scales

    def root(self) -> MembershipRootLinearOperator:
        """Return the root, with a column for each set (and a constant one)."""
        return MembershipRootLinearOperator(self.weights.sqrt(), **self._kwargs)

    def root_rows(self, clusters: Tensor) -> csr_matrix:
        """Return rows of a sparse root: an entry for each set that holds the item, or for each set (two columns)."""
        values, members = self.weights.detach().double().sqrt().cpu().numpy(), self.memberships.rows(clusters)
        if self.item_scales is not None:
            scales = self.item_scales.detach().double()[clusters].cpu().numpy()
            entries = values[members.indices] * np.repeat(scales, np.diff(members.indptr))
            return csr_matrix((entries, members.indices, members.indptr), shape=members.shape)
        num_items, num_sets = members.shape
        if num_items * num_sets >= 2**31:
            raise ValueError(
                f"expected features with fewer than 2^31 entries, got {num_items:,} items by {num_sets:,} sets: give "
                "members_only=True, of which items have entries only for sets that they are in"
            )
        columns = np.tile(np.arange(1, 2 * num_sets, 2, dtype=np.int32), (num_items, 1))
        columns[np.repeat(np.arange(num_items), np.diff(members.indptr)), members.indices] -= 1
        starts = np.arange(num_items + 1) * num_sets
        return csr_matrix((np.tile(values, num_items), columns.ravel(), starts), shape=(num_items, 2 * num_sets))

    @property
    def structure(self) -> tuple[Any, ...]:
        return (type(self), self.memberships, self.item_scales is None)

    @property
    def num_nodes(self) -> int:
        return self.memberships.sets.numel()

    def dense_block(self, left: Incidence, right: Incidence) -> Tensor | None:
        columns = self.memberships.rows(right.codes)
        result = np.empty((left.num_rows, right.num_rows))
        size = max(1, _ENTRIES // max(1, right.num_rows))
        transposed = columns.T.tocsr()
        weights = self.weights.detach().double().numpy()
        for items, block in zip(left.codes.split(size), torch.from_numpy(result).split(size)):
            rows = self.memberships.rows(items)
            rows.data = weights[rows.indices]
            (rows @ transposed).toarray(out=block.numpy())
        return self._covariances(torch.from_numpy(result), left.codes, right.codes.mT).to(self.dtype)

    def _covariances(self, common: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        rows, columns = rows.long(), columns.long()
        if self.item_scales is not None:
            return self.item_scales[rows] * common * self.item_scales[columns]
        return self.weights.double().sum() - self._strengths[rows] - self._strengths[columns] + 2 * common

    @cached_property
    def _strengths(self) -> Tensor:
        """The total weight of each item's sets (`n`, float64)."""
        return self.memberships.item_sums(self.weights.double().unsqueeze(-1)).squeeze(-1)

    def _common(self, rows: Tensor, columns: Tensor) -> Tensor:
        shared = self.memberships.rows(rows).multiply(self.memberships.rows(columns)).tocoo()
        pairs, sets = (torch.from_numpy(index).long().to(self.device) for index in (shared.row, shared.col))
        weights = self.weights.double()
        return weights.new_zeros(rows.numel()).index_add(0, pairs, weights[sets])

    def _size(self) -> torch.Size:
        return torch.Size((self.memberships.num_items, self.memberships.num_items))

    @of_columns
    def _matmul(self, rhs: Tensor) -> Tensor:
        sums, total = self._set_sums(rhs)
        weighted = self.weights.unsqueeze(-1) * sums
        product = self.memberships.item_sums(weighted)
        if self.item_scales is not None:
            return self.item_scales.unsqueeze(-1) * product
        return 2 * product - weighted.sum(0, keepdim=True) + self.weights.sum() / 2 * total

    def _set_sums(self, values: Tensor) -> tuple[Tensor, Tensor]:
        r""":math:`(B - \tfrac12)^\top V` and the sums of V, or :math:`B^\top \mathrm{diag}(a) V` and zero."""
        if self.item_scales is not None:
            sums = self.memberships.set_sums(self.item_scales.unsqueeze(-1) * values)
            return sums, sums.new_zeros(1, sums.shape[-1])
        total = values.sum(0, keepdim=True)
        return self.memberships.set_sums(values) - total / 2, total

    def _diagonal(self) -> Tensor:
        if self.item_scales is None:
            return self.weights.sum().expand(self.memberships.num_items)
        return (self.item_scales.square() * self._strengths).to(self.dtype)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        row_index, col_index = torch.broadcast_tensors(row_index, col_index)
        rows, columns = row_index.reshape(-1), col_index.reshape(-1)
        parts = [self._common(left, right) for left, right in zip(rows.split(_PAIRS), columns.split(_PAIRS))]
        common = torch.cat([self.weights.new_zeros(0, dtype=torch.float64), *parts])
        return self._covariances(common, rows, columns).to(self.dtype).view(row_index.shape)

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        left_vecs, right_vecs = as_columns(left_vecs), as_columns(right_vecs)
        (left, left_total), (right, right_total) = self._set_sums(left_vecs), self._set_sums(right_vecs)
        factor = 2 if self.item_scales is None else 1
        by_set = factor * (left * right).sum(-1) + (left_total * right_total).sum() / 2
        if self.item_scales is None:
            return (by_set,)
        weights, item_sums = self.weights.unsqueeze(-1), self.memberships.item_sums
        by_item = left_vecs * item_sums(weights * right) + right_vecs * item_sums(weights * left)
        return by_set, by_item.sum(-1)


class MembershipRootLinearOperator(LinearOperator):
    r"""Multiply by :math:`[\sqrt{w_+ / 2}\, 1,\sqrt2 (B - \tfrac12) W^{1/2}]` or :math:`\mathrm{diag}(a) B W^{1/2}`."""

    def __init__(self, set_values: Tensor, *, memberships: Memberships, item_scales: Tensor | None = None) -> None:
        super().__init__(set_values, memberships=memberships, item_scales=item_scales)
        self.set_values, self.memberships, self.item_scales = set_values, memberships, item_scales

    def _size(self) -> torch.Size:
        memberships = self.memberships
        return torch.Size((memberships.num_items, memberships.num_sets + (self.item_scales is None)))

    @property
    def _constant(self) -> Tensor:
        return (self.set_values.square().sum() / 2).sqrt()

    @of_columns
    def _matmul(self, rhs: Tensor) -> Tensor:
        if self.item_scales is not None:
            return self.item_scales.unsqueeze(-1) * self.memberships.item_sums(self.set_values.unsqueeze(-1) * rhs)
        effects = 2**0.5 * self.set_values.unsqueeze(-1) * rhs[1:]
        constant = self._constant * rhs[:1] - effects.sum(0, keepdim=True) / 2
        return self.memberships.item_sums(effects) + constant

    @of_columns
    def _t_matmul(self, rhs: Tensor) -> Tensor:
        if self.item_scales is not None:
            return self.set_values.unsqueeze(-1) * self.memberships.set_sums(self.item_scales.unsqueeze(-1) * rhs)
        total = rhs.sum(0, keepdim=True)
        sums = 2**0.5 * self.set_values.unsqueeze(-1) * (self.memberships.set_sums(rhs) - total / 2)
        return torch.cat([self._constant * total, sums])

    def _transpose_nonbatch(self) -> LinearOperator:
        return TransposedLinearOperator(self)
