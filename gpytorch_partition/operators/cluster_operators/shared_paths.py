r"""
Dense covariances of trees, :math:`Z S Z'^\top`, from the nodes that pairs of rows share.

A node of weight w adds w to all pairs of its rows. Few nodes have many pairs. Their weights are summed in one table per
tree, over all pairs of *groups* (the largest nodes with few pairs, and leaves with many), and rows look up their groups
in it. A sparse product adds the pairs in all other nodes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.clusters.tree_layout import TreeLayout
from gpytorch_partition.linalg.parallel import for_each

# Limits within which these sums are cheaper than a product with the identity, which fills a table of nodes by rows.
_FEWEST = 7e6  # leaves of a tree, on average, times the square of the rows (the fewer of left and right)
_MOST_HEIGHT = 300  # height of a tree, with which tables of groups grow
_MOST_LEFT_ROWS = 2  # rows on the left, in rows on the right
_FEW_PAIRS = 2**11  # pairs of rows in a node with few, at most: 45 squared
_VISITS = 2**17  # (row, tree) pairs worked on at once
_MOST_TREES = 16  # worked on at once, so that sums of parts in float32 are exact
_TABLE = 2**18  # entries of the table of groups by rows worked on at once
_ENTRIES = 2**20  # entries of a sparse product held at once
_SUMS_SHARE = 2  # sums held at once, over entries of the table
_MANTISSA = 24  # bits of a whole number that float32 holds
_FINE = 2.0**20  # 16 halves in these units are below 2^24


class _Trees(NamedTuple):
    """Some of the trees, with nodes and leaves numbered from 0; V nodes, p leaves."""

    low: Tensor  # (V,) first leaf of each node
    high: Tensor  # (V,) one past the last one
    parent: Tensor  # (V,)
    leaf_nodes: Tensor  # (p,)
    tree_nodes: Tensor  # (m + 1,) first node of each tree, and V
    tree_leaves: Tensor  # (m + 1,) first leaf of each tree, and p
    weights: Tensor  # (V,)
    left: Tensor  # (N, m) leaves of the rows
    right: Tensor  # (N', m) of the others; the same object where they are the same rows


class _Groups(NamedTuple):
    """The groups of rows in some trees, up to G in each, and the weights that any two of them share."""

    left: Incidence  # groups of the rows, G numbers for each tree
    right: Tensor  # (m, N') groups of the others, numbered in each tree
    tables: Tensor  # (m, G, G) the weights that any two groups of a tree share


def is_cheaper_than_product(left: Incidence, right: Incidence, layout: TreeLayout) -> bool:
    """Return whether these sums take less time than a product with the identity, which is made for each row."""
    fewest = min(left.num_rows, right.num_rows)
    are_many = fewest**2 * layout.num_leaves > _FEWEST * layout.num_trees
    are_low = int(layout.num_steps.max()) <= _MOST_HEIGHT
    return are_many and are_low and left.num_rows <= _MOST_LEFT_ROWS * right.num_rows


def shared_path_sums(left: Incidence, right: Incidence, layout: TreeLayout, node_weights: Tensor) -> Tensor:
    """Return the sum of the weights of the nodes that two rows share, for all pairs (`N x N'`), on the CPU."""
    total, groups = node_weights.new_zeros(left.num_rows, right.num_rows), []
    for trees in _blocks_of_trees(left, right, layout, node_weights.detach()):
        has_many = _num_pairs(trees) > _FEW_PAIRS
        _add_by_pairs(total, trees, ~has_many)
        groups.append(_groups_of(trees, has_many))
    _add_by_groups(total, groups)
    return total


def _blocks_of_trees(left: Incidence, right: Incidence, layout: TreeLayout, weights: Tensor) -> Iterator[_Trees]:
    size = min(_MOST_TREES, max(1, _VISITS // max(1, left.num_rows, right.num_rows)))
    for first in range(0, layout.num_trees, size):
        trees = slice(first, min(first + size, layout.num_trees))
        ends = slice(trees.start, trees.stop + 1)
        (node, *_, last_node), (leaf, *_, last_leaf) = layout.tree_nodes[ends], layout.tree_leaves[ends]
        nodes, leaves = slice(node, last_node), slice(leaf, last_leaf)
        of_left = left.codes[:, trees].long() - leaf
        yield _Trees(
            low=layout.node_low[nodes] - leaf,
            high=layout.node_high[nodes] - leaf,
            parent=layout.parent[nodes] - node,
            leaf_nodes=layout.leaf_nodes[leaves] - node,
            tree_nodes=layout.tree_nodes[ends] - node,
            tree_leaves=layout.tree_leaves[ends] - leaf,
            weights=weights[nodes],
            left=of_left,
            right=of_left if left is right else right.codes[:, trees].long() - leaf,
        )


def _num_pairs(trees: _Trees) -> Tensor:
    before = [torch.bincount(codes.reshape(-1), minlength=len(trees.leaf_nodes)) for codes in (trees.left, trees.right)]
    ends = [torch.cat([counts.new_zeros(1), counts.cumsum(0)]) for counts in before]
    in_left, in_right = (end[trees.high] - end[trees.low] for end in ends)
    return in_left * in_right


def _groups_of(trees: _Trees, has_many: Tensor) -> _Groups:
    """Return the groups of the nodes with many pairs (`V`, bool; their ancestors have many too)."""
    starts = _starts_of_groups(trees, has_many)
    is_start = torch.zeros_like(trees.leaf_nodes).index_fill_(0, starts, 1)
    group_of_leaf = is_start.cumsum(0) - 1
    first = torch.searchsorted(starts, trees.tree_leaves)
    of_left, of_right = (group_of_leaf[codes] - first[:-1] for codes in (trees.left, trees.right))
    tables = _tables_of_groups(trees, has_many, starts, int(first.diff().max()))
    num_trees, size, _ = tables.shape
    left = Incidence(of_left + size * torch.arange(num_trees), num_trees * size)
    return _Groups(left, of_right.T.contiguous(), tables)


def _add_by_groups(total: Tensor, groups: list[_Groups]) -> None:
    """Add the weights that groups share to all pairs of their rows, by blocks of columns that fit in the cache."""
    size = max(1, _TABLE // max(len(total) // _SUMS_SHARE, *(each.left.num_clusters for each in groups)))
    unit = _unit(groups)
    parts = [(each, part) for each in groups for part in _summable_parts(each.tables, unit)]

    def add(start: int) -> None:
        columns = slice(start, start + size)
        sums = total.new_zeros(total[:, columns].shape)
        for each, tables in parts:
            chosen = tables.gather(2, each.right[:, None, columns].expand(-1, tables.shape[1], -1))
            sums += each.left.row_values(chosen.flatten(0, 1))
        total[:, columns].add_(sums, alpha=unit)

    for_each(add, range(0, total.shape[1], size))


def _unit(groups: list[_Groups]) -> float:
    """Return a power of two, whose whole multiples in tables have sums over some trees that are exact in float32."""
    _, exponent = math.frexp(max(float(each.tables.abs().max()) for each in groups))
    num_trees = max(len(each.tables) for each in groups)
    return max(2.0 ** (exponent - _MANTISSA + (num_trees - 1).bit_length()), sys.float_info.min)


def _summable_parts(tables: Tensor, unit: float) -> list[Tensor]:
    """Return tables in units, as parts of float32, with exact sums but for the last: ten times as fast as float64."""
    in_units = tables / unit
    if tables.dtype == torch.float32:
        return [in_units]
    whole = in_units.round()
    fine = ((in_units - whole) * _FINE).round() / _FINE
    return [part.float() for part in (whole, fine, in_units - whole - fine)]


def _starts_of_groups(trees: _Trees, has_many: Tensor) -> Tensor:
    is_root = trees.parent == torch.arange(len(trees.parent))
    is_leaf = trees.high - trees.low == 1
    is_group = torch.where(has_many, is_leaf, has_many[trees.parent] | is_root)
    return trees.low[is_group].sort().values


def _tables_of_groups(trees: _Trees, has_many: Tensor, starts: Tensor, size: int) -> Tensor:
    """For each tree and any two of its groups, at most `size`, the total weight of the nodes of many pairs in both."""
    nodes = has_many.nonzero().squeeze(1)
    tree_of_node = torch.searchsorted(trees.tree_nodes, nodes, right=True) - 1
    first = torch.searchsorted(starts, trees.tree_leaves)[tree_of_node]
    ranges = [(torch.searchsorted(starts, ends[nodes]) - first).tolist() for ends in (trees.low, trees.high)]
    weights = trees.weights[nodes].numpy()
    tables = np.zeros((len(trees.tree_nodes) - 1, size, size), dtype=weights.dtype)
    for tree, low, high, weight in zip(tree_of_node.tolist(), *ranges, weights):
        tables[tree, low:high, low:high] += weight
    return torch.from_numpy(tables)


def _add_by_pairs(total: Tensor, trees: _Trees, has_few: Tensor) -> None:
    """Add the weights of the nodes with few pairs (`V`, bool), pair by pair."""
    if not bool(has_few.any()):
        return
    weights = trees.weights.numpy()
    right = _sparse(trees.right, trees, has_few, weights.dtype)
    left = right if trees.left is trees.right else _sparse(trees.left, trees, has_few, weights.dtype)
    weighted = csr_array((weights[left.indices], left.indices, left.indptr), shape=left.shape)
    columns, size = right.T.tocsr(), max(1, _ENTRIES // max(1, len(trees.right)))
    for start, rows in zip(range(0, len(total), size), total.split(size)):
        rows += torch.from_numpy((weighted[start : start + size] @ columns).toarray())


def _sparse(codes: Tensor, trees: _Trees, wanted: Tensor, dtype: np.dtype) -> csr_array:
    """Rows by nodes, 1 where a row is in a wanted node (`V`, bool; the descendants of such nodes are wanted too)."""
    rows, nodes = torch.arange(len(codes)).repeat_interleave(codes.shape[1]), trees.leaf_nodes[codes].reshape(-1)
    found: list[Tensor] = []
    stays = wanted[nodes]
    while bool(stays.any()):
        rows, nodes = rows[stays], nodes[stays]
        found.append(torch.stack([rows, nodes]))
        parents = trees.parent[nodes]
        nodes, stays = parents, wanted[parents] & (parents != nodes)
    places = torch.cat(found, 1) if found else rows.new_zeros(2, 0)
    # Sorted by node, so that the sums of the pairs (i, j) and (j, i) are rounded alike.
    return csr_array((np.ones(places.shape[1], dtype), tuple(places.numpy())), shape=(len(codes), len(trees.parent)))
