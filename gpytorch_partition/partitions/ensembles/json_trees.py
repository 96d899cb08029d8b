"""Readers of JSON formats: of CatBoost and XGBoost, whose trees compare in float32, and of BART models of stochtree."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from gpytorch_partition.inputs.numbers import is_whole
from gpytorch_partition.partitions.ensembles.tree_arrays import (
    ENCODE,
    NUMBERS,
    Tree,
    Trees,
    check_fitted,
    joined,
    testing_levels,
    whole_number_categories,
)

# Candidates for categories, found by their hashes: CatBoost stores only the hashes of categories.
_WHOLE_NUMBERS = range(-(2**10), 2**16)


class _Split(NamedTuple):
    column: int
    threshold: float
    missing_left: bool
    categories: list[int] | None = None


_LEAF = _Split(0, np.inf, False)


def catboost_trees(model: Any) -> Trees:
    """
    Read the trees of a model of CatBoost.

    A symmetric tree of depth d becomes a tree of :math:`2^d` leaves (many may be empty); leaf j is node :math:`2^d - 1
    + j`. Leaves of others are numbered from left to right. Missing values go where `nan_mode` sends them; categories
    are whole numbers from -1,024 to 65,535, and unknown and missing ones go left.
    """
    check_fitted(model, model.is_fitted())
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json", pool=_catboost_pool(model))
        description = json.loads(path.read_text(encoding="utf-8"))
    reader = _CatBoostReader(description["features_info"])
    if "oblivious_trees" in description:
        trees = [_catboost_symmetric([*map(reader.split, tree["splits"])]) for tree in description["oblivious_trees"]]
    else:
        trees = [_catboost_binary(tree, reader) for tree in description["trees"]]
    num_columns = len(model.feature_names_)
    return joined(trees, num_columns, categories=whole_number_categories(trees, num_columns, on_left=False))


def _catboost_pool(model: Any) -> Any:
    """A pool with whole numbers in one column of categories: descriptions hold the hashes of these categories only."""
    columns = model.get_cat_feature_indices()
    if not columns:
        return None
    numbers, rows = np.array(_WHOLE_NUMBERS, np.int32), np.arange(len(_WHOLE_NUMBERS))
    shape = len(rows), len(model.feature_names_)
    data = csr_matrix((numbers, (rows, np.full(len(rows), columns[0]))), shape=shape)
    # The model's own library has been imported already.
    return sys.modules["catboost"].Pool(data, cat_features=columns)


class _CatBoostReader:
    def __init__(self, features: dict[str, Any]) -> None:
        self.numbers = {feature["feature_index"]: feature for feature in features.get("float_features", [])}
        self.categories = {feature["feature_index"]: feature for feature in features.get("categorical_features", [])}
        self.hashed: dict[int, list[int]] = {}
        for known in features.get("cat_features_hash", []):
            self.hashed.setdefault(known["hash"], []).append(int(known["value"]))

    def split(self, split: dict[str, Any]) -> _Split:
        if split["split_type"] == "FloatFeature":
            feature = self.numbers[split["float_feature_index"]]
            # NaN is below all borders or above all of them; without NaN in training it is above none.
            missing_left = feature["nan_value_treatment"] != "AsTrue"
            return _Split(feature["flat_feature_index"], split["border"], missing_left)
        if split["split_type"] == "OneHotFeature":
            feature = self.categories[split["cat_feature_index"]]
            return _Split(feature["flat_feature_index"], np.inf, True, self._category(split, feature))
        raise ValueError(
            f"expected splits that compare a number or a category, got {split['split_type']}, by statistics of y: "
            "train CatBoost with a one_hot_max_size of all categories in a column, or without features of other kinds"
        )

    def _category(self, split: dict[str, Any], feature: dict[str, Any]) -> list[int]:
        numbers = self.hashed.get(split["value"] % 2**32)
        if numbers is None:
            raise ValueError(
                f"expected categories that are whole numbers from {_WHOLE_NUMBERS[0]} to {_WHOLE_NUMBERS[-1]}, got "
                f"others in column {feature['flat_feature_index']}: {NUMBERS}"
            )
        return numbers


def _catboost_symmetric(splits: list[_Split]) -> Tree:
    """A tree with one split per level; bit i of a node's number within its level is the side taken on level i."""
    children, repeats = [], [2**level for level in range(len(splits))]
    for level in range(len(splits)):
        left = 2 ** (level + 1) - 1 + np.arange(2**level)
        children.append(np.stack([left, left + 2**level], 1))
    children.append(np.full((2 ** len(splits), 2), -1))
    return _catboost_tree(np.concatenate(children), [*splits, _LEAF], [*repeats, 2 ** len(splits)])


