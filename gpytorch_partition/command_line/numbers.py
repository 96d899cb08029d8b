"""Numbers as people write them: decimal commas, thousands, units; each column by the notation that explains it best."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

POINT, COMMA, THOUSANDS = "decimal points", "decimal commas", "thousands commas"

_UNITS = "$€£¥% \u00a0\u202f"  # in front of a number or behind it
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_COMMA = re.compile(r"[+-]?(\d+|[1-9]\d{0,2}([. '\u2019\u00a0\u202f]\d{3})+)(,\d*)?(e[+-]?\d+)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?(\d+|[1-9]\d{0,2}([, '\u2019\u00a0\u202f]\d{3})+)(\.\d*)?")
_GROUPS_WITH_COMMA, _GROUPS_WITH_POINT = (re.compile(f"[{mark} '\u2019\u00a0\u202f]") for mark in (".", ","))
# What can only be one of both: a mark that is not followed by exactly three digits.
_SURELY_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+,\d+|\d+,(\d{1,2}|\d{4,}))")
_SURELY_POINT = re.compile(r"[+-]?(\d{1,3}(,\d{3})+\.\d+|\d+\.(\d{1,2}|\d{4,}))")


def is_number(text: str) -> bool:
    """
    Whether a text is a number in the notation of programs.

    :param text: The text.

    Example:
        >>> [is_number(text) for text in ("1.5", " -3e2", "inf", "1,5", "1_000", "nan", "")]
        [True, True, True, False, False, False, False]
    """
    return _PLAIN.fullmatch(text.strip()) is not None


def decimal_mark(texts: Iterable[str]) -> str:
    """
    Which mark a file's numbers have, by those cells that leave no doubt.

    :param texts: Cells of all columns.
    :return: `POINT`, `COMMA`, or nothing for a draw.

    Example:
        >>> decimal_mark(["1.234", "0,5", "Paris"]), decimal_mark(["1.234"])
        ('decimal commas', '')
    """
    votes = 0
    for text in texts:
        votes += bool(_SURELY_POINT.fullmatch(text)) - bool(_SURELY_COMMA.fullmatch(text))
    return POINT if votes > 0 else COMMA if votes < 0 else ""


def is_open(text: str) -> bool:
    """
    Whether notations read a text as different numbers.

    Example:
        >>> is_open("1.234"), is_open("1.2345"), is_open("1.234,5"), is_open("1234")
        (True, False, False, False)
    """
    return len({read(text) for read in _NOTATIONS.values()} - {None}) > 1


def parsed_numbers(texts: Sequence[str], mark: str) -> tuple[dict[str, float], str]:
    """
    Those texts that are numbers, by the notation in which most are.

    :param texts: Distinct texts.
    :param mark: The notation that is tried first, and wins a draw.
    :return: Numbers of the texts, and the notation.

    Example:
        >>> parsed_numbers(["1.234,5", "7"], POINT)
        ({'1.234,5': 1234.5, '7': 7.0}, 'decimal commas')
        >>> parsed_numbers(["1,234", "12"], POINT)
        ({'1,234': 1234.0, '12': 12.0}, 'thousands commas')
    """
    best: tuple[dict[str, float], str] = {}, mark
    for notation in (mark, *(other for other in _NOTATIONS if other != mark)):
        pairs = ((text, _NOTATIONS[notation](text)) for text in texts)
        numbers = {text: number for text, number in pairs if number is not None}
        if len(numbers) > len(best[0]):
            best = numbers, notation
        if len(numbers) == len(texts):
            break
    return best


def _with_point(text: str) -> float | None:
    if not _PLAIN.fullmatch(text):
        text = text.strip(_UNITS)
    return float(text) if _PLAIN.fullmatch(text) else None


def _with_comma(text: str) -> float | None:
    text = text.strip(_UNITS)
    return float(_GROUPS_WITH_COMMA.sub("", text).replace(",", ".")) if _COMMA.fullmatch(text) else None


def _with_thousands(text: str) -> float | None:
    text = text.strip(_UNITS)
    return float(_GROUPS_WITH_POINT.sub("", text)) if _THOUSANDS.fullmatch(text) else None


_NOTATIONS: dict[str, Callable[[str], float | None]] = {
    POINT: _with_point,
    THOUSANDS: _with_thousands,
    COMMA: _with_comma,
}
