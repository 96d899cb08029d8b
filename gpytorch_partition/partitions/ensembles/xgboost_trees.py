"""The reader of XGBoost's trees, which compare in float32, from its JSON format."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpytorch_partition.partitions.ensembles.tree_arrays import (
    Tree,
    Trees,
    check_fitted,
    joined,
    whole_number_categories,
)


def xgboost_trees(model: Any) -> Trees:
    """
    Read the trees that the `predict` of an XGBoost model uses: all of a `Booster`, and of an estimator that stopped
    early those up to the best iteration.

    Leaves have the numbers of `apply`, if the trees were not pruned. Trees of DART have its weights. A missing value is
    NaN. Categories are numbers truncated to integers; negative and unknown ones go left.

    :raises ValueError: If the model is not fitted or has no trees, is linear, or has another `missing` than NaN.
    """
    booster, num_iterations = _booster(model)
    learner = json.loads(booster.save_raw(raw_format="json"))["learner"]
    boosting = learner["gradient_booster"]
    if boosting["name"] not in ("gbtree", "dart"):
        raise ValueError(f"expected an XGBoost model of trees, got {boosting['name']}: train one with booster='gbtree'")
    grown = boosting.get("gbtree", boosting)["model"]
    num_trees = grown["iteration_indptr"][-1 if num_iterations is None else num_iterations]
    num_columns = int(learner["learner_model_param"]["num_feature"])
    trees = [_tree(tree) for tree in grown["trees"][:num_trees]]
    return joined(
        trees,
        num_columns,
        categories=whole_number_categories(trees, num_columns, on_left=False),
        weights=boosting["weight_drop"][:num_trees] if "weight_drop" in boosting else None,
    )


def _booster(model: Any) -> tuple[Any, int | None]:
    if not hasattr(model, "get_booster"):
        return model, None
    check_fitted(model, model.__sklearn_is_fitted__())
    if not np.isnan(model.missing):
        raise ValueError(
            f"expected missing=nan, got missing={model.missing} in the {type(model).__name__}: fit it on rows with NaN "
            "for missing values, as the kernel will see them"
        )
    best = getattr(model, "best_iteration", None)
    return model.get_booster(), None if best is None else best + 1


def _tree(tree: dict[str, Any]) -> Tree:
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
        {int(number[node]): values for node, values in _categories(tree).items()},
    )


def _categories(tree: dict[str, Any]) -> dict[int, NDArray[Any]]:
    starts, sizes, values = (np.asarray(tree[f"categories{name}"], np.int64) for name in ("_segments", "_sizes", ""))
    return {
        node: values[start : start + size]
        for node, start, size in zip(tree["categories_nodes"], starts, sizes)
        if tree["left_children"][node] >= 0
    }
