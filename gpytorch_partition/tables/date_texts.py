"""
Dates and times of day as people write them: one reader for CSV files, parquet files and data frames.

It has a table of formats of its own: the command line works without pandas, whose parser guesses the order of day and
month from the first cell. Names of months are English whatever the locale is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import NamedTuple

from gpytorch_partition.tables.cells import explains, hours_of

ISO, DAY_FIRST, MONTH_FIRST = "year-month-day", "day-month-year", "month-day-year"  # orders of numbers
TIMES = "times of day"
NOTATIONS = (ISO, DAY_FIRST, MONTH_FIRST, TIMES)

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t|tember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_WEEKDAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?,?\s+"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_GAP = r"[-/., ]*"
_YEAR, _ANY_YEAR = r"(?P<year>\d{4})", r"(?P<year>\d{4}|\d{2})"
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<part>\d+))?)?\s*(?P<half>AM|PM)?"
_ZONE = r"(?P<zone>Z|UTC|GMT|[+-]\d{2}:?\d{2})?"
_TIME = rf"(?:[T ,]\s*{_CLOCK}\s*{_ZONE})?"


def _pattern(written: str) -> re.Pattern[str]:
    return re.compile(written, re.IGNORECASE)


_UNAMBIGUOUS = (
    _pattern(
        rf"{_YEAR}(?P<mark>[-/.])(?P<month>\d{{1,2}})(?:(?P=mark)(?P<day>\d{{1,2}}))?(?:[T ,]\s*{_CLOCK})?\s*{_ZONE}"
    ),
    _pattern(
        rf"(?:{_WEEKDAY})?" + _DAY + _GAP + _NAME + _GAP + _ANY_YEAR + _TIME
    ),  # 02-Feb-24, Fri, 2 February 2024 10:00 GMT
    _pattern(
        rf"(?:{_WEEKDAY})?" + _NAME + _GAP + _DAY + r"[-/., ]+" + _ANY_YEAR + _TIME
    ),  # January 2, 2024, Jan-1-1995
    _pattern(_NAME + _GAP + _YEAR),  # Feb 2024
    _pattern(_YEAR + _GAP + _NAME + rf"(?:{_GAP}{_DAY}{_TIME})?"),  # 2024-Feb-02
    _pattern(_YEAR + r"[-/ ]?Q(?P<quarter>[1-4])"),  # 1990Q2
    _pattern(r"Q(?P<quarter>[1-4])[-/ ]?" + _YEAR),
)
_NUMERIC = {
    order: _pattern(rf"(?P<{first}>\d{{1,2}})(?P<mark>[-/.])(?P<{second}>\d{{1,2}})(?P=mark){_ANY_YEAR}{_TIME}")
    for order, first, second in ((DAY_FIRST, "day", "month"), (MONTH_FIRST, "month", "day"))
}
_OF_DAY = _pattern(_CLOCK)
_DURATION = _pattern(r"(\d{1,4}):([0-5]\d)(?::([0-5]\d))?")
_MONTH = "|".join(_MONTHS)
_BEGINS_LIKE = _pattern(rf"\d{{1,4}}(?:st|nd|rd|th)?(?:[-/., :]+\d|{_GAP}(?:Q|{_MONTH}))|{_WEEKDAY}|{_MONTH}|Q[1-4]")
_YEARS_OF_MONTHS = range(1500, 2201)  # of dates without a day, which numbers of things look like
_YEAR_WITHIN = re.compile(r"(?<!\d)(?:19|20)\d{2}(?!\d)")


class DateTexts(NamedTuple):
    """
    Texts that are dates, or times of day.

    :param values: Their values: datetimes (in UTC, where a time zone is given), or hours.
    :param notation: The order of day, month and year where these are numbers, or `TIMES`.
    :param is_open: Whether the other order of day and month fits as well.
    """

    values: dict[str, datetime] | dict[str, float]
    notation: str
    is_open: bool = False


def dates_of_column(texts: Sequence[str]) -> DateTexts | None:
    """
    The dates or times of day of a column, if all of its texts are such, or all but a few texts among many.

    :param texts: Its distinct texts; those that stand for missing cells are left out.

    Example:
        >>> dates_of_column(["02-Feb-24", "1990Q2"]).values["1990Q2"]
        datetime.datetime(1990, 4, 1, 0, 0)
        >>> dates_of_column(["13:45", "7:30 PM"]).values
        {'13:45': 13.75, '7:30 PM': 19.5}
        >>> dates_of_column(["soon", "2024-02-03"])
    """
    if not explains(sum(_BEGINS_LIKE.match(text) is not None for text in texts), len(texts)):  # a fast look first
        return None
    for found in (parsed_dates(texts, ISO), DateTexts(parsed_times(texts), TIMES)):
        if found.values and explains(len(found.values), len(texts)):
            return found
    return None


def parsed_dates(texts: Sequence[str], order: str) -> DateTexts:
    """
    Those texts that are dates, by the order in which most are.

    :param texts: Distinct texts.
    :param order: The order that is tried first, and wins a draw.

    Example:
        >>> parsed_dates(["31.12.2024", "01.02.2024 7:30"], ISO)[1:]
        ('day-month-year', False)
        >>> parsed_dates(["01/02/2024"], ISO)[1:]
        ('day-month-year', True)
    """
    sure = {text: moment for text in texts if (moment := _unambiguous(text)) is not None}
    others = [text for text in texts if text not in sure]
    found = {each: _numeric(others, each) for each in (order, ISO, DAY_FIRST, MONTH_FIRST)}
    best = max(found, key=lambda each: len(found[each]))  # the first of equals
    is_open = len(found[DAY_FIRST]) == len(found[MONTH_FIRST]) > 0
    return DateTexts(sure | found[best], best, is_open)


def parsed_times(texts: Sequence[str]) -> dict[str, float]:
    """
    Those texts that are times of day, or durations, as hours.

    :param texts: Distinct texts.

    Example:
        >>> parsed_times(["13:45", "100:30", "1:75"])
        {'13:45': 13.75, '100:30': 100.5}
    """
    hours = ((text, _hours(text)) for text in texts)
    return {text: found for text, found in hours if found is not None}


def written_as(texts: Sequence[str], notation: str) -> dict[str, datetime] | dict[str, float]:
    """
    Those texts that are dates in one order, or times of day: each whatever the others are.

    :param texts: Distinct texts.
    :param notation: One of `NOTATIONS`.

    Example:
        >>> list(written_as(["13/02/2024", "2/13/2024", "13 Feb 2024"], MONTH_FIRST))
        ['2/13/2024', '13 Feb 2024']
    """
    if notation == TIMES:
        return parsed_times(texts)
    numeric = _numeric(texts, notation)
    return {text: found for text in texts if (found := numeric.get(text) or _unambiguous(text)) is not None}


def hint_of_dates(texts: Sequence[str]) -> str:
    """
    What to do about texts that are not read as dates, if half of them look like some; else nothing.

    :param texts: Distinct texts.

    Example:
        >>> hint_of_dates(["le 3 mars 2024", "le 4 mai 2024"])
        "; if it holds dates ('le 3 mars 2024'), write them as YYYY-MM-DD"
        >>> hint_of_dates(["R-2024", "R-2025"])
        ''
    """
    like = [text for text in texts if _YEAR_WITHIN.search(text) and len(re.findall(r"[^\W_]+", text)) > 2]
    dates = parsed_dates(texts, ISO).values if like else {}
    odd = next((text for text in texts if text not in dates), "")
    return f"; if it holds dates ({odd!r}), write them as YYYY-MM-DD" if 2 * len(like) >= max(len(texts), 1) else ""


def _numeric(texts: Sequence[str], order: str) -> dict[str, datetime]:
    pattern = _NUMERIC.get(order)
    pairs = ((text, _date(pattern.fullmatch(text))) for text in texts) if pattern else ()
    return {text: found for text, found in pairs if found is not None}


def _unambiguous(text: str) -> datetime | None:
    """A date that can be read in one way only, whatever others are."""
    dates = (_date(pattern.fullmatch(text)) for pattern in _UNAMBIGUOUS)
    return next((found for found in dates if found is not None), None)


def _date(match: re.Match[str] | None) -> datetime | None:
    if match is None:
        return None
    parts = match.groupdict()
    try:
        day = date(_year(parts["year"]), _month(parts), int(parts.get("day") or 1))
        if not parts.get("day") and day.year not in _YEARS_OF_MONTHS:
            return None
        clock = _clock(parts) if parts.get("hour") else time()
        return _in_utc(datetime.combine(day, clock), parts.get("zone") or "")
    except (ValueError, OverflowError):  # no such day
        return None


def _year(written: str) -> int:
    return int(written) + (0 if len(written) == 4 else 2000 if int(written) < 69 else 1900)  # as POSIX has it


def _month(parts: dict[str, str]) -> int:
    if parts.get("quarter"):
        return 3 * int(parts["quarter"]) - 2
    return _MONTHS.index(parts["name"][:3].casefold()) + 1 if "name" in parts else int(parts["month"])


def _clock(parts: dict[str, str]) -> time:
    hour, half = int(parts["hour"]), parts["half"]
    if half is not None:
        hour = hour % 12 + 12 * (half.upper() == "PM")
    part = int((parts["part"] or "0")[:6].ljust(6, "0"))
    return time(hour, int(parts["minute"]), int(parts["second"] or 0), part)


def _in_utc(moment: datetime, zone: str) -> datetime:
    if not zone[1:2].isdigit():
        return moment
    offset = datetime.strptime(zone.replace(":", ""), "%z").tzinfo
    return moment.replace(tzinfo=offset).astimezone(UTC).replace(tzinfo=None)


def _hours(text: str) -> float | None:
    if (found := _time_of_day(text)) is not None:
        return hours_of(found)
    match = _DURATION.fullmatch(text)
    return None if match is None else sum(int(part or 0) / 60**power for power, part in enumerate(match.groups()))


def _time_of_day(text: str) -> time | None:
    match = _OF_DAY.fullmatch(text)
    try:
        return None if match is None else _clock(match.groupdict())
    except ValueError:  # no such hour
        return None
