"""Progress of long work: bars and the present stage on terminals, and the seconds of stages."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TypeVar

from tqdm import tqdm

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

_DELAY = 2.0  # seconds before anything is shown
_LONGEST = 68  # characters of what is done, so that a line of 80 has the time too

_VERBOSE: ContextVar[int | None] = ContextVar("verbose of estimators", default=None)
_LINE: ContextVar[tuple[tqdm, str] | None] = ContextVar("line on the terminal, and its first words", default=None)
_SECONDS: ContextVar[dict[str, float] | None] = ContextVar("seconds of stages", default=None)


def progress(items: Iterable[Item], description: str, total: int | None = None) -> Iterable[Item]:
    """Return items behind a bar of tqdm, which appears after two seconds, and only on a terminal."""
    return tqdm(items, description, total, leave=False, disable=_is_off(), delay=_DELAY)


def _is_off() -> bool | None:
    return True if _VERBOSE.get() == 0 or not _has_standard_error() else None  # None: unless it is a terminal


def _has_standard_error() -> bool:
    """Return whether there is one, as daemons and windows have none."""
    return sys.stderr is not None and not sys.stderr.closed


@contextmanager
def doing(name: str) -> Iterator[None]:
    """Show the name of the work inside on a terminal, after two seconds; stages inside add theirs."""
    if outer := _LINE.get():
        bar, words = outer
        bar.set_description_str(_shortened(f"{words}, {name}"), refresh=bar.format_dict["elapsed"] >= _DELAY)
        yield
        return
    options = {"bar_format": "{desc}: {elapsed}", "leave": False, "disable": _is_off(), "delay": _DELAY}
    with tqdm(desc=_shortened(name), **options) as bar:
        token = _LINE.set((bar, name))
        try:
            yield
        finally:
            _LINE.reset(token)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


@contextmanager
def stage(name: str, level: int = 1) -> Iterator[None]:
    """
    Show the stage of a fit, and count its seconds for :func:`recorded_stages`.

    :param level: 2 for a step of a stage, which is not counted, and is reported from `verbose=2` on. (Default: 1.)
    """
    start, found = monotonic(), _SECONDS.get()
    with doing(name):
        yield
    seconds = monotonic() - start
    if found is not None and level == 1:
        found[name] = found.get(name, 0.0) + seconds
    tell(f"{'  ' * (level - 1)}{name}: {seconds:.1f} seconds", level)


@contextmanager
def recorded_stages() -> Iterator[dict[str, float]]:
    """Collect the seconds of all stages inside, by name, in the order in which they end."""
    seconds: dict[str, float] = {}
    token = _SECONDS.set(seconds)
    try:
        yield seconds
    finally:
        _SECONDS.reset(token)


@contextmanager
def verbosity(verbose: bool | int | None) -> Iterator[None]:
    """Set the parameter `verbose` of estimators for the work inside, in this thread; 0 outside stays 0."""
    outer = _VERBOSE.get()
    token = _VERBOSE.set(outer if outer == 0 or verbose is None else int(verbose))
    try:
        yield
    finally:
        _VERBOSE.reset(token)


def tell(message: str, level: int = 1) -> None:
    """Write a message to the log at level INFO, or to standard error without such a log; not on a terminal."""
    if (_VERBOSE.get() or 0) < level or not _has_standard_error() or sys.stderr.isatty():
        return
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", message)
    else:
        print(f"gpytorch_partition: {message}", file=sys.stderr, flush=True)
