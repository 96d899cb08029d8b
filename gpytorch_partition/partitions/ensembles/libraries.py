"""Tree ensembles of all libraries: their readers, selected by class name, and clones fitted to other rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import BaseEnsemble, HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.tree import BaseDecisionTree
from sklearn.utils.validation import check_is_fitted

from gpytorch_partition.partitions.ensembles.json_trees import bart_trees, catboost_trees, xgboost_trees
from gpytorch_partition.partitions.ensembles.lightgbm_trees import lightgbm_trees
from gpytorch_partition.partitions.ensembles.scikit_learn import scikit_learn_trees
from gpytorch_partition.partitions.ensembles.tree_arrays import Trees

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
_WRAPPERS = ("steps", "regressor", "estimator", "estimators", "base_estimator")  # of pipelines and searches
# Parameters of CatBoost that a clone sets itself, with their aliases.
_CATBOOST_OUTPUT = ("verbose", "silent", "logging_level", "verbose_eval")
_CATBOOST_STOPPING = ("early_stopping_rounds", "od_type", "od_wait", "od_pval", "use_best_model")
_CATBOOST_COUNTS = ("iterations", "n_estimators", "num_trees", "num_boost_round")


def trees_of(ensemble: Any) -> Trees:
    """Read the trees of a fitted ensemble, in :math:`O(V)` for V nodes; errors are those of `ForestPartition`."""
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


def is_ensemble(value: Any) -> bool:
    """Return whether a value is a tree ensemble, or looks like an estimator that might hold one."""
    if isinstance(value, type | str):
        return False
    return isinstance(value, Trees) or reader_of(value) is not None or callable(getattr(value, "fit", None))


def check_refittable(ensemble: Any) -> None:
    """Raise a `TypeError` for an ensemble that cannot be fitted again to other rows, or holds no trees."""
    name, told = type(ensemble).__name__, "expected a tree ensemble that can be fitted again, got"
    if isinstance(ensemble, Trees) or library_of(ensemble) == "stochtree":
        raise TypeError(
            f"{told} {name}: trees without their program cannot be grown again in folds: give "
            "RandomForestKernel.from_forest(...) of them, whose noise and scale marginal likelihood chooses"
        )
    if name == "Booster" and library_of(ensemble) == "xgboost":
        raise TypeError(
            f"{told} an XGBoost Booster: it does not say how it was trained: give an XGBRegressor with its parameters"
        )
    check_has_trees(ensemble)
    if library_of(ensemble) == "catboost" and (
        ensemble.get_params().get("cat_features") or (is_fitted(ensemble) and ensemble.get_cat_feature_indices())
    ):
        raise TypeError(
            "expected a CatBoost model of numbers, got one with cat_features, which it takes as text or whole numbers "
            "in tables only: encode these columns as numbers, or give a function (x, y) -> RandomForestKernel"
        )


def check_has_trees(ensemble: Any) -> None:
    if not isinstance(ensemble, Trees) and reader_of(ensemble) is None and not _is_of_scikit_learn(ensemble):
        got = _told(ensemble)
        raise TypeError(f"expected a tree ensemble of scikit-learn, LightGBM, XGBoost or CatBoost, got {got}")


def is_fitted(ensemble: Any) -> bool:
    if callable(getattr(ensemble, "is_fitted", None)):  # CatBoost
        return bool(ensemble.is_fitted())
    if not hasattr(ensemble, "get_params"):  # a Booster
        return True
    try:
        check_is_fitted(ensemble)
    except NotFittedError:
        return False
    return True


def num_columns_of(ensemble: Any) -> int | None:
    """Return the number of columns that an ensemble was fitted to; None if it is not fitted."""
    if not is_fitted(ensemble):
        return None
    return int(ensemble.n_features_in_ if hasattr(ensemble, "n_features_in_") else ensemble.num_feature())


def fitted_clone(ensemble: Any, x: np.ndarray, y: np.ndarray, random: np.random.RandomState) -> Any:
    """Return an ensemble with the same parameters, fitted to other rows; it has as many trees if it stopped early."""
    if not hasattr(ensemble, "get_params"):
        return _trained_again(ensemble, x, y)
    copy = _clone(ensemble)
    if library_of(ensemble) == "sklearn" and "random_state" in (known := copy.get_params()):
        copy.set_params(random_state=random.randint(2**31) if known["random_state"] is None else known["random_state"])
    categories = _categorical_columns(ensemble) if library_of(ensemble) == "lightgbm" else []
    return copy.fit(x, y, **({"categorical_feature": categories} if categories else {}))


def _clone(ensemble: Any) -> Any:
    library, best = library_of(ensemble), _num_best_rounds(ensemble)
    if library == "catboost":
        return _catboost_clone(ensemble, best)
    copy = clone(ensemble)
    if library == "lightgbm":
        stopping = [name for name in copy.get_params() if name.startswith("early_stopping_round")]
        copy.set_params(verbose=-1, **dict.fromkeys(stopping))
    if library == "xgboost":
        copy.set_params(early_stopping_rounds=None)
    return copy if best is None else copy.set_params(n_estimators=best)


def _num_best_rounds(ensemble: Any) -> int | None:
    library = library_of(ensemble)
    if library not in ("lightgbm", "xgboost", "catboost") or not is_fitted(ensemble):
        return None
    if library == "catboost":
        return int(ensemble.tree_count_)
    if library == "lightgbm":
        return int(ensemble.best_iteration_) if (ensemble.best_iteration_ or 0) > 0 else None
    try:
        return int(ensemble.best_iteration) + 1
    except AttributeError:  # it did not stop early
        return None


def _catboost_clone(ensemble: Any, num_trees: int | None) -> Any:
    dropped, kept = {*_CATBOOST_OUTPUT, *_CATBOOST_STOPPING}, {}
    if num_trees is not None:
        # Its own choice of a learning rate depends on the number of trees.
        dropped |= {*_CATBOOST_COUNTS, "learning_rate", "eta"}
        kept = {"iterations": num_trees, "learning_rate": ensemble.learning_rate_}
    kept |= {name: value for name, value in ensemble.get_params().items() if name not in dropped}
    return type(ensemble)(**kept | {"logging_level": "Silent", "allow_writing_files": False})


def _trained_again(booster: Any, x: np.ndarray, y: np.ndarray) -> Any:
    lightgbm = sys.modules["lightgbm"]  # the booster's own library has been imported already
    stopping = ("num_iterations", "num_boost_round", "n_estimators", "early_stopping_round", "early_stopping_rounds")
    parameters = {name: value for name, value in booster.params.items() if name not in stopping} | {"verbose": -1}
    num_rounds = booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()
    columns = _categorical_columns(booster)
    data = lightgbm.Dataset(x, y, **({"categorical_feature": columns} if columns else {}))
    return lightgbm.train(parameters, data, num_boost_round=num_rounds)


def _categorical_columns(ensemble: Any) -> list[int]:
    if not is_fitted(ensemble):
        return []
    return [column for column, bounds in enumerate(trees_of(ensemble).category_bounds) if len(bounds)]


def library_of(ensemble: Any) -> str:
    for kind in type(ensemble).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("lightgbm", "xgboost", "catboost", "stochtree", "sklearn"):
            return library
    return ""


def _is_of_scikit_learn(ensemble: Any) -> bool:
    kinds = (BaseEnsemble, BaseDecisionTree, HistGradientBoostingClassifier, HistGradientBoostingRegressor)
    members = getattr(ensemble, "estimator", None)
    has_trees = members is None or not hasattr(members, "fit") or isinstance(members, BaseDecisionTree)
    return isinstance(ensemble, kinds) and has_trees


def _told(ensemble: Any) -> str:
    name = type(ensemble).__name__
    if hasattr(ensemble, "steps"):
        return (
            f"a {name}, whose trees see columns as its first steps transform them: give its last step as "
            "the kernel, and put the estimator that has it behind these steps, make_pipeline(..., estimator)"
        )
    if hasattr(ensemble, "best_estimator_") or hasattr(ensemble, "param_grid") or hasattr(ensemble, "scoring"):
        return f"a {name}: fit it, and give its best_estimator_"
    if any(hasattr(ensemble, wrapped) for wrapped in _WRAPPERS):
        return f"a {name}: give a single ensemble of trees, without a wrapper or other members than trees"
    return f"a {name}, which has no trees that are read"
