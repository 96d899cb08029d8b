"""Text in one form, and messages about targets that are text: words among numbers, units, decimal commas, classes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np

_SHARE_OF_CLASSES = 0.9  # share of words from which targets are classes
_DECIMAL = re.compile(r"\s*[+-]?(\d+|\d{1,3}([. ]\d{3})+)[.,]\d+\s*")  # a decimal with another mark, if it is no number
_UNIT = re.compile(r"\s*[$€£¥]\s*[+-]?\d[\d.,' ]*|\s*[+-]?\d[\d.,' ]*([^\W\d]|[%°$€£¥])\D*")


class Remedies(NamedTuple):
    """
    Remedies for cells that are no numbers, in the words of a command or of Python, by what the cells hold.

    :param units: `{0!r}` stands for the text beside a number, `{1}` for pandas' calls that convert the digits.
    """

    words: str
    units: str = "take {0!r} off, so that numbers are left"
    commas: str = "write decimal points for commas"
    classes: str = "PartitionGPClassifier of gpytorch_partition.estimators learns classes"


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


def odd_targets(values: np.ndarray, shown: str = "row {0}") -> list[tuple[str, str]]:
    """Return the cells that are no numbers, each as text with its place."""
    cells = np.ndenumerate(np.atleast_1d(values.astype(object)))
    return [(str(cell), shown.format(*place)) for place, cell in cells if not _is_number(cell)]


def told_of_odd(odd: Sequence[tuple[str, str]], num_cells: int, remedies: Remedies) -> str:
    """Return a message: how many targets are no numbers, two of them with their places, and a remedy."""
    kinds: dict[str, dict[str, str]] = {"words": {}, "units": {}, "commas": {}}
    for text, place in odd:
        kinds[_kind_of(text)].setdefault(text, place)
    present = [kind for kind, texts in kinds.items() if texts]
    firsts = [next(iter(kinds[kind].items())) for kind in present]
    every = [cell for kind in present for cell in kinds[kind].items()]
    two = [*dict.fromkeys([*firsts, *every])][:2]
    examples = " and ".join(f"{text[:50]!r} ({place})" for text, place in two)
    return f"{len(odd):,} of {num_cells:,} are no numbers, such as {examples}: {_advice(odd, num_cells, remedies)}"


def _advice(odd: Sequence[tuple[str, str]], num_cells: int, remedies: Remedies) -> str:
    words = [text for text, _ in odd if _kind_of(text) == "words"]
    if len(words) < _SHARE_OF_CLASSES * num_cells:  # among numbers
        return "; ".join(_mended([text for text, _ in odd], remedies))
    return remedies.classes if 2 <= len(set(words)) <= len(words) / 2 else "give a column of numbers"


def _mended(texts: Sequence[str], remedies: Remedies) -> Iterator[str]:
    if any(_kind_of(text) == "words" for text in texts):
        yield remedies.words
    if units := [text for text in texts if _kind_of(text) == "units"]:
        yield remedies.units.format(re.sub(r"[+-]?\d[\d.,' ]*(?<! )", "", units[0]), _conversion(units))
    if any(_kind_of(text) == "commas" for text in texts):
        yield remedies.commas


def _conversion(texts: Sequence[str]) -> str:
    """Calls of pandas that convert the digits of numbers, by their last mark."""
    marks = [mark for text in texts for mark in re.findall(r"[.,](?=\d{1,2}(?!\d))|[.,](?=\d{4})", text)[-1:]]
    decimal = max(set(marks), key=marks.count) if marks else "."
    groups = "," if decimal == "." else "."
    calls = [f".str.replace({groups!r}, '')"] * any(groups in text for text in texts)
    return "".join(calls + [".str.replace(',', '.')"] * (decimal == ","))


def _kind_of(text: str) -> str:
    return "commas" if _DECIMAL.fullmatch(text) else "units" if _UNIT.fullmatch(text) else "words"


def _is_number(cell: Any) -> bool:
    try:
        float(np.nan if cell is None else cell)
    except (TypeError, ValueError):
        return False
    return True
