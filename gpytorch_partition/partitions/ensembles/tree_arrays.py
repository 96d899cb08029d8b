"""
The trees of an ensemble, of any library or given as arrays, as arrays of their nodes, by which a point's leaf is found
without the library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpytorch_partition.inputs.numbers import checked_count

ENCODE = (
    "fit the ensemble on an array of codes, as of OrdinalEncoder of scikit-learn, with categorical_feature of "
    "LightGBM, feature_types of XGBoost"
)
NUMBERS = "encode the columns, and fit the ensemble on the numbers that the kernel will see"
ZERO = float(np.float32(1e-35))  # LightGBM takes values up to this magnitude for zero (its kZeroThreshold)


class Trees(NamedTuple):
    r"""
    Hold trees of an ensemble side by side: m trees with V nodes, tree after tree, the root of each first.

    A point goes left at a node if its value in the node's column is at most the threshold. Where the node has a set of
    categories, it goes left if the range of numbers around the value is in the set. A missing value goes where
    `missing_left` sends it. In columns with `level_counts` values are levels 0, 1, ..., and other values are missing.
    There each tree gives its levels an order, and thresholds are compared with the place of a level in it.
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
    """Hold one tree of n nodes, the root first, as its library numbers them. At leaves only `children` is used."""

    children: NDArray[Any]  # (n, 2) left and right child; negative at leaves
    column: NDArray[Any]  # (n,)
    threshold: NDArray[Any]  # (n,) float32 or float64
    missing_left: NDArray[Any]  # (n,)
    categories: dict[int, NDArray[Any]] = {}  # of each node without a threshold: whole numbers on its one side


class Categories(NamedTuple):
    """Hold the nodes that test categories, and their sets of categories, as fields of :class:`Trees`."""

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
    """Return trees of the same D columns side by side; by default, the categories of a node go left."""
    starts = _node_starts(trees)
    children = np.concatenate([tree.children + start for tree, start in zip(trees, starts)])
    is_inner = np.concatenate([tree.children[:, 0] >= 0 for tree in trees])
    column = np.where(is_inner, np.concatenate([tree.column for tree in trees]), 0).astype(np.int32)
    threshold = np.concatenate([tree.threshold for tree in trees])
    if categories is None:
        categories = whole_number_categories(trees, num_columns, on_left=True)
    weights = np.ones(len(trees)) if weights is None else np.asarray(weights, np.float64)
    if not (weights >= 0).all() or not weights.any():
        raise ValueError(f"expected weights of the trees of 0 or more, not all of them 0, got {weights}")
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
        weights=weights / weights.mean(),
        handles_missing=handles_missing,
    )


