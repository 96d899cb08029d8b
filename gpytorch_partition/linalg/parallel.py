"""Work that falls apart into independent pieces, on as many threads as PyTorch uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Piece = TypeVar("Piece")

# PyTorch runs an elementwise operation on up to this many numbers on the calling thread. Pieces made of such
# operations stay in the cache and need no barriers, which cost more than the work where cores are shared.
SERIAL_NUMEL = 2**15


def for_each(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """
    Do the work on each piece, several at a time: PyTorch's operations release Python's lock.

    :param work: What to do; calls must not write to the same place.
    :param pieces: What to do it on.

    Example:
        >>> squares = torch.zeros(3)
        >>> for_each(lambda i: squares[i].fill_(i * i), range(3))
        >>> squares
        tensor([0., 1., 4.])
    """
    num_threads = torch.get_num_threads()
    if num_threads == 1:
        for piece in pieces:
            work(piece)
        return
    with ThreadPoolExecutor(num_threads) as pool:
        for _ in pool.map(work, pieces):
            pass
