"""
The trees of an ensemble, whichever it is, as arrays of their nodes.

scikit-learn keeps its trees in different ways, and compares points in different precisions. Here all of them become
the same arrays, from which a point's leaf can be read without the library.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Trees(NamedTuple):
    r"""
    m trees side by side: V nodes, tree after tree, the root of each first.

    A point goes left at a node if its value in the node's column is at most the threshold or, where the node has a set
    of categories, if it is among them. A missing value goes where the node says, an unknown category as well.
    """

    column: NDArray[np.int32]  # (V,) 0 at leaves
    threshold: NDArray[Any]  # (V,) float32 or float64, in which points are compared; infinity at leaves
    children: NDArray[np.int32]  # (V, 2) left and right child; a leaf is its own
    missing_left: NDArray[np.bool_]  # (V,) whether a missing value goes left
    category_set: NDArray[np.int32]  # (V,) row of `category_sets`, or -1 for a threshold
    category_sets: NDArray[np.uint32]  # (S, 8) bit c of a row says whether the column's c-th category goes left
    categories: list[NDArray[np.float64]]  # D times the values that are categories, sorted; none for thresholds
    tree_nodes: NDArray[np.int64]  # (m + 1,) where the nodes of each tree begin
    weights: NDArray[np.float64]  # (m,) weight of each tree, 1 on average
    handles_missing: bool  # whether the ensemble takes missing values
    impurity: NDArray[np.float64] | None = None  # (V,) spread of the targets in each node, where the ensemble keeps it


def trees_of(ensemble: Any) -> Trees:
    """
    The trees of a fitted ensemble. Costs :math:`O(V)` for V nodes.

    :param ensemble: A random forest, extra-trees, gradient boosting, histogram gradient boosting, AdaBoost or bagging
        of trees, isolation forest, random trees embedding, or single tree of scikit-learn.
    :raises TypeError: If it is anything else, or an ensemble of other things than trees.
    :raises ValueError: If it is not fitted, has a negative weight, or its categories are not numbers.

    Example:
        >>> from sklearn.tree import DecisionTreeRegressor
        >>> trees = trees_of(DecisionTreeRegressor().fit([[0.0], [1.0], [2.0]], [5.0, 5.0, 8.0]))
        >>> trees.threshold, trees.children.tolist()
        (array([1.5, inf, inf], dtype=float32), [[1, 2], [1, 1], [2, 2]])
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if isinstance(ensemble, (HistGradientBoostingClassifier, HistGradientBoostingRegressor)):
        return _histogram_trees(_fitted(ensemble, "_predictors"))
    return _decision_trees(ensemble)


def _decision_trees(ensemble: Any) -> Trees:
    """An ensemble of scikit-learn's decision trees, which compare in float32."""
    from sklearn.utils import get_tags

    trees, seen = zip(*_members(ensemble))
    # Of leaves the column is negative.
    columns = [t.feature if names is None else names[np.maximum(t.feature, 0)] for t, names in zip(trees, seen)]
    starts, children = _side_by_side([np.stack([tree.children_left, tree.children_right], 1) for tree in trees])
    is_inner = np.concatenate([tree.children_left >= 0 for tree in trees])
    threshold = _rounded_down(np.concatenate([tree.threshold for tree in trees]))
    return Trees(
        column=np.where(is_inner, np.concatenate(columns), 0).astype(np.int32),
        threshold=np.where(is_inner, threshold, np.float32(np.inf)),
        children=_closed(children, is_inner),
        missing_left=np.concatenate([tree.missing_go_to_left for tree in trees]).astype(bool),
        category_set=np.full(len(is_inner), -1, np.int32),
        category_sets=np.empty((0, 8), np.uint32),
        categories=[np.empty(0)] * ensemble.n_features_in_,
        tree_nodes=starts,
        weights=_weights(ensemble, len(trees)),
        handles_missing=get_tags(ensemble).input_tags.allow_nan,
        impurity=np.concatenate([tree.impurity for tree in trees]),
    )


