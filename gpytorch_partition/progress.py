"""The progress bar of long work: quiet when standard error is not a terminal, and for work that is short."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")


def progress(items: Iterable[Item], description: str, total: int | None = None) -> Iterable[Item]:
    r"""
    Iterate over `items` behind a progress bar that appears after two seconds, and only on a terminal.

    :param items: What to iterate over.
    :param description: What the bar says is being done.
    :param total: Number of items, where `items` has no length.

    Example:
        >>> sum(progress(range(4), "adding"))
        6
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    return tqdm(items, desc=description, total=total, disable=None, delay=2.0, leave=False)
