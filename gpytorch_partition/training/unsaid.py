"""What a fit inside of another one does not need to say: warnings that are held back in this thread only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

METHOD, CONVERGENCE = "that L-BFGS is used", "values at bounds, and iterations that did not suffice"
WIDTH = "a width that stays as it is"

_UNSAID: ContextVar[frozenset[str]] = ContextVar("what fits do not say", default=frozenset())


@contextmanager
def unsaid(*what: str) -> Iterator[None]:
    """
    Have fits inside not warn; `warnings.catch_warnings` would change the filters of all threads.

    :param what: :data:`METHOD`, :data:`CONVERGENCE` or :data:`WIDTH`.

    Example:
        >>> with unsaid(METHOD):
        ...     is_said(METHOD), is_said(CONVERGENCE)
        (False, True)
    """
    token = _UNSAID.set(_UNSAID.get() | set(what))
    try:
        yield
    finally:
        _UNSAID.reset(token)


def is_said(what: str) -> bool:
    """Whether fits are to warn of it."""
    return what not in _UNSAID.get()
