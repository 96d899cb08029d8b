"""The reader of trees that are given as arrays, whose nodes may have more than two children."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpytorch_partition.inputs.numbers import checked_count
from gpytorch_partition.partitions.ensembles.tree_arrays import Tree, Trees, joined


def array_trees(
    trees: Iterable[tuple[Any, Any, Any]], num_columns: int, *, weights: Sequence[float] | None = None
) -> Trees:
    r"""
    Return trees given as arrays, from any program, as :class:`Trees`, in :math:`O(V)`.

    A node with k children sends a point to child j if its value x in the node's column has :math:`t_{j-1} < x \le t_j`,
    with :math:`t_0 = -\infty, t_k = \infty`. With two children, values up to the threshold go to the first. A split by
    categories 0, 1, 2 has the thresholds .5 and 1.5. Comparisons are in float64, and missing values are refused. Splits
    into more than two become several binary ones, which are one level of the tree for
    :class:`~gpytorch_partition.RandomForestKernel`.

    :param trees: For each tree its children (`n x k`, integers; the root is node 0, and negative numbers are no child),
        columns (`n` integers) and thresholds (`n`, or `n x (k - 1)`, increasing). Columns and thresholds of leaves are
        not read, nor are thresholds beyond the k - 1 of a node.
    :param num_columns: Number D of columns of the data.
    :param weights: A weight for each tree, 0 or more. (Default: all the same.)
    :raises ValueError: If an array has another shape or kind, or nodes are not one tree: a child twice or out of range,
        a single child, a column out of range, thresholds that do not increase.

    Example:
        >>> trees = array_trees([([[1, 2, 3], [-1] * 3, [-1] * 3, [-1] * 3], [0] * 4, [[0.5, 1.5]] * 4)], num_columns=1)
        >>> trees.children.tolist(), trees.threshold.tolist()
        ([[1, 2], [1, 1], [3, 4], [3, 3], [4, 4]], [0.5, inf, 1.5, inf, inf])
    """
    num_columns = checked_count(num_columns, "columns of the data", "num_columns")
    checked = [_Tree(number, num_columns, arrays) for number, arrays in enumerate(_listed(trees, weights))]
    binary = [tree.binary() for tree in checked]
    is_auxiliary = np.concatenate([np.zeros(0, bool), *(part for _, part in binary)])
    found = joined([tree for tree, _ in binary], num_columns, weights=weights, handles_missing=False)
    return found._replace(is_auxiliary=is_auxiliary) if is_auxiliary.any() else found


def _listed(trees: Any, weights: Any) -> list[Any]:
    if not isinstance(trees, Iterable):
        raise TypeError(f"expected a list of trees, (children, columns, thresholds) each, got {type(trees).__name__}")
    listed = list(trees)
    if weights is not None and np.shape(weights) != (len(listed),):
        raise ValueError(f"expected {len(listed)} weights, one for each tree, got shape {np.shape(weights)}")
    return listed


class _Tree:
    def __init__(self, number: int, num_columns: int, arrays: Any) -> None:
        self.name = f"tree {number}"
        if not isinstance(arrays, (tuple, list)) or len(arrays) != 3:
            raise ValueError(f"expected {self.name} as (children, columns, thresholds), got {type(arrays).__name__}")
        children, column, threshold = arrays
        self.children = self._integers(children, "children", 2)
        size = len(self.children)
        self.column = self._integers(column, "columns", 1)
        self.threshold = self._thresholds(threshold, size)
        self.counts = (self.children >= 0).sum(1)
        if self.column.shape != (size,) or self.threshold.shape[1] < max(1, self.counts.max(initial=0) - 1):
            raise ValueError(
                f"expected {size} columns and thresholds, one for each node of {self.name} (thresholds: one less than "
                f"children), got {self.column.shape} and {self.threshold.shape}"
            )
        self._check_nodes(num_columns)

    def _integers(self, values: Any, what: str, dimensions: int) -> NDArray[np.int64]:
        try:
            array = np.asarray(values)
        except ValueError:  # rows of different lengths
            array = np.empty(0)
        if array.dtype.kind not in "iu" or array.ndim != dimensions or not array.size:
            raise ValueError(
                f"expected the {what} of {self.name} as integers in {dimensions} dimension(s), got {array.dtype} of "
                f"shape {array.shape}: fill rows of children up with -1"
            )
        return array.astype(np.int64)

    def _thresholds(self, values: Any, size: int) -> NDArray[np.float64]:
        try:
            return np.asarray(values, np.float64).reshape(size, -1)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"expected the thresholds of {self.name} as numbers, a row for each of {size} nodes: fill rows up "
                "with 0"
            ) from error

    def _check_nodes(self, num_columns: int) -> None:
        size, inner, is_child = len(self.children), self.counts > 0, self.children >= 0
        self._check(not (self.counts == 1).any(), "nodes with two children or more, or none", self.counts == 1)
        gaps = np.logical_or.reduce(np.diff(is_child.astype(int), axis=1) > 0, axis=1)
        self._check(not gaps.any(), "children first and then -1 in a row", gaps)
        children = np.sort(self.children[is_child])
        if not np.array_equal(children, np.arange(1, size)):
            raise ValueError(
                f"expected the root of {self.name} to be node 0, and all nodes 1 to {size - 1} to be the child of one "
                f"node each, got the children {children.tolist()[:10]}"
            )
        outside = inner & ((self.column < 0) | (self.column >= num_columns))
        self._check(not outside.any(), f"columns from 0 to {num_columns - 1}", outside)
        used = np.arange(self.threshold.shape[1]) < self.counts[:, None] - 1
        wrong = np.isnan(self.threshold) & used
        wrong[:, 1:] |= (np.diff(self.threshold, axis=1) <= 0) & used[:, 1:]
        self._check(not wrong.any(), "thresholds that increase", np.logical_or.reduce(wrong, axis=1))

    def _check(self, holds: bool, expected: str, wrong: NDArray[np.bool_]) -> None:
        if not holds:
            raise ValueError(f"expected {expected}, got others at node {np.flatnonzero(wrong)[0]} of {self.name}")

    def binary(self) -> tuple[Tree, NDArray[np.bool_]]:
        children: list[list[int]] = []
        columns, thresholds, auxiliary = [], [], []
        waiting = [(0, 0, int(self.counts[0]), -1, 0)]  # node, its children from and to, parent and side
        while waiting:
            node, first, last, parent, side = waiting.pop()
            if parent >= 0:
                children[parent][side] = len(children)
            place, middle = len(children), (first + last) // 2
            children.append([-1, -1])
            columns.append(self.column[node] if last else 0)
            thresholds.append(self.threshold[node, middle - 1] if last else 0.0)
            auxiliary.append(last > 0 and last - first < self.counts[node])
            if last:
                waiting += [self._part(node, middle, last, place, 1), self._part(node, first, middle, place, 0)]
        if len(children) - sum(auxiliary) < len(self.children):
            raise ValueError(f"expected all nodes of {self.name} to be below node 0, got nodes that are not")
        tree = Tree(np.array(children), np.array(columns), np.array(thresholds), np.zeros(len(children), bool))
        return tree, np.array(auxiliary)

    def _part(self, node: int, first: int, last: int, parent: int, side: int) -> tuple[int, int, int, int, int]:
        if last - first > 1:
            return node, first, last, parent, side
        child = int(self.children[node, first])
        return child, 0, int(self.counts[child]), parent, side
