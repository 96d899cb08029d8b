"""
Notations of numbers and dates in columns of text: one for a whole column, which also reads new rows.

A notation of numbers is their decimal mark, the mark between thousands and, where they have one, a sign of money or
percent: `".,"`, `",.€"`. A notation of dates is a format of :func:`pandas.to_datetime`.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from gpytorch_partition.tables.cells import DATES, NUMBERS, Cells, names_of, pandas_for

NUMBER_NOTATIONS = (".,", ",.", ". ", ", ", ".'", ",'")
ISO = "ISO8601"

_MIXED = 0.9  # share of different texts that are numbers or dates in some notation, from which they hardly are names
_LIKE_DATES = re.compile(r"\d{1,4}[-/. ]*(\d|[a-z]{3})|[a-z]{3,9} \d", re.IGNORECASE)
_LIKE_ISO = re.compile(r"(1[5-9]|2[01])\d\d([-/.])\d{1,2}(\2\d{1,2}([T ].+)?)?")  # the number 0815-1 is no month
_ZONED = re.compile(r".*\d:\d\d.*(Z|UTC|[-+]\d\d(:?\d\d)?)", re.IGNORECASE)  # a time with its zone
_DAYS = (
    *(f"%{first}{mark}%{second}{mark}%{year}" for mark in "./-" for first, second in ("dm", "md") for year in "Yy"),
    *("%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d%b%Y"),
)
_OF_DATES = (ISO, *(day + clock for day in _DAYS for clock in ("", " %H:%M", " %H:%M:%S", " %I:%M %p")))


def as_read(cells: Cells, notations: Sequence[str] = NUMBER_NOTATIONS) -> Cells:
    """Read text of training rows as numbers or dates if all cells, or all but a few of many, fit one notation."""
    texts, best, values, readable = cells.distinct_texts(), "", dict[str, Any](), set[str]()
    signs = (*sorted({*"".join(texts)} & {*"$€£¥%"}), "")
    some = texts[:100] if any(map(_LIKE_DATES.match, texts)) else []
    of_dates = (each for each in _OF_DATES if 2 * len(_values(some, each)) > len(some))
    for notation in chain((each + sign for sign in signs for each in notations), of_dates if some else ()):
        if len(found := _values(texts, notation)) > len(values):
            best, values = notation, found
        readable |= found.keys()
        if len(values) == len(texts):
            break
    others = {*texts} - {*values}
    if not values or any(map(_is_code, texts)) or _merges(values) or all(text[0] == "(" for text in values):
        return cells
    if others and len(values) < max(20, 10 * len(others)):
        are_mixed = len(readable) >= max(20, _MIXED * len(texts))
        return cells._replace(doubt="numbers in more than one notation" if are_mixed else "")
    mark = best[0] * any("." in text or "," in text for text in texts)
    return _valued(cells, texts, values, best)._replace(mark=mark, doubt=_doubt(values, best, notations))


def _is_code(text: str) -> bool:
    """Return whether digits are a name: 04623, or a number that float64 cannot tell from its neighbors."""
    return text.isdecimal() and len(text) > 1 and (text[0] == "0" or int(text) > 2**53)


def _merges(values: dict[str, Any]) -> bool:
    """Return whether float64 makes one number of large ones, as of 9,007,199,254,740,993 and its neighbors."""
    large = [value for value in values.values() if isinstance(value, float) and 2**53 <= abs(value) < np.inf]
    return len({*large}) < len(large)


def as_in_fit(cells: Cells, notation: str, name: str) -> Cells:
    """Read text of new rows in the notation of `fit`, or as ISO dates; if no cell can be read, return the cells."""
    texts, rivals = cells.distinct_texts(), _rivals(notation, NUMBER_NOTATIONS)
    values = {**(_values(texts, ISO) if notation in _OF_DATES else {}), **_values(texts, notation)}
    if odd := [text for rival in rivals for text in _values(texts, rival) if text not in values]:
        raise TypeError(
            f"expected column {name!r} written as {written_in(notation)}, as in fit, got {odd[0]!r}: write it as there"
        )
    found = _valued(cells, texts, values, notation) if values or not texts else cells
    if found.kind != NUMBERS or notation == NUMBER_NOTATIONS[0] or not _doubt(values, notation, NUMBER_NOTATIONS):
        return found
    text, value = next((text, value) for text, value in values.items() if not text.isdecimal())
    return found._replace(note=f"{text!r} is read as {value:.12g}, since numbers were {written_in(notation)} in fit")


def written_in(notation: str) -> str:
    """Return a notation in readable form, as `1.234,5 €` or `YYYY-MM-DD`."""
    if notation in _OF_DATES:
        return notation.replace(ISO, "YYYY-MM-DD")
    return f"1{notation[1]}234{notation[0]}5 {notation[2:]}".rstrip()


def _valued(cells: Cells, texts: Sequence[str], values: dict[str, Any], notation: str) -> Cells:
    """Return cells with the values of their texts; others are missing, and noted."""
    kind, missing = (DATES, np.datetime64("nat", "us")) if notation in _OF_DATES else (NUMBERS, np.float64("nan"))
    found = [missing if text is None else values.get(text.strip(), missing) for text in cells.values.tolist()]
    others = sorted({*texts} - {*values})
    note = f"{names_of(others)} among its {kind} taken for missing cells" if others else ""
    zone = "UTC" if notation == ISO and any(map(_ZONED.fullmatch, values)) else None
    return Cells(kind, np.array(found, missing.dtype), zone=zone, note=note, notation=notation)


def _rivals(notation: str, notations: Sequence[str]) -> list[str]:
    if notation in _OF_DATES:
        return [notation.translate(str.maketrans("dm", "md"))] if notation[1:5:3] in ("dm", "md") else []
    return [each + notation[2:] for each in notations if each[0] != notation[0]]


def _doubt(values: dict[str, Any], notation: str, notations: Sequence[str]) -> str:
    """Return how all texts could be read otherwise; empty if they cannot."""
    others = (_values([*values], rival) for rival in _rivals(notation, notations))
    if any(len(found) == len(values) and found != values for found in others):
        return "the month first (pd.to_datetime reads both)" if notation in _OF_DATES else "the other decimal mark"
    if notation == ISO and 0 < sum(map(bool, map(_ZONED.fullmatch, values))) < len(values):
        return "another time zone where none is written (UTC)"
    is_late = "%y" in notation and max(values.values()) > np.datetime64("now")
    return "years a century earlier, as some are to come (write four digits)" if is_late else ""


def _values(texts: Sequence[str], notation: str) -> dict[str, Any]:
    """Return the texts that are numbers or dates in a notation, with their values; dates with a time zone in UTC."""
    if notation in _OF_DATES:
        texts = [text for text in texts if notation != ISO or _LIKE_ISO.fullmatch(text)]
        pandas = pandas_for("dates as text")
        dates = pandas.to_datetime(pandas.Series(texts, dtype=object), format=notation, errors="coerce", utc=True)
        pairs = zip(texts, dates.dt.tz_localize(None).to_numpy("datetime64[us]"), strict=True)
        return {text: date for text, date in pairs if not np.isnat(date)}
    of_programs = str.maketrans(f"{notation[0]}\u2212", ".-", f"{notation[1:]} '\u00a0\u202f\u2019")
    plain = {text: text.translate(of_programs) for text in texts if _pattern(notation).fullmatch(text)}
    return {text: -float(n.strip("(-)")) if n[-1] in "-)" else float(n) for text, n in plain.items()}


@lru_cache
def _pattern(notation: str) -> re.Pattern[str]:
    """Match numbers in a notation, without zeros in front as ids have them; money may lack its sign, percent not."""
    space, minus = "[ \u00a0\u202f]?", "[-+\u2212]?"
    decimal, sign = re.escape(notation[0]), re.escape(notation[2:])
    group = {" ": "[ \u00a0\u202f]", "'": "['\u2019]"}.get(notation[1], re.escape(notation[1]))
    of_india = r"|[1-9]\d?(?:,\d\d)+,\d{3}" * (notation[1] == ",")  # 1,23,456
    whole = rf"(?:0|[1-9]\d{{0,2}}(?:{group}\d{{3}})+{of_india}|[1-9]\d*)"
    digits = rf"(?:(?:{whole}(?:{decimal}\d*)?|{decimal}\d+)(?:e[-+]?\d+)?|inf(?:inity)?)"
    amount = rf"(?:{minus}{digits}|{digits}-|\({digits}\))"  # 3.16- of SAP, (3.16) of accountants
    signed = rf"(?:{sign}{space}{digits}|{digits}{space}{sign})"
    money = rf"(?:{sign}{space})?{amount}(?:{space}{sign})?|{minus}{sign}{space}{digits}|\({signed}\)"
    percent = rf"{amount}{space}{sign}|\({digits}{space}{sign}\)"
    return re.compile({"": amount, "%": percent}.get(notation[2:], money), re.IGNORECASE)
