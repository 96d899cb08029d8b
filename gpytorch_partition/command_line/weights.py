"""The column of weights of rows: what cannot be one, and the weights."""

from __future__ import annotations

import numpy as np

from gpytorch_partition.command_line.columns import NUMBER, Column, Kind, typed_column
from gpytorch_partition.command_line.raw_table import RawTable


def weight_column(raw: RawTable, name: str | None, mark: str) -> Column | None:
    """
    The column of weights; None where none is named, or there is none of that name.

    :param raw: The table.
    :param name: Its name.
    :param mark: The file's decimal mark, if known.
    """
    return None if name is None or name not in raw.columns else typed_column(name, raw.columns[name], mark)


def wrong_weights(raw: RawTable, name: str | None, weights: Column | None, has_target: np.ndarray) -> list[str]:
    """
    What is wrong with a column of weights, at rows that have a target.

    :param raw: The table.
    :param name: Its name.
    :param weights: Its values.
    :param has_target: `N` booleans.
    """
    if weights is None:
        return []
    if weights.kind.name != NUMBER:
        as_numbers = typed_column(str(name), raw.columns[str(name)], kind=Kind(NUMBER))
        odd = as_numbers.missing & ~weights.missing
        where = f": mend {raw.places(odd)}" if not odd.all() else ""
        return [f"--weight: column {name!r} holds {weights.kind.name}, and weights are numbers from 0{where}"]
    wrong = {
        "is empty or no number": weights.missing & has_target,
        "is negative": (weights.values < 0) & has_target,
        "is infinite": np.isinf(weights.values) & (weights.values > 0) & has_target,
    }
    problems = [
        f"--weight: column {name!r} {what} in {raw.places(rows)}: give a weight above 0, or 0 to leave the row out"
        for what, rows in wrong.items()
        if rows.any()
    ]
    if not problems and not (weights.values[has_target] > 0).any():
        problems.append(f"--weight: column {name!r} is 0 in all rows with a target: no row is left to learn from")
    return problems


def counted_rows(weights: Column | None, num_rows: int) -> np.ndarray:
    """
    Which rows have a weight above 0: `N` booleans.

    :param weights: The weights.
    :param num_rows: N.
    """
    return np.ones(num_rows, dtype=bool) if weights is None else weights.values > 0


def weight_notes(raw: RawTable, name: str | None, weights: Column | None, has_target: np.ndarray) -> list[str]:
    """
    What is to be said of the weights.

    :param raw: The table.
    :param name: The column's name.
    :param weights: Its values.
    :param has_target: `N` booleans.
    """
    if weights is None:
        return []
    left_out = has_target & ~(weights.values > 0)
    number = int(left_out.sum())
    notes = list(weights.notes)
    if number:
        notes.append(f"{number:,} row{'s' * (number > 1)} of weight 0 ({name!r}) left out: {raw.places(left_out)}")
    return notes
