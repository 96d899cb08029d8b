"""The reader of scikit-learn's trees, which compare in float32, or in float64 in histogram gradient boosting."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import BaseEnsemble, HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.tree import BaseDecisionTree
from sklearn.utils import get_tags

from gpytorch_partition.partitions.ensembles.tree_arrays import NUMBERS, Categories, Tree, Trees, check_fitted, joined


def scikit_learn_trees(ensemble: Any) -> Trees:
    """Read the trees of a fitted ensemble of scikit-learn; leaves have the numbers of its `apply`."""
    if isinstance(ensemble, (HistGradientBoostingClassifier, HistGradientBoostingRegressor)):
        check_fitted(ensemble, hasattr(ensemble, "_predictors"))
        return _histogram_trees(ensemble)
    return _decision_trees(ensemble)


def _decision_trees(ensemble: Any) -> Trees:
    members = _members(ensemble)
    trees = [
        Tree(
            np.stack([tree.children_left, tree.children_right], 1),
            tree.feature if columns is None else columns[tree.feature.clip(0)],
            _rounded_down(tree.threshold),
            tree.missing_go_to_left,
        )
        for tree, columns in ((member.tree_, columns) for member, columns in members)
    ]
    found = joined(
        trees,
        ensemble.n_features_in_,
        # AdaBoost allocates more weights than it has trees if it stopped early.
        weights=getattr(ensemble, "estimator_weights_", np.ones(len(trees)))[: len(trees)],
        handles_missing=get_tags(ensemble).input_tags.allow_nan,
    )
    found = found._replace(
        impurity=np.concatenate([member.tree_.impurity for member, _ in members]),
        num_rows=np.concatenate([member.tree_.n_node_samples for member, _ in members]),
    )
    return _with_places(found, [member for member, _ in members])


def _with_places(trees: Trees, members: list[Any]) -> Trees:
    places = [getattr(member, "level_places_", {}) for member in members]
    if not any(places):
        return trees
    counts = np.zeros(len(trees.category_bounds), np.int64)
    counts[list(places[0])] = [len(own) for own in places[0].values()]
    table = np.stack([np.concatenate([own[column] for column in sorted(own)]) for own in places])
    return trees._replace(level_places=table, level_counts=counts)


def _members(ensemble: Any) -> list[tuple[Any, NDArray[np.int64] | None]]:
    name = type(ensemble).__name__
    if isinstance(ensemble, BaseDecisionTree):
        check_fitted(ensemble, hasattr(ensemble, "tree_"))
        return [(ensemble, None)]
    if not isinstance(ensemble, BaseEnsemble):
        raise TypeError(
            "expected a fitted tree ensemble of scikit-learn (random forest, extra-trees, boosting, bagging of trees, "
            f"isolation forest, random trees embedding, single tree), LightGBM, XGBoost or CatBoost, got {name}"
        )
    check_fitted(ensemble, hasattr(ensemble, "estimators_"))
    estimators = ensemble.estimators_
    estimators = list(estimators.ravel() if isinstance(estimators, np.ndarray) else estimators)
    for member in estimators:
        if not isinstance(member, BaseDecisionTree):
            raise TypeError(f"expected a {name} of decision trees, got one of {type(member).__name__}")
    subsets = getattr(ensemble, "estimators_features_", repeat(None))
    return list(zip(estimators, subsets))


def _histogram_trees(boosting: Any) -> Trees:
    predictors = [predictor for iteration in boosting._predictors for predictor in iteration]
    order, categories = _categories(boosting)
    trees = []
    for nodes in (predictor.nodes for predictor in predictors):
        children = np.stack([nodes["left"], nodes["right"]], 1).astype(np.int64)
        children[nodes["is_leaf"] == 1] = -1
        trees.append(Tree(children, order[nodes["feature_idx"]], nodes["num_threshold"], nodes["missing_go_to_left"]))
    found = joined(trees, boosting.n_features_in_, categories=_category_sets(predictors, categories))
    counts = np.concatenate([predictor.nodes["count"] for predictor in predictors])
    return found._replace(num_rows=counts.astype(np.int64))


def histogram_values(boosting: Any) -> NDArray[np.float64]:
    """Return the value of each node (`V`) of a fitted histogram gradient boosting, in the order of its trees."""
    return np.concatenate([predictor.nodes["value"] for iteration in boosting._predictors for predictor in iteration])


def _categories(boosting: Any) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    categories = [np.empty(0)] * boosting.n_features_in_
    if boosting.is_categorical_ is None:
        return np.arange(boosting.n_features_in_), categories
    places = np.flatnonzero(boosting.is_categorical_)
    found = boosting._preprocessor.named_transformers_["encoder"].categories_
    for column, values in zip(places, found):
        if not np.issubdtype(np.asarray(values).dtype, np.number):
            raise ValueError(f"expected categories that are numbers, got {values[0]!r} in column {column}: {NUMBERS}")
        categories[column] = np.asarray(values, np.float64)[~np.isnan(np.asarray(values, np.float64))]
    return np.concatenate([places, np.flatnonzero(~boosting.is_categorical_)]), categories


def _category_sets(predictors: list[Any], categories: list[NDArray[np.float64]]) -> Categories:
    """Categories of single numbers; numbers between them are unknown categories, and go where missing values go."""
    nodes = np.concatenate([predictor.nodes for predictor in predictors])
    sets = [predictor.raw_left_cat_bitsets for predictor in predictors]
    first = np.repeat(np.cumsum([0, *map(len, sets)])[:-1], [len(predictor.nodes) for predictor in predictors])
    by_category = (nodes["is_leaf"] == 0) & (nodes["is_categorical"] == 1)
    row = np.where(by_category, first + nodes["bitset_idx"], -1).astype(np.int32)
    known = np.unpackbits(np.concatenate(sets).view(np.uint8), axis=1, bitorder="little")
    unknown = np.zeros_like(known)
    unknown[row[by_category]] = nodes["missing_go_to_left"][by_category, None]
    ranges = np.stack([unknown, known], 2).reshape(-1, 2 * known.shape[1])
    bounds = [np.stack([values, np.nextafter(values, np.inf)], 1).ravel() for values in categories]
    return Categories(row, np.packbits(ranges, axis=1, bitorder="little").view(np.uint32), bounds)


def _rounded_down(values: NDArray[np.float64]) -> NDArray[np.float32]:
    nearest = values.astype(np.float32)
    return np.where(nearest > values, np.nextafter(nearest, np.float32(-np.inf)), nearest)
