r"""Tables of the effects of clusters, :math:`S Z^\top \alpha`, in which the values of new points are looked up."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpytorch_partition.operators.loadings import LoadedRows
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator


class EffectTables:
    r"""
    The tables :math:`S Z^\top \alpha` of the terms of a covariance of new points and training rows.

    One is kept for each term while the training rows have the same codes and loadings, so a value at a new point costs
    :math:`O(m)`. If new points open clusters of their own, S is applied anew.
    """

    def __init__(self) -> None:
        # By the term's number in the sum, and whether S is in the table.
        self._kept: dict[tuple[int, bool], tuple[LoadedRows, Tensor]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_kept": {}}  # they are computed again

    def of(self, place: int, term: PartitionLinearOperator, weights: Tensor) -> Tensor:
        r"""
        Return the table of a term: `term.row_values` of it is the product of the term and the weights.

        :param place: The term's number in the sum.
        :param term: `*batch x N_test x N`; no part of it is trained.
        :param weights: `*batch x N x t`, the same in every call.
        """
        rows = LoadedRows(term.right, term.right_loadings)
        key = (place, term.has_same_clusters)
        known, kept = self._kept.get(key, (None, weights))
        if known is None or not known.are_same(rows):
            with torch.no_grad():
                kept = term.cluster_sums(weights)
                kept = term.cluster_product(kept) if term.has_same_clusters else kept
        self._kept[key] = (rows, kept)
        return kept if term.has_same_clusters else term.cluster_product(kept)
