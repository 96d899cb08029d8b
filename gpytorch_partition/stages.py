"""What a fit is doing, by name, how long its stages took, and a limit of the time that it may take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from gpytorch_partition.progress import doing, tell

_SECONDS: ContextVar[dict[str, float] | None] = ContextVar("seconds of stages", default=None)
_LIMIT: ContextVar[tuple[float, Callable[[], float]] | None] = ContextVar(
    "when to stop, and by which clock", default=None
)


class OutOfTimeError(Exception):
    """The time of a :func:`time_limit` is over."""


@contextmanager
def time_limit(seconds: float, clock: Callable[[], float] = monotonic) -> Iterator[None]:
    """
    Have :func:`check_time` end the work inside when its time is over.

    :param seconds: How long the work may take; infinity for no limit.
    :param clock: What tells the time, in seconds. (Default: the machine's.)
    """
    token = _LIMIT.set((clock() + seconds, clock))
    try:
        yield
    finally:
        _LIMIT.reset(token)


def check_time() -> None:
    """
    Where work can be given up: between stages, steps and iterations.

    :raises OutOfTimeError: If the time of a limit is over.
    """
    limit = _LIMIT.get()
    if limit is not None and limit[1]() > limit[0]:
        raise OutOfTimeError


@contextmanager
def stage(name: str) -> Iterator[None]:
    """
    A stage of a fit: its seconds are added to those that :func:`recorded_stages` collects, if it does.

    On a terminal it is shown while it lasts, if there is a line of :func:`~gpytorch_partition.progress.ticking`.

    :param name: What the stage is called in summaries.
    """
    with _timed(name, 1) as start:
        try:
            yield
        finally:
            seconds = _SECONDS.get()
            if seconds is not None:
                seconds[name] = seconds.get(name, 0.0) + monotonic() - start


@contextmanager
def step(name: str) -> Iterator[None]:
    """
    A step of a stage, which is shown while it lasts, and not recorded.

    :param name: What the step is called.
    """
    with _timed(name, 2):
        yield


@contextmanager
def _timed(name: str, level: int) -> Iterator[float]:
    check_time()
    start = monotonic()
    with doing(name):
        yield start
    tell(f"{'  ' * (level - 1)}{name}: {monotonic() - start:.1f} seconds", level)


@contextmanager
def recorded_stages() -> Iterator[dict[str, float]]:
    """
    Collect the seconds of all stages inside, by name, in the order in which they ended.

    Example:
        >>> with recorded_stages() as seconds:
        ...     with stage("adding"):
        ...         total = sum(range(10))
        >>> list(seconds)
        ['adding']
    """
    seconds: dict[str, float] = {}
    token = _SECONDS.set(seconds)
    try:
        yield seconds
    finally:
        _SECONDS.reset(token)
