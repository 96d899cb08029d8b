"""The reader for a fitted ensemble, selected by class name, so that no boosting library needs to be imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpytorch_partition.partitions.ensembles.catboost_trees import catboost_trees
from gpytorch_partition.partitions.ensembles.lightgbm_trees import lightgbm_trees
from gpytorch_partition.partitions.ensembles.scikit_learn import scikit_learn_trees
from gpytorch_partition.partitions.ensembles.stochtree_trees import bart_trees
from gpytorch_partition.partitions.ensembles.trees import Trees
from gpytorch_partition.partitions.ensembles.xgboost_trees import xgboost_trees

# Top-level module and base class of each library's models.
_READERS = {
    ("lightgbm", "Booster"): lightgbm_trees,
    ("lightgbm", "LGBMModel"): lightgbm_trees,
    ("xgboost", "Booster"): xgboost_trees,
    ("xgboost", "XGBModel"): xgboost_trees,
    ("catboost", "CatBoost"): catboost_trees,
    ("stochtree", "BARTModel"): bart_trees,
    ("stochtree", "StochTreeBARTRegressor"): bart_trees,
    ("stochtree", "StochTreeBARTBinaryClassifier"): bart_trees,
}


def trees_of(ensemble: Any) -> Trees:
    """
    Read the trees of a fitted ensemble, in :math:`O(V)` for V nodes.

    :param ensemble: A random forest, extra-trees, gradient boosting, histogram gradient boosting, AdaBoost or bagging
        of trees, isolation forest, random trees embedding, or single tree of scikit-learn; a `Booster` or estimator of
        LightGBM or XGBoost; a `CatBoost` or estimator of CatBoost; a BART model of stochtree; or :class:`Trees`, which
        are returned unchanged.
    :raises TypeError: If `ensemble` is none of these, or an ensemble of other members than trees.
    :raises ValueError: If the ensemble is not fitted, has no trees or a negative weight, its categories are not
        numbers, or numbers do not determine a leaf (statistics of categories in CatBoost).

    Example:
        >>> from sklearn.tree import DecisionTreeRegressor
        >>> trees = trees_of(DecisionTreeRegressor().fit([[0.0], [1.0], [2.0]], [5.0, 5.0, 8.0]))
        >>> trees.threshold, trees.children.tolist()
        (array([1.5, inf, inf], dtype=float32), [[1, 2], [1, 1], [2, 2]])
    """
    if isinstance(ensemble, Trees):
        return ensemble
    return (reader_of(ensemble) or scikit_learn_trees)(ensemble)


def reader_of(ensemble: Any) -> Callable[[Any], Trees] | None:
    """Return the reader of a model of LightGBM, XGBoost, CatBoost or stochtree; None for anything else."""
    for kind in type(ensemble).__mro__:
        reader = _READERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if reader is not None:
            return reader
    return None