def _catboost_binary(root: dict[str, Any], reader: _CatBoostReader) -> Tree:
    splits: list[_Split] = []
    children: list[list[int]] = []
    waiting = [(root, -1, 0)]
    while waiting:
        node, parent, side = waiting.pop()
        if parent >= 0:
            children[parent][side] = len(splits)
        if "split" in node:
            waiting += [(node["right"], len(splits), 1), (node["left"], len(splits), 0)]
        splits.append(reader.split(node["split"]) if "split" in node else _LEAF)
        children.append([-1, -1])
    return _catboost_tree(np.array(children), splits, [1] * len(splits))


def _catboost_tree(children: NDArray[np.int64], splits: list[_Split], repeats: list[int]) -> Tree:
    first = np.cumsum([0, *repeats])
    categories = {
        int(node): np.array(split.categories)
        for split, start, count in zip(splits, first, repeats)
        if split.categories is not None
        for node in range(start, start + count)
    }
    return Tree(
        children,
        np.repeat([split.column for split in splits], repeats),
        np.repeat(np.array([split.threshold for split in splits], np.float32), repeats),
        np.repeat([split.missing_left for split in splits], repeats),
        categories,
    )


def xgboost_trees(model: Any) -> Trees:
    """
    Read the trees that the `predict` of an XGBoost model uses: up to the best iteration, if it stopped early.

    Leaves have the numbers of `apply`, if the trees were not pruned. Trees of DART have its weights. A missing value is
    NaN. Categories are numbers truncated to integers; negative and unknown ones go left.
    """
    booster, best = model, None
    if hasattr(model, "get_booster"):
        check_fitted(model, model.__sklearn_is_fitted__())
        if not np.isnan(model.missing):
            raise ValueError(
                f"expected missing=nan, got missing={model.missing} in the {type(model).__name__}: fit it on rows with "
                "NaN, as the kernel will see them"
            )
        booster, best = model.get_booster(), getattr(model, "best_iteration", None)
    learner = json.loads(booster.save_raw(raw_format="json"))["learner"]
    boosting = learner["gradient_booster"]
    if boosting["name"] not in ("gbtree", "dart"):
        raise ValueError(f"expected an XGBoost model of trees, got {boosting['name']}: train one with booster='gbtree'")
    grown = boosting.get("gbtree", boosting)["model"]
    num_trees = grown["iteration_indptr"][-1 if best is None else best + 1]
    num_columns = int(learner["learner_model_param"]["num_feature"])
    trees = [_xgboost_tree(tree) for tree in grown["trees"][:num_trees]]
    trees = testing_levels(trees, _level_tables(learner, trees))
    return joined(
        trees,
        num_columns,
        categories=whole_number_categories(trees, num_columns, on_left=False),
        weights=boosting["weight_drop"][:num_trees] if "weight_drop" in boosting else None,
    )


def level_tables(booster: Any) -> dict[int, list[Any]]:
    """Return the levels of each column of categories of the data frame that an XGBoost booster was fitted to."""
    return _level_tables(json.loads(booster.save_raw(raw_format="json"))["learner"], [])


def _level_tables(learner: dict[str, Any], trees: list[Tree]) -> dict[int, list[Any]]:
    """Return the levels of columns of categories; a `ValueError` where XGBoost has not kept those of a data frame."""
    boosting = learner["gradient_booster"]
    cats = boosting.get("gbtree", boosting)["model"].get("cats")
    if cats is None and learner["feature_names"] and any(tree.categories for tree in trees):
        raise ValueError(f"expected a table of the frame's categories, which XGBoost 3.1 and later keeps: {ENCODE}")
    columns = enumerate([] if cats is None else cats["enc"])
    found = {column: ["text"] if each.get("offsets") else each["values"] for column, each in columns}
    return {column: levels for column, levels in found.items() if levels}


