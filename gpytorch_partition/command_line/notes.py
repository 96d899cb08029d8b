"""Notes for the user on standard error, beside the results on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from gpytorch_partition.estimators import PartitionGPRegressor


def say(notes: Iterable[str], quiet: bool) -> None:
    """
    Print notes, a line each.

    :param notes: What was read how, and what was left out.
    :param quiet: Print nothing.
    """
    for note in () if quiet else notes:
        print(f"gpytorch_partition: note: {note}", file=sys.stderr)


def left_out(regressor: PartitionGPRegressor) -> list[str]:
    """
    What a fitted model leaves out for its budget, as a note, if it does.

    :param regressor: The model.
    """
    told = "; ".join(regressor.left_out_)
    return [f"left out for the budget of {regressor.budget:g} seconds: {told}"] if told else []
