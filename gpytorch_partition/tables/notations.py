"""
Notations of numbers and dates in columns of text: one for a whole column, which also reads new rows.

A notation of numbers is their decimal mark, the mark between thousands and, where they have one, a sign of money or
percent: `".,"`, `",.€"`. A notation of dates is a format of :func:`pandas.to_datetime`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from gpytorch_partition.tables.cells import DATES, NUMBERS, Cells, names_of

# Texts that stand for missing cells beside numbers or dates, in lower case.
MARKS = frozenset(
    {"", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none", "nat", "?", "-", "--", ".", "k.a.", "k. a."}
)
_LONGEST_MARK = max(map(len, MARKS))
NUMBER_NOTATIONS = (".,", ",.", ". ", ", ", ".'", ",'")
ISO = "ISO8601"
OPEN = "?"  # stands for the mark where two notations fit

_FEWEST_EXPLAINED = 20  # distinct numbers, or dates, among which a few other texts are missing cells or mistakes ...
_EXPLAINED_PER_TEXT = 10  # ... if there are at least this many for each other text
_SIGNS = "$€£¥%"
_LIKE_NUMBERS = re.compile(rf"[-+\u2212{_SIGNS} ]*[.,]?\d|[-+]?inf", re.IGNORECASE)
_LIKE_DATES = re.compile(r"\d{1,4}[-/. ]*(\d|[a-z]{3})|[a-z]{3,9} \d", re.IGNORECASE)
_LIKE_ISO = re.compile(r"(1[5-9]|2[01])\d\d([-/.])\d{1,2}(\2\d{1,2}([T ].+)?)?")  # the number 0815-1 is no month
_DAYS = (
    *(f"%{first}{mark}%{second}{mark}%{year}" for mark in "./-" for first, second in ("dm", "md") for year in "Yy"),
    *("%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d%b%Y"),
)
DATE_NOTATIONS = (ISO, *(day + clock for day in _DAYS for clock in ("", " %H:%M", " %H:%M:%S", " %I:%M %p")))
_SAMPLE = 100  # texts on which formats of dates are tried first


class _Found(NamedTuple):
    values: Mapping[str, Any]
    notation: str
    mark: str = ""  # the decimal mark of numbers that have one, or `OPEN`


def as_read(cells: Cells, notations: Sequence[str] = NUMBER_NOTATIONS) -> Cells:
    """
    Read a column of text as numbers or dates, if all of its texts fit one notation, or all but a few of many.

    Use it on training rows; :func:`as_in_fit` reads others.

    :param cells: Cells of text.
    :param notations: Possible notations of numbers; the first of those that read most texts is taken.

    Example:
        >>> found = as_read(Cells("text", np.array(["1.234,50 €", "7 €", None, "?"], dtype=object)))
        >>> found.values, found.notation
        (array([1234.5,    7. ,    nan,    nan]), ',.€')
    """
    texts = _distinct(cells)
    found = _numbers_of(list(texts.values()), notations) or _dates_of(list(texts.values()))
    return cells if found is None else _valued(cells, texts, found)


def as_in_fit(cells: Cells, notation: str, name: str) -> Cells:
    """
    Read text of new rows as numbers or dates in the notation of `fit`, and dates in ISO notation too.

    Use it to read a row independently of the other rows.

    :param cells: Cells of text, returned unchanged where none of them can be read.
    :param notation: Notation that :func:`as_read` found.
    :param name: The column's name.
    :raises TypeError: If numbers have the other decimal mark.
    """
    texts = _distinct(cells)
    written = list(texts.values())
    if is_of_dates(notation):
        values: Mapping[str, Any] = {**_dates(written, ISO), **(_dates(written, notation) if notation != ISO else {})}
        return cells if texts and not values else _valued(cells, texts, _Found(values, notation))
    values, others = _numbers(written, notation), [each for each in NUMBER_NOTATIONS if each[0] != notation[0]]
    for text in written:
        if text not in values and any(_pattern(each + notation[2:]).fullmatch(text) for each in others):
            raise TypeError(
                f"expected numbers in column {name!r} written as {written_in(notation)}, as in fit, got {text!r}: "
                "write them as in the table given to fit"
            )
    if texts and not values:
        return cells
    found = _valued(cells, texts, _Found(values, notation))
    if notation != NUMBER_NOTATIONS[0] and any(_also_fits(values, each + notation[2:]) for each in others):
        text, value = next((text, value) for text, value in values.items() if not text.isdecimal())
        return found._replace(
            note=f"{text!r} is read as {value:.12g}, since numbers were {written_in(notation)} in fit"
        )
    return found


def is_of_dates(notation: str) -> bool:
    """Return whether a notation is one of dates."""
    return notation in DATE_NOTATIONS


def is_of_numbers(notation: str) -> bool:
    """Return whether a notation is one of numbers."""
    return notation[:2] in NUMBER_NOTATIONS and notation[2:] in ("", *_SIGNS)


def written_in(notation: str) -> str:
    """
    Return a notation in readable form.

    Example:
        >>> written_in(",.€"), written_in("ISO8601"), written_in("%d.%m.%Y")
        ('1.234,5 €', 'YYYY-MM-DD', '%d.%m.%Y')
    """
    if not is_of_numbers(notation):
        return {ISO: "YYYY-MM-DD"}.get(notation, notation)
    return f"1{notation[1]}234{notation[0]}5 {notation[2:]}".rstrip()


def _distinct(cells: Cells) -> dict[str, str]:
    """Distinct texts that are no marks of missing cells, by text without spaces around."""
    pairs = ((text, text.strip()) for text in dict.fromkeys(cells.values.tolist()) if text is not None)
    return {text: written for text, written in pairs if len(written) > _LONGEST_MARK or written.casefold() not in MARKS}


def _valued(cells: Cells, texts: Mapping[str, str], found: _Found) -> Cells:
    """Cells as the values of their texts; others are missing, and noted."""
    is_date = is_of_dates(found.notation)
    dtype, missing = ("datetime64[us]", np.datetime64("NaT")) if is_date else (np.float64, np.nan)
    read, written, rows = found.values.get, texts.get, cells.values.tolist()
    column = np.fromiter((read(written(text, ""), missing) for text in rows), dtype, len(rows))
    others = sorted({*texts.values()} - {*found.values})
    kind = DATES if is_date else NUMBERS
    note = f"{names_of(others)} among its {kind} taken for missing cells" if others else ""
    return Cells(kind, column, note=note, notation=found.notation, mark=found.mark)


def _explains(num_found: int, num_texts: int) -> bool:
    """Whether all texts are numbers (or dates), or all but a few among many."""
    others = num_texts - num_found
    return num_found > 0 and (not others or num_found >= max(_FEWEST_EXPLAINED, _EXPLAINED_PER_TEXT * others))


def _numbers_of(texts: Sequence[str], notations: Sequence[str]) -> _Found | None:
    if not _explains(sum(map(bool, map(_LIKE_NUMBERS.match, texts))), len(texts)):  # a fast look first
        return None
    all_texts, values, best = "".join(texts), dict[str, float](), ""
    for notation in (each + sign for sign in (*sorted({*all_texts} & {*_SIGNS}), "") for each in notations):
        if len(found := _numbers(texts, notation)) > len(values):
            values, best = found, notation
        if len(values) == len(texts):
            break
    if not _explains(len(values), len(texts)):
        return None
    has_mark = not {*".,"}.isdisjoint(all_texts)
    is_open = has_mark and any(_also_fits(values, each + best[2:]) for each in notations if each[0] != best[0])
    return _Found(values, best, OPEN if is_open else best[0] * has_mark)


def _also_fits(values: Mapping[str, float], notation: str) -> bool:
    """Whether another notation reads all texts, with other values."""
    return all(map(_pattern(notation).fullmatch, values)) and _numbers(values, notation) != values


def _numbers(texts: Iterable[str], notation: str) -> dict[str, float]:
    decimal, thousands, sign = notation[0], notation[1], notation[2:]
    of_programs = str.maketrans(f"{decimal}\u2212", ".-", f"{thousands}{sign} '\u00a0\u202f\u2019")
    found = [text for text in texts if _pattern(notation).fullmatch(text)]
    return {text: float(text.translate(of_programs)) for text in found}


@lru_cache
def _pattern(notation: str) -> re.Pattern[str]:
    """Numbers in a notation, without zeros in front as ids have them. Money may lack its sign, percent may not."""
    space, minus = "[ \u00a0\u202f]?", "[-+\u2212]?"
    decimal, sign = re.escape(notation[0]), re.escape(notation[2:])
    group = {" ": "[ \u00a0\u202f]", "'": "['\u2019]"}.get(notation[1], re.escape(notation[1]))
    whole = rf"(?:0|[1-9]\d{{0,2}}(?:{group}\d{{3}})+|[1-9]\d*)"
    digits = rf"(?:(?:{whole}(?:{decimal}\d*)?|{decimal}\d+)(?:e[-+]?\d+)?|inf(?:inity)?)"
    if not sign or sign == "%":
        return re.compile(minus + digits + (space + sign if sign else ""), re.IGNORECASE)
    return re.compile(rf"{minus}(?:{sign}{space})?{digits}(?:{space}{sign})?|{sign}{minus}{digits}", re.IGNORECASE)


def _dates_of(texts: Sequence[str]) -> _Found | None:
    if not _explains(sum(map(bool, map(_LIKE_DATES.match, texts))), len(texts)):
        return None
    some = texts[:_SAMPLE]
    likely = [notation for notation in DATE_NOTATIONS if 2 * len(_dates(some, notation)) > len(some)]
    found = {notation: _dates(texts, notation) for notation in likely}
    best = max(likely, key=lambda notation: len(found[notation]), default=ISO)  # the first of equals
    if not likely or not _explains(len(found[best]), len(texts)):
        return None
    other = found.get(best.translate(str.maketrans("dm", "md")), {})
    return _Found(found[best], best, OPEN if best[3:5] == "%m" and len(other) == len(found[best]) else "")


def _dates(texts: Sequence[str], notation: str) -> dict[str, np.datetime64]:
    """Texts that are dates in a notation; those with a time zone in UTC."""
    if notation == ISO:
        texts = [text for text in texts if _LIKE_ISO.fullmatch(text)]
    if not texts:
        return {}
    dates = _of_pandas(texts, notation)
    return {text: date for text, date in zip(texts, dates, strict=True) if not np.isnat(date)}


def _of_pandas(texts: Sequence[str], notation: str) -> Any:
    if find_spec("pandas") is None:
        raise ImportError('dates as text are read by pandas: pip install "gpytorch_partition[tables]"')
    import pandas

    column = pandas.Series([*texts], dtype=object)
    dates = pandas.to_datetime(column, format=notation, errors="coerce", utc=True)
    return dates.dt.tz_localize(None).to_numpy("datetime64[us]")
