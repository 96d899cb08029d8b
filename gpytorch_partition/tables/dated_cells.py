"""Columns of text that hold dates or times of day, as columns of dates or hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpytorch_partition.tables.cells import DATES, MARKS, NUMBERS, Cells, names_of
from gpytorch_partition.tables.date_texts import ISO, TIMES, dates_of_column, written_as

_MOST_SAID = 5


def as_dates(cells: Cells, name: str) -> tuple[Cells, str]:
    """
    A column of text as one of dates or hours, if that is what its texts are, or all but a few texts among many.

    :param cells: Text.
    :param name: The column's name.
    :return: The cells, with a note about the other texts, and a warning where days and months may be the other way
        round.

    Example:
        >>> cells, warning = as_dates(Cells("text", np.array(["Feb 3, 2024", "?"], dtype=object)), "day")
        >>> cells.kind, cells.values.astype(str).tolist()
        ('dates', ['2024-02-03T00:00:00.000000', 'NaT'])
    """
    texts = _distinct(cells)
    if (found := dates_of_column(list(texts.values()))) is None:
        return cells, ""
    warning = (
        f"column {name!r}: its dates are text, read as {found.notation}, and could be month-day-year as well: convert "
        "it, by pd.to_datetime(..., dayfirst=True) or dayfirst=False, or write dates as YYYY-MM-DD"
    )
    what = {ISO: "dates as text", TIMES: "times of day as text, taken as hours"}
    told = what.get(found.notation, f"dates as text, read as {found.notation}")
    return _valued(cells, texts, found.values, found.notation, told), warning if found.is_open else ""


def as_dates_of_fit(cells: Cells, notation: str) -> Cells:
    """
    Text of new rows as dates or hours; each as the notation of `fit` has it, whatever the other rows are.

    :param cells: Text.
    :param notation: What :func:`as_dates` has found.
    :return: The cells, which are text still where none of them is one, with a note about other texts.
    """
    texts = _distinct(cells)
    found = written_as(list(texts.values()), notation)
    if texts and not found:
        return cells
    return _valued(cells, texts, found, notation, "")


def _distinct(cells: Cells) -> dict[str, str]:
    """The texts that stand for no missing cells, without spaces around them."""
    texts = {text: text.strip() for text in dict.fromkeys(cells.values.tolist()) if text is not None}
    return {text: written for text, written in texts.items() if written.casefold() not in MARKS}


def _valued(cells: Cells, texts: dict[str, str], found: Mapping[str, Any], notation: str, what: str) -> Cells:
    """Cells as the values of their texts; others are missing, and noted."""
    values = {text: found[written] for text, written in texts.items() if written in found}
    is_time = notation == TIMES
    dtype, missing = (np.float64, np.nan) if is_time else ("datetime64[us]", np.datetime64("NaT"))
    others = sorted(written for written in texts.values() if written not in found)
    more = ", ..." if len(others) > _MOST_SAID else ""
    told = f"{names_of(others[:_MOST_SAID])}{more} among its {notation if is_time else 'dates'} taken for missing cells"
    column = np.array([values.get(text, missing) for text in cells.values.tolist()], dtype=dtype)
    note = "; ".join(part for part in (what, told if others else "") if part)
    return Cells(NUMBERS if is_time else DATES, column, note=note, notation=notation)
