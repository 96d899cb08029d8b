"""Progress bars, and warnings in the log with an estimate of the time, for work that takes minutes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, RLock, Thread
from time import monotonic
from typing import Any, TypeVar

from tqdm import tqdm

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

LONG_SECONDS = 120  # seconds: work that is expected to take longer is announced by a warning in the log

_SHOWS: ContextVar[bool] = ContextVar("whether bars are shown on terminals", default=True)
# How much is said of stages where there is no terminal: 1 their seconds, 2 those of their steps too.
_TELLS: ContextVar[int] = ContextVar("how much is said of stages", default=0)
_DELAY, _TICK = 2.0, 1.0  # seconds before anything is shown, and between two looks at the clock
_LEAST_FORECAST = 10.0  # seconds
_USUAL_WIDTH = 79  # characters


class _Bar(tqdm):
    """
    A bar whose lock is this process's own: that of tqdm is shared with forked processes, and nobody can take it any
    more once one of them was killed while it had it. On a terminal that does not tell its size, as those of containers
    and batch systems do, it is shown as well.
    """

    ncols: int | None
    nrows: int | None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if not self.disable:  # tqdm shows nothing at the size of 0 x 0, of which it takes one line off
            self.ncols = self.ncols if self.ncols is None or self.ncols > 0 else _USUAL_WIDTH
            self.nrows = self.nrows if self.nrows is None or self.nrows > 0 else None  # tqdm's own guess


def _renew_lock() -> None:
    _Bar.set_lock(RLock())


_renew_lock()
if hasattr(os, "register_at_fork"):  # where a thread may hold the lock as the process is forked
    os.register_at_fork(after_in_child=_renew_lock)


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
    bar = _Bar(items, desc=description, total=total, disable=not _SHOWS.get() or None, delay=_DELAY, leave=False)
    for number, item in enumerate(bar):
        if number == 1:
            remaining = (monotonic() - start) * ((total or 1) - 1)
            if remaining > LONG_SECONDS:
                logger.warning("%s: up to %.0f minutes to go", description, remaining / 60)
        yield item


class Line:
    """
    What is being done, from the outside in, and how long it is expected to take in all.

    :param description: What is being done.
    :param forecast: Seconds that it is expected to take; 0 where that is not known.
    """

    def __init__(self, description: str, forecast: float) -> None:
        self.names, self.forecast = [description], forecast
        self._start = monotonic()

    def expect(self, seconds: float) -> None:
        """Expect to take so many seconds from now on."""
        self.forecast = monotonic() - self._start + seconds

    @property
    def about(self) -> str:
        """The forecast, if it is worth telling and has not been shown to be wrong."""
        is_told = self.forecast >= _LEAST_FORECAST and monotonic() - self._start <= self.forecast
        return f" of about {tqdm.format_interval(self.forecast)}" if is_told else ""


_LINE: ContextVar[Line | None] = ContextVar("the line that is shown", default=None)


@contextmanager
def ticking(description: str, forecast: float = 0.0) -> Iterator[Line]:
    """
    Show a line that counts the seconds of work that gives no other signs of life, after two seconds, on a terminal.

    Inside another one, that line goes on and says what is done now.

    :param description: What is being done.
    :param forecast: Seconds that it is expected to take; shown if there are ten or more. (Default: unknown.)
    :return: The line, which can be told to expect something else.

    Example:
        >>> with ticking("adding"):
        ...     sum(range(4))
        6
    """
    if (line := _LINE.get()) is not None:
        with doing(description):
            line.expect(forecast) if forecast else None
            yield line
        return
    line = Line(description, forecast)
    token = _LINE.set(line)
    try:
        with _shown(line):
            yield line
    finally:
        _LINE.reset(token)


@contextmanager
def doing(name: str) -> Iterator[None]:
    """
    Have the line of :func:`ticking`, if there is one, say what is done now.

    :param name: What that is.
    """
    line = _LINE.get()
    if line is None:
        yield
        return
    line.names.append(name)
    try:
        yield
    finally:
        line.names.pop()


def expect(seconds: float) -> None:
    """
    Have the line of :func:`ticking`, if there is one, say that its work is expected to take so long from now on.

    :param seconds: How long.
    """
    if (line := _LINE.get()) is not None:
        line.expect(seconds)


@contextmanager
def _shown(line: Line) -> Iterator[None]:
    with _Bar(bar_format="{desc}", disable=not _SHOWS.get() or None, delay=_DELAY, leave=False) as bar:
        if bar.disable:
            yield
            return
        done = Event()
        clock = Thread(target=_tick, args=(bar, line, done), daemon=True)
        clock.start()
        try:
            yield
        finally:
            done.set()
            clock.join()


def _tick(bar: tqdm, line: Line, done: Event) -> None:
    start = monotonic()
    while not done.wait(_TICK):
        seconds = monotonic() - start
        if seconds > _DELAY:
            told = f"{tqdm.format_interval(seconds)}{line.about}: {', '.join(line.names)}"  # cut at the terminal's end
            bar.set_description_str(told)
    bar.clear()


@contextmanager
def quiet(is_quiet: bool = True) -> Iterator[None]:
    """
    No bars and no clocks inside, not even on a terminal; in this thread, as others may want theirs.

    :param is_quiet: Whether to be quiet. (Default: yes.)

    Example:
        >>> with quiet():
        ...     sum(progress(range(4), "adding"))
        6
    """
    token = _SHOWS.set(not is_quiet)
    try:
        yield
    finally:
        _SHOWS.reset(token)


@contextmanager
def verbosity(verbose: bool | int | None) -> Iterator[None]:
    """
    How much is said of the work inside, as estimators' `verbose` says.

    :param verbose: None shows lines and bars on terminals; 0 or False nothing; 1 or True also tells the seconds of each
        stage where there is no terminal, 2 those of its steps too.
    """
    token = _TELLS.set(int(verbose or 0))
    try:
        with quiet(not _SHOWS.get() or (verbose is not None and not verbose)):
            yield
    finally:
        _TELLS.reset(token)


def tell(message: str, level: int = 1) -> None:
    """
    Say something in the log of a job that has no terminal, if so much is wanted.

    It goes to the log if that is set up for messages of level INFO, else to standard error.

    :param message: What to say.
    :param level: The least `verbose` that is said it.
    """
    if _TELLS.get() < level or not _SHOWS.get() or sys.stderr.isatty():
        return
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", message)
    else:
        print(f"gpytorch_partition: {message}", file=sys.stderr, flush=True)
