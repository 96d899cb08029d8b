"""Mondrian trees with all their nodes: training rows are coded by leaves, new points by their exits from the trees."""

from __future__ import annotations

import torch
from torch import Tensor

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.partitions.mondrian.partition import GrownRows, MondrianPartition
from gpytorch_partition.partitions.mondrian.trees import MondrianTrees
from gpytorch_partition.partitions.partition import _CodedRows


class LeafRows(Incidence):
    """One-hot rows (`N x p`) of the p leaves of the trees restricted to these rows."""

    def __init__(self, codes: Tensor, trees: MondrianTrees) -> None:
        super().__init__(codes, trees.num_leaves)
        self.trees = trees


class AttachedRows(Incidence):
    """
    One-hot rows (`N x E`) of the E exits at which other points leave these trees.

    :param nodes: `E` last node that the points of each exit share with any row.
    :param times: `E` times at which the points leave it; infinite for points that end in a leaf's cell.
    """

    def __init__(self, codes: Tensor, trees: MondrianTrees, nodes: Tensor, times: Tensor) -> None:
        super().__init__(codes, len(nodes))
        self.trees, self.nodes, self.times = trees, nodes, times


class NestedMondrianPartition(MondrianPartition):
    r"""
    A :class:`MondrianPartition` at its terminal lifetime, with all nodes of its trees.

    One of two sets of points grows the trees and is coded by its leaves (:class:`LeafRows`); the other is attached to
    them (:class:`AttachedRows`). Costs and state are those of :class:`MondrianPartition`, and 64 bytes more per cell
    for the layout of the trees. Labels are those of the terminal lifetime.

    Example:
        >>> x = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
        >>> trees = NestedMondrianPartition(x[:50], num_trees=3, lifetime=8.0, random_state=0)
        >>> attached, rows = trees.incidences(x[50:], x[:50])
        >>> rows.trees.layout.num_leaves == rows.num_clusters, attached.trees is rows.trees
        (True, True)
    """

    def _recoded(self, x: Tensor, rows: GrownRows) -> _CodedRows:
        number = torch.arange(rows.trees.num_trees, dtype=rows.leaf_codes.dtype, device=x.device)
        return _CodedRows(x, rows, LeafRows(rows.leaf_codes - number, rows.trees))

    def _coded_like(self, anchor: _CodedRows, x: Tensor) -> Incidence:
        self.check_points(x)
        trees = anchor.cluster_index.trees
        exits = self.attached(anchor.cluster_index, x.detach().reshape(-1, x.shape[-1]))
        codes = exits.codes.view(*x.shape[:-1], self.num_partitions)
        return AttachedRows(codes, trees, exits.nodes, exits.times)
