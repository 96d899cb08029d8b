"""The reader of posterior draws of Bayesian additive regression trees (BART) of stochtree, from its JSON format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gpytorch_partition.inputs.numbers import is_whole
from gpytorch_partition.partitions.ensembles.tree_arrays import Tree, Trees, check_fitted, joined


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
    container = _container(model)
    chosen = _chosen(draws, container.num_samples())
    if draw_weights is not None and np.shape(draw_weights) != (len(chosen),):
        raise ValueError(
            f"expected {len(chosen)} weights, one for each draw, got {draw_weights!r} of shape {np.shape(draw_weights)}"
        )
    forests = json.loads(container.dump_json_string())
    members = [forests[f"forest_{draw}"] for draw in chosen]
    trees = [_tree(forest[f"tree_{number}"]) for forest in members for number in range(forest["num_trees"])]
    shares = np.ones(len(members)) if draw_weights is None else np.asarray(draw_weights, float)
    weights = np.repeat(shares, [forest["num_trees"] for forest in members])
    return joined(trees, _model(model).num_covariates, weights=weights)


def _chosen(draws: Any, num_draws: int) -> list[int]:
    chosen = [*range(num_draws)] if draws is None else list(draws) if isinstance(draws, Iterable) else []
    if not chosen or not all(is_whole(draw, 0, num_draws - 1) for draw in chosen):
        raise ValueError(f"expected a list of numbers of draws from 0 to {num_draws - 1}, got {draws!r}")
    return [int(draw) for draw in chosen]


def _model(model: Any) -> Any:
    if hasattr(model, "get_params"):
        check_fitted(model, hasattr(model, "model_"))
        return model.model_
    return model


def _container(model: Any) -> Any:
    model = _model(model)
    if not hasattr(model, "is_sampled"):
        raise TypeError(f"expected a BARTModel of stochtree or one of its estimators, got {type(model).__name__}")
    if not model.is_sampled():
        raise ValueError("expected a BARTModel with posterior draws: call sample(X_train, y_train) first")
    if not model.include_mean_forest:
        raise ValueError("expected a BARTModel with trees of the mean, got one of the variance only")
    features = model._covariate_preprocessor
    if features._num_onehot_features or features._num_ordinal_features:
        raise ValueError(
            "expected a BARTModel of columns of numbers, got one that encodes categories of a data frame itself: "
            "encode the columns, and sample the model on the numbers that the kernel will see"
        )
    return model.forest_container_mean


def _tree(arrays: dict[str, Any]) -> Tree:
    if arrays["has_categorical_split"]:
        raise ValueError("expected splits that compare numbers, got some by categories: encode these columns")
    kept = ~np.array(arrays["node_deleted"], bool)
    number = np.append(np.cumsum(kept) - 1, -1)  # new numbers; -1 stays
    children = number[np.stack([arrays["left"], arrays["right"]], 1)][kept]
    threshold = np.array(arrays["threshold"], np.float64)[kept]
    return Tree(children, np.array(arrays["split_index"])[kept], threshold, np.ones(kept.sum(), bool))
