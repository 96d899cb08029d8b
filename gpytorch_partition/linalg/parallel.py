"""Threads for work on many items: as many as PyTorch has, one in forked processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Piece = TypeVar("Piece")


# Numbers in a tensor up to which PyTorch runs an elementwise operation on the calling thread. Pieces of this size stay
# in the cache and need no barriers, which cost more than the work itself where cores are shared.
SERIAL_NUMEL = 2**15


def _compute_on_one_thread() -> None:
    """As in PyTorch's data loaders: a forked process lacks OpenMP's threads, and would wait for them for ever."""
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_compute_on_one_thread)


def slices(total: int, size: int) -> list[slice]:
    """Return slices of `size` places, the last one of fewer, that cover `total`."""
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def for_each(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """
    Call `work` on each piece, several at a time: PyTorch's operations release Python's global interpreter lock.

    Calls must not write to the same memory.
    """
    num_threads = torch.get_num_threads()
    if num_threads == 1:
        for piece in pieces:
            work(piece)
        return
    with ThreadPoolExecutor(num_threads) as pool:
        for _ in pool.map(work, pieces):
            pass
