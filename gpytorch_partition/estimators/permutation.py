"""Permutation importances of scikit-learn, of rows in any form that estimators take."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from sklearn.inspection import permutation_importance
from sklearn.metrics import check_scoring
from sklearn.utils import _safe_indexing

from gpytorch_partition.progress import doing


def permutations(
    model: Any, X: Any, y: Any, scoring: str | None = None, *, n_repeats: int, random_state: Any, n_jobs: int | None
) -> dict[str, Any]:
    """
    How much a score falls where a column's values are exchanged between rows: means and standard deviations (`D` each).

    :param model: A fitted estimator.
    :param X: `N x D` rows: an array, lists, a data frame, or a mapping with columns in the order of the model's.
    :param y: Their `N` targets or classes.
    :param scoring: The score, by scikit-learn's name. (Default: None, the model's own.)
    :param n_repeats: How often each column is permuted.
    :param random_state: Seed of the permutations.
    :param n_jobs: Columns permuted at once, as joblib counts them.
    """
    score = check_scoring(model, scoring)
    if isinstance(X, Mapping):  # whose numbers of rows are permuted, as the columns may be of any kind
        score, num_rows = partial(_score_of_rows, score, X), len(next(iter(X.values())))
        X = np.tile(np.arange(num_rows)[:, None], len(X))
    X = X if hasattr(X, "shape") else np.asarray(X)
    with doing(f"permuting {X.shape[1]:,} columns {n_repeats:,} times"):
        found = permutation_importance(
            model, X, y, scoring=score, n_repeats=n_repeats, random_state=random_state, n_jobs=n_jobs
        )
    return {"permutation": found.importances_mean, "permutation_std": found.importances_std}


def _score_of_rows(score: Any, table: Mapping[Any, Any], model: Any, rows: np.ndarray, y: Any) -> float:
    """The score of a table whose columns have the values of these rows (`N x D` numbers)."""
    columns = zip(table.items(), rows.T)
    return score(model, {name: _safe_indexing(values, own) for (name, values), own in columns}, y)
