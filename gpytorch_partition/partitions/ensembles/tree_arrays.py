"""
The trees of an ensemble, of any library, as arrays of their nodes, by which a point's leaf is found without the
library.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ZERO = float(np.float32(1e-35))  # LightGBM takes values up to this magnitude for zero (its kZeroThreshold)


class Trees(NamedTuple):
    r"""
    Trees of an ensemble side by side: m trees with V nodes, tree after tree, the root of each first.

    A point goes left at a node if its value in the node's column is at most the threshold. Where the node has a set of
    categories, it goes left if the range of numbers around the value is in the set. A missing value goes where
    `missing_left` sends it. In columns with `level_counts` values are levels 0, 1, ..., and other values are missing.
    Thresholds there compare the places that each tree gives its levels.
    """

    column: NDArray[np.int32]  # (V,) 0 at leaves
    threshold: NDArray[Any]  # (V,) float32 or float64, in which points are compared; infinity at leaves
    children: NDArray[np.int32]  # (V, 2) left and right child; a leaf is its own child
    missing_left: NDArray[np.bool_]  # (V,) whether a missing value goes left
    category_set: NDArray[np.int32]  # (V,) row of `category_sets`, or -1 for a threshold
    category_sets: NDArray[np.uint32]  # (S, W) bit k of a row says whether the column's k-th range goes left
    category_bounds: list[NDArray[np.float64]]  # D times where ranges 1, 2, ... begin, sorted; none for thresholds
    zero_is_missing: NDArray[np.bool_]  # (D,) whether values from -`ZERO` to `ZERO` are missing values
    tree_nodes: NDArray[np.int64]  # (m + 1,) where the nodes of each tree begin
    weights: NDArray[np.float64]  # (m,) weight of each tree, 1 on average
    handles_missing: bool  # whether the ensemble takes missing values
    impurity: NDArray[np.float64] | None = None  # (V,) spread of the targets in each node, where the ensemble keeps it
    is_auxiliary: NDArray[np.bool_] | None = None  # (V,) halves of splits into more than two, where there are any
    level_places: NDArray[np.int32] | None = None  # (m, L) places that each tree compares instead of levels, by column
    level_counts: NDArray[np.int64] | None = None  # (D,) numbers of levels that have places, L in all; 0 for others
    num_rows: NDArray[np.int64] | None = None  # (V,) distinct training rows of each leaf, at least, where it is known


class Tree(NamedTuple):
    """One tree of n nodes, the root first, as its library numbers them; only `children` is read at leaves."""

    children: NDArray[Any]  # (n, 2) left and right child; negative at leaves
    column: NDArray[Any]  # (n,)
    threshold: NDArray[Any]  # (n,) float32 or float64
    missing_left: NDArray[Any]  # (n,)
    categories: dict[int, NDArray[Any]] = {}  # of each node without a threshold: whole numbers on its one side


class Categories(NamedTuple):
    """The nodes that test categories, and their sets of categories, as fields of :class:`Trees`."""

    category_set: NDArray[np.int32]
    category_sets: NDArray[np.uint32]
    category_bounds: list[NDArray[np.float64]]


def joined(
    trees: list[Tree],
    num_columns: int,
    *,
    categories: Categories | None = None,
    zero_is_missing: NDArray[np.bool_] | None = None,
    weights: Any = None,
    handles_missing: bool = True,
) -> Trees:
    """
    Join trees of the same D columns side by side.

    :param categories: The nodes that test categories. (Default: those of the trees, which go left.)
    :param zero_is_missing: `D` flags. (Default: none.)
    :param weights: `m` weights, 0 or more. (Default: all the same.)
    :param handles_missing: Whether the ensemble takes missing values.
    :raises ValueError: If there are no trees, a weight is negative or all are 0, or a column has both categories and
        thresholds.
    """
    starts = _node_starts(trees)
    children = np.concatenate([tree.children + start for tree, start in zip(trees, starts)])
    is_inner = np.concatenate([tree.children[:, 0] >= 0 for tree in trees])
    column = np.where(is_inner, np.concatenate([tree.column for tree in trees]), 0).astype(np.int32)
    threshold = np.concatenate([tree.threshold for tree in trees])
    if categories is None:
        categories = whole_number_categories(trees, num_columns, on_left=True)
    compares = is_inner & (categories.category_set < 0)
    _check_columns(column[compares], column[categories.category_set >= 0])
    return Trees(
        column=column,
        threshold=np.where(compares, threshold, threshold.dtype.type(np.inf)),
        children=np.where(is_inner[:, None], children, np.arange(len(children))[:, None]).astype(np.int32),
        missing_left=np.concatenate([tree.missing_left for tree in trees]).astype(bool),
        **categories._asdict(),
        zero_is_missing=np.zeros(num_columns, bool) if zero_is_missing is None else zero_is_missing,
        tree_nodes=starts,
        weights=_average_one(np.ones(len(trees)) if weights is None else np.asarray(weights, np.float64)),
        handles_missing=handles_missing,
    )


def whole_number_categories(
    trees: list[Tree], num_columns: int, *, on_left: bool, zero_begins: float = 0.0
) -> Categories:
    """
    Return the categories of trees in which category c is all numbers from c to below c + 1.

    :param on_left: Whether the categories of a node go left; all others go to the other side.
    :param zero_begins: The number where category 0 begins.
    """
    nodes = np.array([s + node for tree, s in zip(trees, _node_starts(trees)) for node in tree.categories], np.int64)
    members = [np.asarray(values, np.float64) for tree in trees for values in tree.categories.values()]
    row, value = np.repeat(np.arange(len(members)), [*map(len, members)]), np.concatenate([np.empty(0), *members])
    column = np.concatenate([tree.column for tree in trees])[nodes][row]
    bounds, rank = [np.empty(0)] * num_columns, np.zeros(len(value), np.int64)
    for number in np.unique(column):
        own = column == number
        bounds[number] = np.unique([value[own], value[own] + 1])
        rank[own] = np.searchsorted(bounds[number], value[own], side="right")
        bounds[number] = np.where(bounds[number] == 0, zero_begins, bounds[number])
    sets = np.zeros((len(members), max(map(len, bounds), default=0) // 32 + 1), np.uint32)
    np.bitwise_or.at(sets, (row, rank >> 5), np.uint32(1) << (rank & 31).astype(np.uint32))
    category_set = np.full(sum(len(tree.column) for tree in trees), -1, np.int32)
    category_set[nodes] = np.arange(len(members))
    return Categories(category_set, sets if on_left else ~sets, bounds)


def check_fitted(ensemble: Any, is_fitted: bool) -> None:
    if not is_fitted:
        raise ValueError(f"expected a fitted ensemble: call fit(X, y) of the {type(ensemble).__name__} first")


def _node_starts(trees: list[Tree]) -> NDArray[np.int64]:
    if not trees:
        raise ValueError("expected an ensemble of one tree or more, got none: train it for one iteration or more")
    return np.cumsum([0, *(len(tree.column) for tree in trees)])


def _check_columns(compared: NDArray[np.int32], categorical: NDArray[np.int32]) -> None:
    both = np.intersect1d(compared, categorical)
    if len(both):
        raise ValueError(
            f"expected columns of categories or of numbers, got some of either in column {both[0]}: train all trees "
            "with the same columns as categories"
        )


def _average_one(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    if not (weights >= 0).all() or not weights.any():
        raise ValueError(f"expected weights of the trees of 0 or more, not all of them 0, got {weights}")
    return weights / weights.mean()