def _xgboost_tree(tree: dict[str, Any]) -> Tree:
    """A tree without pruned nodes, which are no other node's children."""
    children = np.stack([tree["left_children"], tree["right_children"]], 1)
    kept = np.zeros(len(children), bool)
    kept[[0, *children[children >= 0]]] = True
    number = np.cumsum(kept) - 1
    threshold = np.asarray(tree["split_conditions"], np.float32)
    return Tree(
        np.where(children >= 0, number[children], -1)[kept],
        np.asarray(tree["split_indices"])[kept],
        # x < threshold, as x <= the float before it
        np.nextafter(threshold, np.float32(-np.inf))[kept],
        np.asarray(tree["default_left"])[kept],
        {int(number[node]): values for node, values in _xgboost_categories(tree).items()},
    )


def _xgboost_categories(tree: dict[str, Any]) -> dict[int, NDArray[Any]]:
    starts, sizes, values = (np.asarray(tree[f"categories{name}"], np.int64) for name in ("_segments", "_sizes", ""))
    return {
        node: values[start : start + size]
        for node, start, size in zip(tree["categories_nodes"], starts, sizes)
        if tree["left_children"][node] >= 0
    }


def bart_trees(model: Any, *, draws: Iterable[int] | None = None, draw_weights: Sequence[float] | None = None) -> Trees:
    """
    Read the trees of the posterior draws of a BART model (Chipman, George & McCulloch 2010), draw after draw.

    A draw is a sum of some 200 small trees, so all draws have thousands of trees; some 10 draws, far apart, are nearly
    as good. Trees are those of the mean. Missing values and values up to a threshold go left.

    :param model: A `BARTModel` of stochtree, or its `StochTreeBARTRegressor` or `StochTreeBARTBinaryClassifier`.
    :param draws: Numbers of the draws to read, from 0. (Default: all that the model keeps.)
    :param draw_weights: A weight for each draw, 0 or more, such as from importance sampling. (Default: all the same.)
    :raises TypeError: If `model` is none of these.
    :raises ValueError: If the model is not sampled or has no trees of the mean, columns hold other values than
        numbers, or draws or their weights do not fit.
    """
    model = _sampled_bart(model)
    container = model.forest_container_mean
    num_draws = container.num_samples()
    chosen = [*range(num_draws)] if draws is None else list(draws) if isinstance(draws, Iterable) else []
    if not chosen or not all(is_whole(draw, 0, num_draws - 1) for draw in chosen):
        raise ValueError(f"expected a list of numbers of draws from 0 to {num_draws - 1}, got {draws!r}")
    if draw_weights is not None and np.shape(draw_weights) != (len(chosen),):
        raise ValueError(
            f"expected {len(chosen)} weights, one for each draw, got {draw_weights!r} of shape {np.shape(draw_weights)}"
        )
    forests = json.loads(container.dump_json_string())
    members = [forests[f"forest_{int(draw)}"] for draw in chosen]
    trees = [_bart_tree(forest[f"tree_{number}"]) for forest in members for number in range(forest["num_trees"])]
    shares = np.ones(len(members)) if draw_weights is None else np.asarray(draw_weights, float)
    weights = np.repeat(shares, [forest["num_trees"] for forest in members])
    return joined(trees, model.num_covariates, weights=weights)


def _sampled_bart(model: Any) -> Any:
    if hasattr(model, "get_params"):
        check_fitted(model, hasattr(model, "model_"))
        model = model.model_
    if not hasattr(model, "is_sampled"):
        raise TypeError(f"expected a BARTModel of stochtree or one of its estimators, got {type(model).__name__}")
    if not model.is_sampled():
        raise ValueError("expected a BARTModel with posterior draws: call sample(X_train, y_train) first")
    if not model.include_mean_forest:
        raise ValueError("expected a BARTModel with trees of the mean, got one of the variance only")
    features = model._covariate_preprocessor
    if features._num_onehot_features or features._num_ordinal_features:
        raise ValueError(
            f"expected a BARTModel of columns of numbers, got one that encodes categories itself: {NUMBERS}"
        )
    return model


def _bart_tree(arrays: dict[str, Any]) -> Tree:
    if arrays["has_categorical_split"]:
        raise ValueError("expected splits that compare numbers, got some by categories: encode these columns")
    kept = ~np.array(arrays["node_deleted"], bool)
    number = np.append(np.cumsum(kept) - 1, -1)  # new numbers; -1 stays
    children = number[np.stack([arrays["left"], arrays["right"]], 1)][kept]
    threshold = np.array(arrays["threshold"], np.float64)[kept]
    return Tree(children, np.array(arrays["split_index"])[kept], threshold, np.ones(kept.sum(), bool))
