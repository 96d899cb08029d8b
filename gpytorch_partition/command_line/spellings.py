"""Categories that people wrote in several ways: names that differ in case or spaces only, and those of few rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from gpytorch_partition.command_line.errors import listed

_RARE, _COMMON = 8, 50  # rows of a category
_MOST_SAID = 5


def spelled_otherwise(new: Collection[str], seen: Sequence[str]) -> str:
    """
    Those of some new categories that only differ in case or spaces from one that was seen, for a note; or nothing.

    :param new: The new ones.
    :param seen: Those of the training rows.

    Example:
        >>> spelled_otherwise(["NEW YORK", "Rome"], ["New York", "Oslo"])
        "; they had 'NEW YORK' as 'New York'"
    """
    known = {_without_case(text): text for text in seen}
    pairs = [f"{text!r} as {known[_without_case(text)]!r}" for text in sorted(new) if _without_case(text) in known]
    return f"; they had {', '.join(pairs[:_MOST_SAID])}" if pairs else ""


def spelling_notes(name: str, cells: Sequence[str | None]) -> list[str]:
    """
    Notes of what may be the same category, and of categories that are rare beside common ones.

    :param name: The column's name.
    :param cells: Its cells; None is a missing one.

    Example:
        >>> spelling_notes("town", ["Oslo"] * 60 + ["oslo", "Rome"])  # doctest: +ELLIPSIS
        ["column 'town': categories that differ in case or spaces only: 'Oslo', 'oslo'", "column 'town': 2 of 3 ..."]
    """
    counts = Counter(cell for cell in cells if cell is not None)
    together = defaultdict(list)
    for text in sorted(counts):
        together[_without_case(text)].append(text)
    same = [text for texts in together.values() if len(texts) > 1 for text in texts]
    notes = []
    if same:
        notes.append(f"column {name!r}: categories that differ in case or spaces only: {listed(same[:_MOST_SAID])}")
    rare = sorted(text for text, count in counts.items() if count <= _RARE)
    if rare and max(counts.values()) >= _COMMON:
        notes.append(
            f"column {name!r}: {len(rare):,} of {len(counts):,} categories have {_RARE} rows or fewer "
            f"({listed(rare[:_MOST_SAID])}): intervals of such rows may be too narrow; write one thing in one way"
        )
    return notes


def _without_case(text: str) -> str:
    return "".join(text.split()).casefold()
