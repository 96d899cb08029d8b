"""Numbers as people write them: decimal commas, thousands, units; each column by the notation that explains it best."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from gpytorch_partition.tables.cells import SPACES, UNIT, explains

POINT, COMMA, THOUSANDS = "decimal points", "decimal commas", "thousands commas"
FLAGS = "true and false"

_MONEY = "$€£¥"
_SIGNS = f"{_MONEY}%{SPACES}"  # in front of a number or behind it
_CURRENCIES = (
    "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW|MXN|MYR|NOK|NZD|PHP|PLN|RON|RUB|SEK|SGD|THB|TRY|"
    "TWD|UAH|USD|ZAR"
)
_SCALES = ("k", "m", "b", "t", "bn", "mn", "mio", "mrd", "tsd", "thousand", "million", "billion", "trillion")
_WRITTEN = re.compile(
    rf"(?P<sign>[+-]?)(?:(?P<code>{_CURRENCIES})(?=[{SPACES}]))?(?P<before>[{_SIGNS}]*)(?P<later>[+-]?)"
    rf"(?P<digits>[.,]?\d+(?:[.,'\u2019{SPACES}]\d+)*[.,]?(?:[eE][+-]?\d+)?)"
    rf"(?P<behind>[{_SIGNS}]*)(?:(?<=[{SPACES}])(?P<letters>{UNIT}))?"
)
_IN_BRACKETS = re.compile(r"([^\d()+-]*)\(([^()+-]*\d[^()+-]*)\)([^\d()+-]*)")  # negative, as accountants write it
_LONGEST = 100  # characters of a number that is not one of programs
_ZEROS = re.compile(r"0\d")  # in front, as numbers of things have them

_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_COMMA = re.compile(r"[+-]?((\d+|[1-9]\d{0,2}([. '\u2019\u00a0\u202f]\d{3})+)(,\d*)?|,\d+)(e[+-]?\d+)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?(\d+|[1-9]\d{0,2}([, '\u2019\u00a0\u202f]\d{3})+)(\.\d*)?")
_GROUPS_WITH_COMMA, _GROUPS_WITH_POINT = (re.compile(f"[{mark} '\u2019\u00a0\u202f]") for mark in (".", ","))
# What can only be one of both: a mark that is not followed by exactly three digits, or has no group in front.
_SURELY_COMMA, _SURELY_POINT = (
    re.compile(rf"[+-]?([1-9]\d{{0,2}}({other}\d{{3}})+{mark}\d+|\d+{mark}(\d{{1,2}}|\d{{4,}})|(0|\d{{4,}})?{mark}\d+)")
    for mark, other in ((",", r"\."), (r"\.", ","))
)
_FLAGS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
_AFFIXED = re.compile(r"(\D*?)[+-]?(?!0\d)\d+(?:[.,]\d+)*(\D*)")


class Numbers(NamedTuple):
    """Those texts of a column that are numbers, how they are written, and the unit beside them."""

    values: dict[str, float]
    notation: str
    unit: str = ""


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
        >>> decimal_mark(["1.234", "0,5", "Paris"]), decimal_mark(["$1,234.50", "0.123"]), decimal_mark(["1.234"])
        ('decimal commas', 'decimal points', '')
    """
    votes = 0
    for text in texts:
        digits = _parts(text).digits
        votes += bool(_SURELY_POINT.fullmatch(digits)) - bool(_SURELY_COMMA.fullmatch(digits))
    return POINT if votes > 0 else COMMA if votes < 0 else ""


def is_open(text: str) -> bool:
    """
    Whether notations read a text as different numbers.

    Example:
        >>> is_open("1.234"), is_open("1.2345"), is_open("1.234,5"), is_open("1234")
        (True, False, False, False)
    """
    digits = _parts(text).digits
    return len({read(digits) for read in NOTATIONS.values()} - {None}) > 1


def parsed_numbers(texts: Sequence[str], marks: Sequence[str] = (POINT,), unit: str | None = None) -> Numbers:
    """
    Those texts that are numbers, by the notation in which most are.

    A unit is a sign (`$`, `%`), the code of a currency, or one or two words behind a space (`5 kg`, `900 sq ft`). A
    column has one: that of half of the numbers at least, or a sign of money if no number has another unit. Numbers
    without a unit are of this one too, numbers with another are none. Numbers in brackets are negative where the other
    texts are numbers.

    :param texts: Distinct texts.
    :param marks: The notations that are tried first, and win a draw. (Default: that of programs.)
    :param unit: The unit that cells may have; nothing for none but a sign of money. (Default: None, that of these
        texts.)

    Example:
        >>> parsed_numbers(["1.234,5", "7"])
        Numbers(values={'1.234,5': 1234.5, '7': 7.0}, notation='decimal commas', unit='')
        >>> parsed_numbers(["-$1,234", "($12)"]).values
        {'-$1,234': -1234.0, '($12)': -12.0}
        >>> parsed_numbers(["5 kg", "2.5 kg"])
        Numbers(values={'5 kg': 5.0, '2.5 kg': 2.5}, notation='decimal points', unit='kg')
    """
    plain = {text: float(text) for text in texts if _PLAIN.fullmatch(text)}
    if len(plain) == len(texts) and next(iter(marks), POINT) == POINT:
        return Numbers(plain, POINT, unit or "")  # as in most columns: fast
    parts = {text: _parts(text) for text in texts}
    own = unit or _unit_of([part for part in parts.values() if part.digits and (unit is None or part.is_money)])
    digits = {text: part.digits for text, part in parts.items() if part.digits and part.unit in ("", own)}
    values, notation = _by_best_notation(digits, marks)
    in_brackets = {text for text in values if parts[text].in_brackets}
    if unit is None and not (explains(len(values), len(texts)) and len(in_brackets) < len(texts)):
        values = {text: number for text, number in values.items() if text not in in_brackets}
    return Numbers(values, notation, own)


