"""The center nearest to a point: sums of squares in float64 that no other row of a call can change."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from gpytorch_partition.linalg.parallel import SERIAL_NUMEL

LARGEST = 1e300  # coordinates are clamped to this magnitude, so that projections of them do not overflow
_ACCELERATOR_NUMEL = 2**24  # distances held at a time, enough to keep an accelerator busy


def label_nearest(x: Tensor, centers: Tensor, out: Tensor, seen: Callable[[Tensor], Tensor]) -> None:
    r"""
    Write the number of the nearest of C centers for each row, the lower number in a tie. :math:`O(n C K)`, bounded
    workspace.

    :param x: `n x D` points.
    :param centers: `C x K` float64.
    :param out: `n` int64, written.
    :param seen: Maps a block of rows (`b x D`), row by row, to the points compared with the centers (`b x K`).

    Example:
        >>> nearest = torch.empty(2, dtype=torch.int64)
        >>> label_nearest(torch.tensor([[0.1], [0.9]]), torch.tensor([[1.0], [0.0]]).double(), nearest, torch.clone)
        >>> nearest
        tensor([1, 0])
    """
    unit = _power_of_two(centers)
    columns = (centers.T / unit).contiguous()
    workspace = x.new_empty(2, 0, columns.shape[1], dtype=torch.float64)
    for rows, nearest in blocks(x, out, centers.shape[0]):
        if not workspace.shape[1]:  # as many rows as the first block: fresh memory for each would cost page faults
            workspace = workspace.new_empty(2, len(rows), columns.shape[1])
        points = seen(rows).to(torch.float64) / unit
        torch.argmin(_squared_distances(points, columns, workspace[:, : len(rows)]), 1, out=nearest)


def blocks(x: Tensor, out: Tensor, num_centers: int) -> zip:
    """Return blocks of rows and of their output, so small that a number per (row, center) stays in the cache."""
    numel = SERIAL_NUMEL if x.device.type == "cpu" else _ACCELERATOR_NUMEL
    size = max(1, numel // num_centers)
    return zip(x.split(size), out.split(size))


def projected(x: Tensor, matrix: Tensor) -> Tensor:
    """
    Multiply points (`n x D`) by a matrix (`D x K`) in float64: one product and one addition after another, for each
    point.

    The rounding of a matrix product would depend on the number of rows.
    """
    total = torch.zeros(x.shape[0], matrix.shape[1], dtype=torch.float64, device=x.device)
    for values, weights in zip(x.to(torch.float64).clamp(-LARGEST, LARGEST).T, matrix):
        total.add_(values.unsqueeze(1) * weights).clamp_(-LARGEST, LARGEST)
    return total


def checked_projection(projection: Any) -> int | None:
    """
    Return the number of dimensions of a random projection, or None for none, checked.

    :raises ValueError: If `projection` is neither.
    """
    if projection is None:
        return None
    if not isinstance(projection, Integral) or isinstance(projection, bool) or int(projection) < 1:
        raise ValueError(f"expected projection to be a number of dimensions, 1 or more, or None, got {projection!r}")
    return int(projection)


def _power_of_two(values: Tensor) -> Tensor:
    """The power of two below the largest magnitude: division by it is exact, and squares stay in range."""
    exponent = torch.frexp(values.abs().amax()).exponent
    return torch.ldexp(values.new_ones(()), exponent - 1)


def _squared_distances(rows: Tensor, columns: Tensor, workspace: Tensor) -> Tensor:
    """
    Squared distances (`n x C`) between rows (`n x d`) and centers (`d x C`), in the first half of `2 x n x C` numbers.

    Each step is one correctly rounded operation per pair. A matrix product, `torch.cdist` or a fused
    multiply-add would round differently with the shape of the block, and so break ties differently.
    """
    total, differences = workspace
    total.zero_()
    for values, centers in zip(rows.T, columns):
        torch.sub(values.unsqueeze(1), centers, out=differences)
        total.add_(differences.mul_(differences))
    return total
