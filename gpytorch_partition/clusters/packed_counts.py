r"""
Counts of co-occurrence packed for a message or a file: half of the symmetric matrix, in four bytes if counts fit.

With :math:`G = \begin{pmatrix} A & B^\top \\ B & C \end{pmatrix}` in blocks of :math:`h = \lceil p / 2 \rceil`, a
rectangle of `2h + 1` by h holds the lower triangle of A below the upper one of C, and B below both: the rectangular
full packed format of Gustavson et al. 2010. Packed counts of equal clusters can be added without unpacking.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LARGEST = 2**31 - 1  # of four bytes


def packed(counts: Tensor) -> Tensor:
    """
    Pack counts (`2h + 1 x h`, int32, or float64 if a count is too large).

    :param counts: `p x p`, symmetric, float64.

    Example:
        >>> counts = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0]], dtype=torch.float64)
        >>> packed(counts)
        tensor([[2, 0],
                [2, 0],
                [0, 1],
                [1, 1],
                [0, 0]], dtype=torch.int32)
    """
    half, is_odd = _half(len(counts)), len(counts) % 2
    fits = not counts.numel() or float(counts.max()) <= _LARGEST
    whole = counts.to(torch.int32 if fits else torch.float64)  # first: padding makes a copy
    whole = torch.nn.functional.pad(whole, (0, is_odd, 0, is_odd)) if is_odd else whole
    top = whole.new_zeros(half + 1, half)
    top[1:] = whole[:half, :half].tril()
    top[:-1] += whole[half:, half:].triu()
    return torch.cat([top, whole[half:, :half]])


def unpacked(packed: Tensor, num_clusters: int) -> Tensor:
    """
    Unpack the counts (`p x p`, float64).

    :param packed: `2h + 1 x h`.
    :param num_clusters: p.
    """
    half = _half(num_clusters)
    rest = num_clusters - half
    counts = torch.zeros(num_clusters, num_clusters, dtype=torch.float64)
    counts[:half, :half] = _whole(packed[1 : half + 1].tril())
    counts[half:, half:] = _whole(packed[:half].triu()[:rest, :rest])
    counts[half:, :half] = packed[half + 1 :][:rest]
    counts[:half, half:] = packed[half + 1 :][:rest].mT
    return counts


def added(first: Tensor, second: Tensor) -> Tensor:
    """Add the packed counts of two sets of rows of the same clusters."""
    is_small = first.dtype == second.dtype == torch.int32 and _largest(first) + _largest(second) <= _LARGEST
    return first + second if is_small else first.double() + second.double()


def _largest(counts: Tensor) -> int:
    return int(counts.max()) if counts.numel() else 0


def _half(num_clusters: int) -> int:
    return (num_clusters + 1) // 2


def _whole(triangle: Tensor) -> Tensor:
    return triangle + (triangle.mT - torch.diag(triangle.diagonal()))
