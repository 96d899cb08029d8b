r"""
Sums over clusters for rows with loadings, :math:`f_i = \sum_r R_{ir} (Z u_r)_i`.

Every cluster has k effects, and a row's loadings are their coefficients. A table of effects is `p x kt` for t columns:
t columns of the first effect, then t of the second, and so on. For one partition with few clusters sums are products
with the matrix of loadings, with every row's columns in places of its cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import NamedTuple

import torch
from torch import Tensor

from gpytorch_partition.clusters.incidence import Incidence, same_codes
from gpytorch_partition.linalg.factors import tall_product, transposed_product

_FEW_CLUSTERS = 32
_WORKSPACE = 2**25  # numbers held at once, beside the values and the table themselves


class LoadedRows(NamedTuple):
    """Hold the one-hot rows of points with their loadings, with the sums and values of an :class:`Incidence`."""

    rows: Incidence  # N x p
    loadings: Tensor | None = None  # N x k; None for a single 1

    def cluster_sums(self, values: Tensor) -> Tensor:
        r"""Return :math:`[Z^\top \mathrm{diag}(R_1) V, \ldots]` (`*batch x p x kt`) of V (`*batch x N x t`)."""
        rows, loadings = self
        if loadings is None:
            return rows.cluster_sums(values)
        if self._has_few_clusters:
            sums = transposed_product(loadings, _in_own_places(rows, values))
            return sums.unflatten(-1, (rows.num_clusters, -1)).transpose(-3, -2).flatten(-2)
        parts = loadings.split(_effects_at_once(values), -1)
        products = [rows.cluster_sums((part.unsqueeze(-1) * values.unsqueeze(-2)).flatten(-2)) for part in parts]
        return torch.cat(products, -1)

    def row_values(self, table: Tensor) -> Tensor:
        r"""Return :math:`\sum_r \mathrm{diag}(R_r) Z C_r` (`*batch x N x t`) from a table :math:`[C_1, \ldots]`."""
        rows, loadings = self
        if loadings is None:
            return rows.row_values(table)
        if self._has_few_clusters:
            effects = _effects(table, loadings).transpose(-3, -2).flatten(-2)
            return _of_own_places(rows, tall_product(loadings, effects))
        blocks = _blocks_of_loadings(rows, loadings, table)
        return reduce(add, ((part.unsqueeze(-1) * columns).sum(-2) for part, columns in blocks))

    def loadings_derivative(self, vectors: Tensor, table: Tensor) -> Tensor:
        r"""Return the derivative by R (`*batch x N x k`) of the inner products of vectors with :meth:`row_values`."""
        rows, loadings = self
        assert loadings is not None
        if rows.num_clusters == 1:
            return vectors @ _effects(table, loadings).squeeze(-3).mT
        blocks = _blocks_of_loadings(rows, loadings, table)
        return torch.cat([(columns * vectors.unsqueeze(-2)).sum(-1) for _, columns in blocks], -1)

    @property
    def _has_few_clusters(self) -> bool:
        return self.rows.num_partitions == 1 and self.rows.num_clusters <= _FEW_CLUSTERS

    def are_same(self, other: LoadedRows) -> bool:
        """Return whether clusters and loadings are the same, by value."""
        is_same = self.loadings is other.loadings
        if self.loadings is not None and other.loadings is not None:
            is_same = is_same or torch.equal(self.loadings, other.loadings)
        return is_same and same_codes(self.rows, other.rows)


def _in_own_places(rows: Incidence, values: Tensor) -> Tensor:
    """Values (`*batch x N x t`) as `*batch x N x pt`: those of a row in the columns of its cluster, 0 elsewhere."""
    if rows.num_clusters == 1:
        return values
    return (_places(rows, values).unsqueeze(-1) * values.unsqueeze(-2)).flatten(-2)


def _of_own_places(rows: Incidence, values: Tensor) -> Tensor:
    """From `*batch x N x pt` the columns (`*batch x N x t`) of each row's cluster."""
    if rows.num_clusters == 1:
        return values
    return (values.unflatten(-1, (rows.num_clusters, -1)) * _places(rows, values).unsqueeze(-1)).sum(-2)


def _places(rows: Incidence, like: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(rows.codes.squeeze(-1).long(), rows.num_clusters).to(like.dtype)


def _effects(table: Tensor, loadings: Tensor) -> Tensor:
    return table.unflatten(-1, (loadings.shape[-1], -1))


def _blocks_of_loadings(rows: Incidence, loadings: Tensor, table: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of loadings (`*batch x N x l`), each with the values of its effects (`*batch x N x l x t`)."""
    num_columns = table.shape[-1] // loadings.shape[-1]
    size = _effects_at_once(loadings[..., :1].expand(*loadings.shape[:-1], num_columns))
    for part, columns in zip(loadings.split(size, -1), table.split(size * num_columns, -1)):
        yield part, _effects(rows.row_values(columns), part)


def _effects_at_once(values: Tensor) -> int:
    return max(1, _WORKSPACE // max(1, values.numel()))
