"""Dates as people write them: ISO, or day, month and year in the one order that fits a column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

ISO, DAY_FIRST, MONTH_FIRST = "year-month-day", "day-month-year", "month-day-year"

_TIME = r"(?:[T ,]\s*(\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?\s*(AM|PM)?)?"
_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})(?:\2(\d{1,2}))?" + _TIME + r"\s*(Z|UTC|[+-]\d{2}:?\d{2})?", re.I)
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})" + _TIME, re.I)


def parsed_dates(texts: Sequence[str], order: str) -> tuple[dict[str, datetime], str, bool]:
    """
    Those texts that are dates, by the order in which most are.

    :param texts: Distinct texts.
    :param order: The order that is tried first, and wins a draw.
    :return: Dates of the texts (in UTC, where a time zone is given), the order, and whether another one fits as well.

    Example:
        >>> parsed_dates(["31.12.2024", "01.02.2024 7:30"], ISO)[1:]
        ('day-month-year', False)
        >>> parsed_dates(["01/02/2024"], ISO)[1:]
        ('day-month-year', True)
    """
    orders = (order, *(other for other in (ISO, DAY_FIRST, MONTH_FIRST) if other != order))
    found = {each: _dates(texts, each) for each in orders}
    best = max(orders, key=lambda each: len(found[each]))  # the first of equals
    rivals = [other for other in orders if other != best and len(found[other]) == len(found[best])]
    return found[best], best, bool(found[best] and rivals)


def _dates(texts: Sequence[str], order: str) -> dict[str, datetime]:
    pairs = ((text, _date(text, order)) for text in texts)
    return {text: date for text, date in pairs if date is not None}


def _date(text: str, order: str) -> datetime | None:
    match = (_YEAR_FIRST if order == ISO else _YEAR_LAST).fullmatch(text)
    if match is None:
        return None
    try:
        return _of_iso(match) if order == ISO else _of_year_last(match, order)
    except ValueError:  # no such day
        return None


def _of_iso(match: re.Match[str]) -> datetime:
    year, _, month, day, *time, zone = match.groups()
    date = datetime(int(year), int(month), int(day or 1), *_time(*time))
    if zone is None or not zone[1:2].isdigit():
        return date
    offset = datetime.strptime(zone.replace(":", ""), "%z").tzinfo
    return date.replace(tzinfo=offset).astimezone(UTC).replace(tzinfo=None)


def _of_year_last(match: re.Match[str], order: str) -> datetime:
    first, _, second, year, *time = match.groups()
    day, month = (first, second) if order == DAY_FIRST else (second, first)
    century = 0 if len(year) == 4 else 2000 if int(year) < 69 else 1900  # as POSIX has it
    return datetime(century + int(year), int(month), int(day), *_time(*time))


def _time(
    hour: str | None, minute: str, second: str | None, part: str | None, half: str | None
) -> tuple[int, int, int, int]:
    if hour is None:
        return 0, 0, 0, 0
    hours = int(hour) if half is None else int(hour) % 12 + 12 * (half.upper() == "PM")
    return hours, int(minute), int(second or 0), int(float(part or 0) * 1e6)
