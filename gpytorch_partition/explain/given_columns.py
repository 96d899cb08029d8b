"""Columns as users give them: their names and cells, and shares of the model's columns for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpytorch_partition.inputs.text_targets import composed
from gpytorch_partition.tables.cells import as_pandas


def column_names(estimator: Any) -> list[str]:
    """Return the names of the columns in `fit`, or x0, x1 and so on, as in scikit-learn."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{number}" for number in range(estimator.n_features_in_)] if names is None else list(map(str, names))


def model_column_names(estimator: Any) -> list[str]:
    """Return the names of the model's columns (a date of a table has several)."""
    encoder = getattr(estimator, "encoder_", None)
    return column_names(estimator) if encoder is None else list(encoder.get_feature_names_out())


def by_given_columns(estimator: Any, shares: np.ndarray) -> np.ndarray:
    """Return the shares of a user's columns (`parts x D`), as sums over the model's columns of each (`parts x D'`)."""
    encoder = getattr(estimator, "encoder_", None)
    if encoder is None:
        return shares
    found = np.zeros((len(shares), estimator.n_features_in_))
    np.add.at(found.T, encoder.sources_, shares.T)
    return found


def number_of(wanted: int | str, names: list[str], kind: str = "column") -> int:
    """Return the number (from 0) of a column or target, the `kind`, given its name or number; -1 is the last one."""
    if isinstance(wanted, str) and composed(wanted) in names:
        return names.index(composed(wanted))
    is_number = isinstance(wanted, int | np.integer) and not isinstance(wanted, bool)
    if is_number and -len(names) <= int(wanted) < len(names):
        return int(wanted) % len(names)
    raise ValueError(
        f"expected a {kind}'s number below {len(names)} (-1 is the last one) or its name, one of {first_names(names)}, "
        f"got {wanted!r}"
    )


def first_names(names: list[Any]) -> str:
    return ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")


def _difference(expected: list[Any], given: list[Any]) -> str:
    missing = [name for name in expected if name not in given]
    others = [name for name in given if name not in expected]
    parts = (("without", missing, "add"), ("with", others, "drop"))
    return ", and ".join(f"{label} {first_names(names)}: {do} them" for label, names, do in parts if names)


def given_rows(estimator: Any, X: Any) -> np.ndarray | dict[str, Any]:
    """Return rows as an array, for a model that was fitted to an array, else as a mapping of the model's columns."""
    names = column_names(estimator)
    if isinstance(X, Mapping) or (hasattr(X, "columns") and estimator.encoder_ is not None):
        X = as_pandas(X)
        columns = {composed(str(name)): as_pandas(X[name]) for name in (X if isinstance(X, Mapping) else X.columns)}
        if set(columns) != set(names):
            raise ValueError(f"expected the columns of fit, got rows {_difference(names, list(columns))}")
        return {name: columns[name] for name in names}
    is_text = isinstance(X, list | tuple) and np.asarray(X).dtype.kind == "U"  # numbers too, in a list beside text
    rows = np.array(X, dtype=object) if is_text else np.asarray(X)
    if rows.ndim != 2 or rows.shape[1] != len(names):
        raise ValueError(f"expected rows of {len(names)} columns, as in fit, got an array of shape {rows.shape}")
    return rows if estimator.encoder_ is None else dict(zip(names, rows.T))