def whole_number_categories(
    trees: list[Tree], num_columns: int, *, on_left: bool, zero_begins: float = 0.0
) -> Categories:
    r"""
    Return the categories of trees where a number x counts as category c if :math:`c \le x < c + 1`.

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


def testing_levels(trees: list[Tree], tables: Mapping[int, Sequence[Any]]) -> list[Tree]:
    """
    Return trees that test the levels of a data frame, where its library has put codes for them.

    :param tables: For each column of categories its levels, in the order of their codes.
    :raises ValueError: If a level is no whole number of 0 or more, which rows of the trees' dtype could hold.
    """
    exact = 2.0 ** (np.finfo(trees[0].threshold.dtype).nmant + 1) if trees else 0.0
    levels = {column: _whole_numbers(table, exact) for column, table in tables.items()}
    decoded = []
    for tree in trees:
        columns = {node: int(tree.column[node]) for node in tree.categories}
        found = {n: levels[columns[n]][c] if columns[n] in levels else c for n, c in tree.categories.items()}
        decoded.append(tree._replace(categories=found))
    return decoded


def with_codes(X: NDArray[Any], tables: Mapping[int, Sequence[Any]]) -> NDArray[Any]:
    """Return rows with codes in place of levels, as a library takes them; NaN for other numbers."""
    X = np.array(X)
    for column, levels in tables.items():
        codes = {float(level): code for code, level in enumerate(levels)}
        values, places = np.unique(X[:, column], return_inverse=True)
        X[:, column] = np.array([codes.get(float(value), np.nan) for value in values])[places]
    return X


def _whole_numbers(levels: Sequence[Any], exact: float) -> NDArray[np.int64]:
    if not all(_is_whole(level) and level <= exact for level in levels):
        raise ValueError(
            f"expected categories that are whole numbers from 0 to {exact:,.0f}, as the kernel will see them, got a "
            f"data frame's {list(levels[:3])}: {ENCODE}"
        )
    return np.asarray(levels).astype(np.int64)


def _is_whole(level: Any) -> bool:
    return isinstance(level, (Real, np.bool_)) and float(level) >= 0 and float(level).is_integer()


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


def array_trees(
    trees: Iterable[tuple[Any, Any, Any]], num_columns: int, *, weights: Sequence[float] | None = None
) -> Trees:
    r"""
    Return trees given as arrays, from any program, as :class:`Trees`, in :math:`O(V)`.

    A node with k children sends a point to child j if its value x in the node's column has :math:`t_{j-1} < x \le t_j`,
    with :math:`t_0 = -\infty, t_k = \infty`. With two children, values up to the threshold go to the first. A split by
    categories 0, 1, 2 has the thresholds .5 and 1.5. Comparisons are in float64, and missing values are refused. Splits
    into more than two become several binary ones of one level.

    :param trees: For each tree its children (`n x k`, integers; the root is node 0, and negative numbers are no child),
        columns (`n` integers) and thresholds (`n`, or `n x (k - 1)`, increasing), which are not read at leaves.
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
    if not isinstance(trees, Iterable):
        raise TypeError(f"expected a list of trees, (children, columns, thresholds) each, got {type(trees).__name__}")
    listed = list(trees)
    if weights is not None and np.shape(weights) != (len(listed),):
        raise ValueError(f"expected {len(listed)} weights, one for each tree, got shape {np.shape(weights)}")
    checked = [_GivenTree(number, num_columns, arrays) for number, arrays in enumerate(listed)]
    binary = [tree.binary() for tree in checked]
    is_auxiliary = np.concatenate([np.zeros(0, bool), *(part for _, part in binary)])
    found = joined([tree for tree, _ in binary], num_columns, weights=weights, handles_missing=False)
    return found._replace(is_auxiliary=is_auxiliary) if is_auxiliary.any() else found


class _GivenTree:
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
                f"expected the thresholds of {self.name} as numbers, a row for each of {size} nodes: fill rows up with "
                "0"
            ) from error

    def _check_nodes(self, num_columns: int) -> None:
        size, inner, is_child = len(self.children), self.counts > 0, self.children >= 0
        self._refuse(self.counts == 1, "nodes with two children or more, or none")
        gaps = np.logical_or.reduce(np.diff(is_child.astype(int), axis=1) > 0, axis=1)
        self._refuse(gaps, "children first and then -1 in a row")
        children = np.sort(self.children[is_child])
        if not np.array_equal(children, np.arange(1, size)):
            raise ValueError(
                f"expected the root of {self.name} to be node 0, and all nodes 1 to {size - 1} to be the child of one "
                f"node each, got children {children.tolist()[:10]}"
            )
        outside = inner & ((self.column < 0) | (self.column >= num_columns))
        self._refuse(outside, f"columns from 0 to {num_columns - 1}")
        used = np.arange(self.threshold.shape[1]) < self.counts[:, None] - 1
        wrong = np.isnan(self.threshold) & used
        wrong[:, 1:] |= (np.diff(self.threshold, axis=1) <= 0) & used[:, 1:]
        self._refuse(wrong.any(1), "thresholds that increase")

    def _refuse(self, wrong: NDArray[np.bool_], expected: str) -> None:
        if wrong.any():
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