def _members(ensemble: Any) -> list[tuple[Any, NDArray[np.int64] | None]]:
    """The tree structures of an ensemble, and of each which columns it sees (None for all)."""
    from sklearn.ensemble import BaseEnsemble
    from sklearn.tree import BaseDecisionTree

    name = type(ensemble).__name__
    if isinstance(ensemble, BaseDecisionTree):
        return [(_fitted(ensemble, "tree_").tree_, None)]
    if not isinstance(ensemble, BaseEnsemble):
        raise TypeError(
            "expected a fitted tree ensemble of scikit-learn (a random forest, extra-trees, gradient boosting, "
            f"AdaBoost or bagging of trees, isolation forest, random trees embedding, or a single tree), got {name}"
        )
    estimators = _fitted(ensemble, "estimators_").estimators_
    estimators = list(estimators.ravel() if isinstance(estimators, np.ndarray) else estimators)
    for member in estimators:
        if not isinstance(member, BaseDecisionTree):
            raise TypeError(f"expected a {name} of decision trees, got one of {type(member).__name__}")
    seen = getattr(ensemble, "estimators_features_", repeat(None))
    return [(member.tree_, columns) for member, columns in zip(estimators, seen)]


def _histogram_trees(boosting: Any) -> Trees:
    """Histogram gradient boosting, which compares in float64 and knows categories."""
    predictors = [predictor for iteration in boosting._predictors for predictor in iteration]
    nodes = np.concatenate([predictor.nodes for predictor in predictors])
    is_inner, is_category = nodes["is_leaf"] == 0, nodes["is_categorical"] == 1
    sets = [predictor.raw_left_cat_bitsets for predictor in predictors]
    first_set = np.repeat(_starts(sets)[:-1], [len(predictor.nodes) for predictor in predictors])
    order, categories = _categories(boosting)
    starts, children = _side_by_side(
        [np.stack([p.nodes["left"], p.nodes["right"]], 1).astype(np.int64) for p in predictors]
    )
    return Trees(
        column=np.where(is_inner, order[nodes["feature_idx"]], 0).astype(np.int32),
        threshold=np.where(is_inner & ~is_category, nodes["num_threshold"], np.inf),
        children=_closed(children, is_inner),
        missing_left=nodes["missing_go_to_left"].astype(bool),
        category_set=np.where(is_inner & is_category, first_set + nodes["bitset_idx"], -1).astype(np.int32),
        category_sets=np.concatenate(sets),
        categories=categories,
        tree_nodes=starts,
        weights=np.ones(len(predictors)),
        handles_missing=True,
    )


def _categories(boosting: Any) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """The column of the data that each column of the trees is, and for each of the data its categories."""
    categories = [np.empty(0)] * boosting.n_features_in_
    if boosting.is_categorical_ is None:
        return np.arange(boosting.n_features_in_), categories
    places = np.flatnonzero(boosting.is_categorical_)
    found = boosting._preprocessor.named_transformers_["encoder"].categories_
    for column, values in zip(places, found):
        if not np.issubdtype(np.asarray(values).dtype, np.number):
            raise ValueError(
                f"expected categories that are numbers, got {values[0]!r} in column {column}: encode the columns, and "
                "fit the ensemble on the numbers that the kernel will see"
            )
        categories[column] = np.asarray(values, np.float64)[~np.isnan(np.asarray(values, np.float64))]
    return np.concatenate([places, np.flatnonzero(~boosting.is_categorical_)]), categories


def _fitted(ensemble: Any, attribute: str) -> Any:
    if not hasattr(ensemble, attribute):
        name = type(ensemble).__name__
        raise ValueError(f"expected a fitted ensemble: call fit(X, y) of the {name} first")
    return ensemble


def _starts(parts: list[Any]) -> NDArray[np.int64]:
    """Where each part begins, and the last one ends."""
    return np.cumsum([0, *map(len, parts)])


def _side_by_side(pairs: list[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Where the nodes of each tree begin, and the children of all nodes, numbered throughout."""
    starts = _starts(pairs)
    return starts, np.concatenate([pair + start for pair, start in zip(pairs, starts)])


def _closed(children: NDArray[Any], is_inner: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Children, where a leaf is its own."""
    return np.where(is_inner[:, None], children, np.arange(len(children))[:, None]).astype(np.int32)


def _weights(ensemble: Any, num_trees: int) -> NDArray[np.float64]:
    """What the ensemble gives its trees, 1 on average."""
    weights = np.asarray(getattr(ensemble, "estimator_weights_", np.ones(num_trees)), np.float64)[:num_trees]
    if not (weights >= 0).all() or not weights.any():
        raise ValueError(f"expected weights of the trees of 0 or more, not all of them 0, got {weights}")
    return weights / weights.mean()


def _rounded_down(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest float32 not above each float64: x <= value is the same for every float32 x."""
    nearest = values.astype(np.float32)
    return np.where(nearest > values, np.nextafter(nearest, np.float32(-np.inf)), nearest)
