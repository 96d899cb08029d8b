"""
Notations of numbers and dates in columns of text: one for a whole column, which also reads new rows.

A notation of numbers is their decimal mark, the mark between thousands and, where they have one, a sign of money or
percent: `".,"`, `",.€"`. A notation of dates is a format of :func:`pandas.to_datetime`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gpytorch_partition.tables.cells import DATES, NUMBERS, Cells, names_of, pandas_for

# Texts that stand for missing cells beside numbers or dates, in lower case.
MARKS = {"", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none", "nat", "?", "-", "--", ".", "k.a.", "k. a."}
NUMBER_NOTATIONS = (".,", ",.", ". ", ", ", ".'", ",'")
ISO = "ISO8601"
OPEN = "?"  # stands for the mark where two notations fit

_SIGNS = "$€£¥%"
_LIKE_DATES = re.compile(r"\d{1,4}[-/. ]*(\d|[a-z]{3})|[a-z]{3,9} \d", re.IGNORECASE)
_LIKE_ISO = re.compile(r"(1[5-9]|2[01])\d\d([-/.])\d{1,2}(\2\d{1,2}([T ].+)?)?")  # the number 0815-1 is no month
_DAYS = (
    *(f"%{first}{mark}%{second}{mark}%{year}" for mark in "./-" for first, second in ("dm", "md") for year in "Yy"),
    *("%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d%b%Y"),
)
DATE_NOTATIONS = (ISO, *(day + clock for day in _DAYS for clock in ("", " %H:%M", " %H:%M:%S", " %I:%M %p")))


def as_read(cells: Cells, notations: Sequence[str] = NUMBER_NOTATIONS) -> Cells:
    """
    Read a column of text as numbers or dates, if all of its texts fit one notation, or all but a few of many.

    :param cells: Cells of text of training rows; :func:`as_in_fit` reads others.
    :param notations: Possible notations of numbers; the first of those that read most texts is taken.

    Example:
        >>> found = as_read(Cells("text", np.array(["1.234,50 €", "7 €", None, "?"], dtype=object)))
        >>> found.values, found.notation
        (array([1234.5,    7. ,    nan,    nan]), ',.€')
    """
    rows, texts = _stripped(cells)
    for candidates in _candidates(texts, notations):
        best, values = "", dict[str, Any]()
        for notation in candidates:
            if len(values) < len(texts) and len(found := _values(texts, notation)) > len(values):
                best, values = notation, found
        others = len(texts) - len(values)
        if values and (not others or len(values) >= max(20, 10 * others)):
            is_open = any(_also_fits(values, rival) for rival in _rivals(best, notations))
            has_mark = any("." in text or "," in text for text in texts)
            return _valued(rows, values, best, OPEN if is_open else best[0] * has_mark)
    return cells


def as_in_fit(cells: Cells, notation: str, name: str) -> Cells:
    """
    Read text of new rows, independently of each other, in the notation of `fit`, and dates in ISO notation too.

    :param cells: Cells of text, returned unchanged where none of them can be read.
    :param notation: Notation that :func:`as_read` found.
    :param name: The column's name.
    :raises TypeError: If numbers have the other decimal mark, or dates day and month the other way round.
    """
    rows, texts = _stripped(cells)
    values = {**(_values(texts, ISO) if notation in DATE_NOTATIONS else {}), **_values(texts, notation)}
    rivals = _rivals(notation, NUMBER_NOTATIONS)
    if odd := [text for rival in rivals for text in _values(texts, rival) if text not in values]:
        raise TypeError(
            f"expected column {name!r} written as {written_in(notation)}, as in fit, got {odd[0]!r}: write it as there"
        )
    if texts and not values:
        return cells
    found = _valued(rows, values, notation)
    if found.kind == DATES or notation == NUMBER_NOTATIONS[0] or not any(_also_fits(values, each) for each in rivals):
        return found
    text, value = next((text, value) for text, value in values.items() if not text.isdecimal())
    return found._replace(note=f"{text!r} is read as {value:.12g}, since numbers were {written_in(notation)} in fit")


def written_in(notation: str) -> str:
    """Return a notation in readable form, as `1.234,5 €` or `YYYY-MM-DD`."""
    if notation in DATE_NOTATIONS:
        return "YYYY-MM-DD" if notation == ISO else notation
    return f"1{notation[1]}234{notation[0]}5 {notation[2:]}".rstrip()


def _stripped(cells: Cells) -> tuple[list[str | None], list[str]]:
    """Return the texts of rows without spaces around, None for marks of missing cells; and the distinct ones."""
    texts = (None if text is None else text.strip() for text in cells.values.tolist())
    rows = [None if text is None or (len(text) < 6 and text.casefold() in MARKS) else text for text in texts]
    return rows, [text for text in dict.fromkeys(rows) if text is not None]


def _valued(rows: list[str | None], values: dict[str, Any], notation: str, mark: str = "") -> Cells:
    """Return cells with the values of their texts; others are missing, and noted."""
    is_date = notation in DATE_NOTATIONS
    dtype, missing = ("datetime64[us]", np.datetime64("NaT")) if is_date else (np.float64, np.nan)
    column = np.fromiter((missing if text is None else values.get(text, missing) for text in rows), dtype, len(rows))
    kind, others = DATES if is_date else NUMBERS, sorted({*filter(None, rows)} - {*values})
    note = f"{names_of(others)} among its {kind} taken for missing cells" if others else ""
    return Cells(kind, column, note=note, notation=notation, mark=mark)


def _rivals(notation: str, notations: Sequence[str]) -> list[str]:
    """Return the notations with the other decimal mark, or with day and month the other way round."""
    if notation in DATE_NOTATIONS:
        return [notation.translate(str.maketrans("dm", "md"))] if notation[1:5:3] in ("dm", "md") else []
    return [each + notation[2:] for each in notations if each[0] != notation[0]]


def _also_fits(values: dict[str, Any], notation: str) -> bool:
    return len(found := _values([*values], notation)) == len(values) and found != values


def _values(texts: Sequence[str], notation: str) -> dict[str, Any]:
    """Return the texts that are numbers or dates in a notation, with their values; dates with a time zone in UTC."""
    if notation in DATE_NOTATIONS:
        texts = [text for text in texts if notation != ISO or _LIKE_ISO.fullmatch(text)]
        pandas = pandas_for("dates as text")
        dates = pandas.to_datetime(pandas.Series(texts, dtype=object), format=notation, errors="coerce", utc=True)
        pairs = zip(texts, dates.dt.tz_localize(None).to_numpy("datetime64[us]"), strict=True)
        return {text: date for text, date in pairs if not np.isnat(date)}
    of_programs = str.maketrans(f"{notation[0]}\u2212", ".-", f"{notation[1:]} '\u00a0\u202f\u2019")
    return {text: float(text.translate(of_programs)) for text in texts if _pattern(notation).fullmatch(text)}


@lru_cache
def _pattern(notation: str) -> re.Pattern[str]:
    """Match numbers in a notation, without zeros in front as ids have them; money may lack its sign, percent not."""
    space, minus = "[ \u00a0\u202f]?", "[-+\u2212]?"
    decimal, sign = re.escape(notation[0]), re.escape(notation[2:])
    group = {" ": "[ \u00a0\u202f]", "'": "['\u2019]"}.get(notation[1], re.escape(notation[1]))
    whole = rf"(?:0|[1-9]\d{{0,2}}(?:{group}\d{{3}})+|[1-9]\d*)"
    digits = rf"(?:(?:{whole}(?:{decimal}\d*)?|{decimal}\d+)(?:e[-+]?\d+)?|inf(?:inity)?)"
    money = rf"{minus}(?:{sign}{space})?{digits}(?:{space}{sign})?|{sign}{minus}{digits}"
    written = {"": minus + digits, "%": minus + digits + space + sign}.get(notation[2:], money)
    return re.compile(written, re.IGNORECASE)


def _candidates(texts: Sequence[str], notations: Sequence[str]) -> Iterator[list[str]]:
    """Yield the notations of numbers that may fit, then those of dates that read most of the first texts."""
    signs = (*sorted({*"".join(texts)} & {*_SIGNS}), "")
    yield [each + sign for sign in signs for each in notations]
    some = texts[:100] if any(map(_LIKE_DATES.match, texts)) else ()
    yield [notation for notation in DATE_NOTATIONS if 2 * len(_values(some, notation)) > len(some) > 0]
