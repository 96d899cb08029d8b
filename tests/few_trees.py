"""Options of default models of few trees, which take most of the time of a fit."""

from __future__ import annotations

from typing import Any

from gpytorch_partition.presets import Options


def few_trees(number: int = 10, num_slope_trees: int = 5, **others: Any) -> Options:
    """So many trees of each kind, but for those with slopes, and few rounds of boosting; other options by name."""
    kinds = dict.fromkeys(("num_trees", "num_boosted_trees", "num_shallow_boosted_trees"), number)
    return Options(**kinds, num_slope_trees=num_slope_trees, **{"most_boosting_rounds": 40, **others})
