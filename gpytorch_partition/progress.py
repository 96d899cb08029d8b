"""Progress bars, and warnings in the log with an estimate of the time, for work that takes minutes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import TypeVar

from tqdm import tqdm

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

LONG_SECONDS = 120  # seconds: work that is expected to take longer is announced by a warning in the log

_shows = True  # whether bars are shown on terminals
_DELAY, _TICK = 2.0, 1.0  # seconds before anything is shown, and between two looks at the clock


def progress(items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
    r"""
    Iterate over `items` behind a progress bar that appears after two seconds, and only on a terminal.

    If the first item took so long that the others will take more than 120 seconds, a warning is logged.

    :param items: What to iterate over.
    :param description: Label of the bar and of the warning.
    :param total: Number of items, where `items` has no length.

    Example:
        >>> sum(progress(range(4), "adding"))
        6
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    start = monotonic()
    bar = tqdm(items, desc=description, total=total, disable=not _shows or None, delay=_DELAY, leave=False)
    for number, item in enumerate(bar):
        if number == 1:
            remaining = (monotonic() - start) * ((total or 1) - 1)
            if remaining > LONG_SECONDS:
                logger.warning("%s: up to %.0f minutes to go", description, remaining / 60)
        yield item


@contextmanager
def ticking(description: str, forecast: float = 0.0) -> Iterator[None]:
    """
    Show a line that counts the seconds of work that gives no other signs of life, after two seconds, on a terminal.

    :param description: What is being done.
    :param forecast: Seconds that it is expected to take; shown if there are ten or more. (Default: unknown.)

    Example:
        >>> with ticking("adding"):
        ...     sum(range(4))
        6
    """
    about = f" of about {tqdm.format_interval(forecast)}" if forecast >= 10 else ""
    line = "{desc}: {elapsed}" + about
    with tqdm(desc=description, bar_format=line, disable=not _shows or None, delay=_DELAY, leave=False) as bar:
        if bar.disable:
            yield
            return
        done = Event()
        clock = Thread(target=_tick, args=(bar, done), daemon=True)
        clock.start()
        try:
            yield
        finally:
            done.set()
            clock.join()


def _tick(bar: tqdm, done: Event) -> None:
    start = monotonic()
    while not done.wait(_TICK):
        if monotonic() - start > _DELAY:
            bar.refresh()
    bar.clear()


@contextmanager
def quiet(is_quiet: bool = True) -> Iterator[None]:
    """
    No bars and no clocks inside, not even on a terminal; in all threads, as standard error is one.

    :param is_quiet: Whether to be quiet. (Default: yes.)

    Example:
        >>> with quiet():
        ...     sum(progress(range(4), "adding"))
        6
    """
    global _shows
    before, _shows = _shows, not is_quiet
    try:
        yield
    finally:
        _shows = before
