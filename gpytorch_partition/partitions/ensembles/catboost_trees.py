"""The reader of CatBoost's trees, which compare in float32, from its JSON format."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from gpytorch_partition.partitions.ensembles.tree_arrays import (
    Tree,
    Trees,
    check_fitted,
    joined,
    whole_number_categories,
)

# Candidates for categories, found by their hashes: CatBoost stores only the hashes of categories.
_WHOLE_NUMBERS = range(-(2**10), 2**16)


class _Split(NamedTuple):
    """The test of a node: values above the threshold, or one of the categories, go right."""

    column: int
    threshold: float
    missing_left: bool
    categories: list[int] | None = None


_LEAF = _Split(0, np.inf, False)


def catboost_trees(model: Any) -> Trees:
    """
    Read the trees of a model of CatBoost.

    A symmetric tree has one split for all nodes of a level. With depth d it becomes a tree of :math:`2^d` leaves (many
    may be empty); leaf j is node :math:`2^d - 1 + j`. Leaves of other trees are numbered from left to right, unlike in
    CatBoost. Missing values go where `nan_mode` sends them. Categories are whole numbers from -1,024 to 65,535; unknown
    and missing ones go left. The model lacks the trees that CatBoost dropped for the best iteration.

    :raises ValueError: If the model is not fitted or has no trees, or numbers do not determine a leaf: categories that
        are strings or whose statistics the trees compare, texts, embeddings.
    """
    check_fitted(model, model.is_fitted())
    description = _description(model)
    reader = _Reader(description["features_info"])
    if "oblivious_trees" in description:
        trees = [_symmetric_tree([*map(reader.split, tree["splits"])]) for tree in description["oblivious_trees"]]
    else:
        trees = [_binary_tree(tree, reader) for tree in description["trees"]]
    num_columns = len(model.feature_names_)
    return joined(trees, num_columns, categories=whole_number_categories(trees, num_columns, on_left=False))


def _description(model: Any) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json", pool=_pool(model))
        return json.loads(path.read_text(encoding="utf-8"))


def _pool(model: Any) -> Any:
    """A pool with whole numbers in one column of categories: descriptions hold the hashes of these categories only."""
    columns = model.get_cat_feature_indices()
    if not columns:
        return None
    numbers, rows = np.array(_WHOLE_NUMBERS, np.int32), np.arange(len(_WHOLE_NUMBERS))
    shape = len(rows), len(model.feature_names_)
    data = csr_matrix((numbers, (rows, np.full(len(rows), columns[0]))), shape=shape)
    # The model's own library has been imported already.
    return sys.modules["catboost"].Pool(data, cat_features=columns)


class _Reader:
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
            f"expected splits that compare a number or a category, got {split['split_type']}, which compares "
            "statistics of the training targets: train CatBoost with a one_hot_max_size of at least the number of "
            "categories in each column, or without cat_features, text_features and embedding_features"
        )

    def _category(self, split: dict[str, Any], feature: dict[str, Any]) -> list[int]:
        numbers = self.hashed.get(split["value"] % 2**32)
        if numbers is None:
            raise ValueError(
                f"expected categories that are whole numbers from {_WHOLE_NUMBERS[0]} to {_WHOLE_NUMBERS[-1]}, got "
                f"others in column {feature['flat_feature_index']}: encode the columns, and fit the ensemble on the "
                "numbers that the kernel will see"
            )
        return numbers


def _symmetric_tree(splits: list[_Split]) -> Tree:
    """A tree with one split per level; bit i of a node's number within its level is the side taken on level i."""
    children, repeats = [], [2**level for level in range(len(splits))]
    for level in range(len(splits)):
        left = 2 ** (level + 1) - 1 + np.arange(2**level)
        children.append(np.stack([left, left + 2**level], 1))
    children.append(np.full((2 ** len(splits), 2), -1))
    return _tree_of(np.concatenate(children), [*splits, _LEAF], [*repeats, 2 ** len(splits)])


def _binary_tree(root: dict[str, Any], reader: _Reader) -> Tree:
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
    return _tree_of(np.array(children), splits, [1] * len(splits))


def _tree_of(children: NDArray[np.int64], splits: list[_Split], repeats: list[int]) -> Tree:
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
