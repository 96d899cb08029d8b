"""Columns and targets of data frame libraries as NumPy arrays that keep their missing cells and time zones."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_array(values: Any) -> np.ndarray:
    """
    An array of a column; times with a zone, of pyarrow and Polars, as objects, since arrays of times have no zone.

    Dictionaries of pyarrow are read by value: NumPy gives a missing cell of a chunked one the last value.

    :param values: A column of Polars or pyarrow, an array, or a list.

    Example:
        >>> as_array([1.5, 2.0])
        array([1.5, 2. ])
    """
    kind = getattr(values, "type", getattr(values, "dtype", None))
    if kind is not None and hasattr(kind, "index_type") and hasattr(kind, "value_type"):
        return as_array(values.cast(kind.value_type))
    if getattr(kind, "tz", None) or getattr(kind, "time_zone", None):
        return np.array(values.to_pylist() if hasattr(values, "to_pylist") else values.to_list(), dtype=object)
    return np.asarray(values)


def plain_targets(y: Any) -> Any:
    """
    Targets of pyarrow as an array, with None or NaN where they are missing; all others as they are.

    :param y: Targets of any kind.
    """
    return as_array(y) if hasattr(y, "to_pylist") and hasattr(y, "type") else y
