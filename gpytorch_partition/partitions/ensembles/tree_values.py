"""The values that single trees of a boosting predict, and the names of an ensemble's columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpytorch_partition.partitions.ensembles import json_trees, lightgbm_trees
from gpytorch_partition.partitions.ensembles.libraries import library_of
from gpytorch_partition.partitions.ensembles.scikit_learn import histogram_values
from gpytorch_partition.partitions.ensembles.tree_arrays import with_codes


def tree_values(boosting: Any, X: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """
    Return what each tree of a gradient boosting adds to predictions of rows, up to a constant (`N x m x outputs`).

    :param nodes: The nodes of the rows' leaves (`N x m`), counted through all trees.
    :raises TypeError: If the ensemble is no gradient boosting of a known library, or has several trees in a round, or
        trees for several outputs together (of XGBoost), or `cat_features` (of CatBoost).
    """
    library = library_of(boosting)
    if library == "sklearn" and hasattr(boosting, "_predictors"):
        return histogram_values(boosting)[nodes][..., None]
    if library == "sklearn" and isinstance(getattr(boosting, "estimators_", None), np.ndarray):
        return np.concatenate([tree.tree_.value.ravel() for tree in boosting.estimators_.ravel()])[nodes][..., None]
    if library == "catboost" and not boosting.get_cat_feature_indices():
        sizes = boosting.get_tree_leaf_counts()
        values = np.asarray(boosting.get_leaf_values()).reshape(sum(sizes), -1)
        return values[boosting.calc_leaf_indexes(X) + np.cumsum([0, *sizes[:-1]])]
    found = _of_rounds(boosting, X, nodes.shape[1]) if library in ("lightgbm", "xgboost") else nodes[:, :0]
    if found.shape != nodes.shape:
        raise TypeError(
            "expected gradient boosting by scikit-learn, LightGBM, XGBoost or CatBoost (without cat_features), of one "
            f'tree for each round and class, got {type(boosting).__name__}: give weighting="leaf"'
        )
    return found[..., None]


def names_of(ensemble: Any) -> list[str] | None:
    """Return the names of the columns that an ensemble was fitted to; None if it has seen none."""
    names = getattr(ensemble, "feature_names_in_", None)
    if names is None and library_of(ensemble) in ("xgboost", "lightgbm", "catboost"):
        own = getattr(ensemble, "feature_names_", getattr(ensemble, "feature_names", None))  # CatBoost, XGBoost
        names = ensemble.feature_name() if hasattr(ensemble, "num_trees") else own  # LightGBM's Booster
    return None if names is None else [str(name) for name in names]


def check_names(X: Any, names: list[str] | None) -> None:
    """Raise a `ValueError` for a frame whose columns have other names than an ensemble's, or another order."""
    given = getattr(X, "column_names", getattr(X, "columns", None))  # of pyarrow; of others
    if names is None or given is None:
        return
    of_frame, expected = ([str(name).replace(" ", "_") for name in each] for each in (given, names))  # as LightGBM
    of_arrays = [[f"{start}{number}" for number in range(len(names))] for start in ("", "Column_")]
    may_be_others = expected in of_arrays and sorted(of_frame) != sorted(expected)
    if of_frame != expected and not may_be_others:
        raise ValueError(f"expected the columns of the forest in their order, {names}, got {list(map(str, given))}")


def _of_rounds(boosting: Any, X: np.ndarray, num_trees: int) -> np.ndarray:
    """Return the values of the trees of LightGBM or XGBoost (`N x m`), by predictions of single rounds."""
    if library_of(boosting) == "lightgbm":
        booster = getattr(boosting, "booster_", boosting)
        X = with_codes(X, lightgbm_trees.level_tables(booster))
        num_rounds = num_trees // booster.num_model_per_iteration()
        rounds = [booster.predict(X, raw_score=True, start_iteration=i, num_iteration=1) for i in range(num_rounds)]
    else:
        booster = boosting.get_booster() if hasattr(boosting, "get_booster") else boosting
        X = with_codes(X, json_trees.level_tables(booster))
        options = {"predict_type": "margin", "validate_features": False}
        num_rounds = booster.num_boosted_rounds()
        rounds = [booster.inplace_predict(X, iteration_range=(i, i + 1), **options) for i in range(num_rounds)]
        if len(booster.get_dump()) != sum(values.size for values in rounds) // len(X):
            return X[:, :0]
    return np.concatenate([values.reshape(len(X), -1) for values in rounds], 1)[:, :num_trees]
