"""Word of long work: a progress bar on a terminal, and a logged forecast everywhere; nothing for work that is short."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sized
from time import monotonic
from typing import TypeVar

from tqdm import tqdm

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

# Seconds from which on work is announced.
LONG = 120


def progress(items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
    r"""
    Iterate over `items` behind a progress bar that appears after two seconds, and only on a terminal.

    If the first item took so long that all will take minutes, a warning is logged.

    :param items: What to iterate over.
    :param description: What the bar says is being done.
    :param total: Number of items, where `items` has no length.

    Example:
        >>> sum(progress(range(4), "adding"))
        6
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    start, seconds = monotonic(), 0.0
    for number, item in enumerate(tqdm(items, desc=description, total=total, disable=None, delay=2.0, leave=False)):
        if number == 1:
            seconds = (monotonic() - start) * ((total or 1) - 1)
        if number == 1 and seconds > LONG:
            logger.warning("%s: up to %.0f minutes to go", description, seconds / 60)
        yield item