def _by_best_notation(digits: Mapping[str, str], marks: Sequence[str]) -> tuple[dict[str, float], str]:
    """Numbers of texts, by the notation in which most are, and that notation."""
    best: tuple[dict[str, float], str] = {}, next(iter(marks), POINT)
    for notation in dict.fromkeys([*marks, *NOTATIONS]):
        pairs = ((text, NOTATIONS[notation](written)) for text, written in digits.items())
        numbers = {text: number for text, number in pairs if number is not None}
        if len(numbers) > len(best[0]):
            best = numbers, notation
        if len(numbers) == len(digits):
            break
    return best


def parsed_flags(texts: Iterable[str]) -> dict[str, float]:
    """
    Those texts that say true or false, or yes or no, in upper or lower case: 1 or 0.

    Example:
        >>> parsed_flags(["TRUE", "false", "maybe"])
        {'TRUE': 1.0, 'false': 0.0}
    """
    return {text: _FLAGS[text.casefold()] for text in texts if text.casefold() in _FLAGS}


def hint_of_numbers(texts: Sequence[str]) -> str:
    """
    What to do about texts that are not read as numbers, if most are a number beside the same letters; else nothing.

    :param texts: Distinct texts.

    Example:
        >>> hint_of_numbers(["zone 7", "zone 12", "harbour"])
        "; if it holds numbers ('zone 7'), write them without 'zone'"
        >>> hint_of_numbers(["north", "south"]), hint_of_numbers(["K007", "K008"])
        ('', '')
    """
    affixes = {text: match.groups() for text in texts if (match := _AFFIXED.fullmatch(text)) and any(match.groups())}
    (most, count), *_ = Counter(affixes.values()).most_common(1) or [(("", ""), 0)]
    if count < 2 or 2 * count <= len(texts):
        return ""
    beside = " and ".join(repr(affix.strip()) for affix in most if affix.strip())
    first = next(text for text, affix in affixes.items() if affix == most)
    return f"; if it holds numbers ({first!r}), write them without {beside}"


class _Parts(NamedTuple):
    digits: str  # with their sign; nothing where the text is no number
    unit: str = ""
    in_brackets: bool = False

    @property
    def is_money(self) -> bool:
        """Whether there is no unit but a sign of money, or none at all."""
        return self.unit in ("", *_MONEY)


def _parts(text: str) -> _Parts:
    """A text as a number, its unit, and whether it is in brackets."""
    if _PLAIN.fullmatch(text):
        return _Parts(text)
    if len(text) > _LONGEST:
        return _Parts("")
    written = text.replace("\u2212", "-")  # the sign of typesetting
    if brackets := _IN_BRACKETS.fullmatch(written):
        written = "-" + "".join(brackets.groups())
    found = _WRITTEN.fullmatch(written)
    if found is None or (found["sign"] and found["later"]) or (found["code"] and found["letters"]):
        return _Parts("")
    signs = "".join((found["before"] + found["behind"]).split())
    letters = found["code"] or found["letters"] or ""
    if letters and _ZEROS.match(found["digits"]):
        return _Parts("")
    return _Parts(found["sign"] + found["later"] + found["digits"], signs + letters, brackets is not None)


def _unit_of(parts: Sequence[_Parts]) -> str:
    """The unit that half of a column's numbers have, all where it is a factor such as thousand; or the only money."""
    counts = Counter(part.unit for part in parts if part.unit)
    unit, count = counts.most_common(1)[0] if counts else ("", 0)
    if len(counts) == 1 and all(part.is_money for part in parts):
        return unit
    needed = len(parts) if unit.casefold() in _SCALES else len(parts) / 2
    return unit if count >= needed else ""


def _with_point(digits: str) -> float | None:
    return float(digits) if _PLAIN.fullmatch(digits) else None


def _with_comma(digits: str) -> float | None:
    return float(_GROUPS_WITH_COMMA.sub("", digits).replace(",", ".")) if _COMMA.fullmatch(digits) else None


def _with_thousands(digits: str) -> float | None:
    return float(_GROUPS_WITH_POINT.sub("", digits)) if _THOUSANDS.fullmatch(digits) else None


NOTATIONS: Mapping[str, Callable[[str], float | None]] = {
    POINT: _with_point,
    THOUSANDS: _with_thousands,
    COMMA: _with_comma,
}
