"""Progress bars, and warnings in the log with an estimate of the time, for work that takes minutes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sized
from time import monotonic
from typing import TypeVar

from tqdm import tqdm

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

LONG_SECONDS = 120  # seconds: work that is expected to take longer is announced by a warning in the log


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
    for number, item in enumerate(tqdm(items, desc=description, total=total, disable=None, delay=2.0, leave=False)):
        if number == 1:
            remaining = (monotonic() - start) * ((total or 1) - 1)
            if remaining > LONG_SECONDS:
                logger.warning("%s: up to %.0f minutes to go", description, remaining / 60)
        yield item
