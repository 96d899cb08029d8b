"""The columns that a kernel sees, and the range of the rows on which it was built, both in its state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gpytorch_partition.descriptions import listed
from gpytorch_partition.inputs.numbers import ShapedBuffers, bits_of, floats_of, tensor_of
from gpytorch_partition.inputs.training_rows import decode_missing

_FEWEST = 10  # rows to remember, and points to judge
_SAMPLE = 2000  # evenly spaced rows for quantiles and shares
_MOST = 0.95  # share of the points outside the building rows' middle, where 20 % of those rows lie
_SPREAD = 0.25  # width of the points' middle, in units of the building rows' middle


class Columns(ShapedBuffers):
    """
    Select the columns of `active_dims` inside the kernel, instead of in GPyTorch.

    GPyTorch's own `active_dims` stays None: a wrapper kernel sets its copy to None, and after an error does not restore
    it, so that later calls would see the wrong columns.
    """

    def __init__(self, dims: Sequence[int] | Tensor | None = None) -> None:
        super().__init__()
        # An empty tensor stands for all columns.
        self.numbers: Tensor
        self.register_buffer("numbers", torch.empty(0, dtype=torch.int64) if dims is None else _checked(dims))

    def extra_repr(self) -> str:
        return listed(self.numbers.tolist()) if self.numbers.numel() else "all"

    def select(self, x: Tensor) -> Tensor:
        """Return the columns `*batch x N x k` of points: a copy, or x itself for all columns; `N` is `N x 1`."""
        if not torch.is_tensor(x):
            raise TypeError(f"expected points as a tensor, got {type(x).__name__}: give torch.from_numpy(array)")
        x = x.unsqueeze(-1) if x.dim() == 1 else x
        if not self.numbers.numel() or not x.dim():
            return x
        if x.shape[-1] <= int(self.numbers.max()):
            raise ValueError(
                f"active_dims = {tuple(self.numbers.tolist())} expected points with at least "
                f"{int(self.numbers.max()) + 1} columns, got {x.shape[-1]}: give all columns, not the active ones"
            )
        return x.index_select(-1, self.numbers)


def _checked(dims: Sequence[int] | Tensor) -> Tensor:
    expected = "active_dims to be distinct numbers of columns, counted from 0"
    numbers = tensor_of(dims, expected)
    are_whole = not (numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool)
    are_numbers = are_whole and numbers.dim() == 1 and numbers.numel() > 0
    if not are_numbers or int(numbers.min()) < 0 or numbers.unique().numel() < numbers.numel():
        raise ValueError(f"expected {expected}, got {dims!r}")
    return numbers.to(torch.int64)


class OtherUnitsWarning(UserWarning):
    """Warn that a kernel compares points in other units than those of its rows: build it on transformed rows."""


class BuildingRange(ShapedBuffers):
    """
    Hold the middle 80 % of each column of the rows that a kernel was built on, to detect points in other units.

    A column of points is elsewhere if 95 % of them lie outside that middle, or their own middle is less than a quarter
    of it. Columns with fewer than three values are not judged, nor are fewer than 10 points or building rows.
    """

    middle: Tensor  # (2, D) bit patterns of float64; (2, 0) where nothing is known

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("middle", torch.empty(2, 0, dtype=torch.int64))

    def extra_repr(self) -> str:
        return f"{self.middle.shape[1]} columns" if self.middle.numel() else "unknown"

    def remember(self, x: Tensor) -> None:
        if x.shape[0] >= _FEWEST:
            some = _sample(x)
            least, low, high, largest = _quantiles(some, (0.0, 0.1, 0.9, 1.0))
            has_three_values = ((some > least) & (some < largest)).any(0)
            self.middle = bits_of(torch.stack([low, torch.where(has_three_values, high, low)]))

    def elsewhere(self, x: Tensor) -> Tensor:
        """Return for each column that varies whether points are elsewhere (bool); empty if they are not judged."""
        low, high = floats_of(self.middle)
        some = _sample(x)
        if not low.numel() or len(some) < _FEWEST or some.shape[1] != low.numel():
            return torch.zeros(0, dtype=torch.bool, device=low.device)
        some_low, some_high = _quantiles(some, (0.1, 0.9))
        outside = ((some < low) | (some > high)).sum(0) >= _MOST * (~some.isnan()).sum(0)
        narrow = some_high - some_low < _SPREAD * (high - low)
        return (outside | narrow)[high > low]


def _sample(x: Tensor) -> Tensor:
    rows = x.detach().reshape(-1, x.shape[-1])
    return decode_missing(rows[:: max(1, -(-len(rows) // _SAMPLE))].double())


def _quantiles(rows: Tensor, shares: tuple[float, ...]) -> Tensor:
    return torch.nanquantile(rows, rows.new_tensor(shares), dim=0)
