"""Text in one form, and messages about targets that are text."""

from __future__ import annotations

from typing import Any
from unicodedata import normalize

import numpy as np


def composed(values: Any) -> Any:
    """Return text, alone or in a list, an array or a Series, in Unicode's composed form (NFC); other values as such."""
    if isinstance(values, str):
        return normalize("NFC", values)
    if isinstance(values, list):
        return [*map(composed, values)]
    if getattr(getattr(values, "dtype", None), "kind", "") not in ("O", "U", "T"):
        return values
    if not isinstance(values, np.ndarray):
        return values.map(composed)
    return np.array([*map(composed, values.ravel())], object if values.dtype == object else None).reshape(values.shape)


def told_of_odd(values: np.ndarray, shown: str = "row {0}") -> str:
    """Return how many cells are no numbers, two of them with their places, and a remedy; empty if all are numbers."""
    cells = np.ndenumerate(np.atleast_1d(values.astype(object)))
    odd = [(str(cell), shown.format(*place)) for place, cell in cells if not _is_number(cell)]
    first = dict(reversed(odd))
    examples = " and ".join(f"{text[:50]!r} ({place})" for text, place in [*first.items()][:-3:-1])
    told = f"{len(odd):,} of {values.size:,} are no numbers, such as {examples}: give numbers, or leave these rows out"
    return f"{told} (PartitionGPClassifier learns classes)" if odd else ""


def _is_number(cell: Any) -> bool:
    try:
        float(np.nan if cell is None else cell)
    except (TypeError, ValueError):
        return False
    return True
