"""How long the stages of a fit took."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

_SECONDS: ContextVar[dict[str, float] | None] = ContextVar("seconds of stages", default=None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """
    A stage of a fit: its seconds are added to those that :func:`recorded_stages` collects, if it does.

    :param name: What the stage is called in summaries.
    """
    start = monotonic()
    try:
        yield
    finally:
        seconds = _SECONDS.get()
        if seconds is not None:
            seconds[name] = seconds.get(name, 0.0) + monotonic() - start


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
