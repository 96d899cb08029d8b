"""Rows to fit and to predict: small sets, of numbers that compress well. Only what writes the files draws them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_NEW = 40
_GRID = 1024  # numbers are multiples of its inverse: few digits, exact in float32 as well


class Rows(NamedTuple):
    """Training rows and targets, and rows to predict."""

    x: Tensor  # (N, D)
    y: Tensor  # (N,), or (outputs, N)
    new: Tensor  # (M, D): new rows, three training rows and two that are far from all


def _set(seed: int, num_rows: int, num_columns: int, noise: tuple[float, float]) -> Rows:
    """A smooth function and a step; the noise has one deviation left of 0 and one right of it."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows + _NEW, num_columns, generator=generator, dtype=torch.float64)
    errors = torch.randn(num_rows + _NEW, generator=generator, dtype=torch.float64)
    deviation = torch.where(x[:, 0] > 0, noise[1], noise[0])
    y = (2 * x[:, 0]).sin() + x[:, 1] * (x[:, 2] > 0) + deviation * errors
    x, y = _on_grid(x), _on_grid(y)
    return _split(x, y, num_rows)


def _split(x: Tensor, y: Tensor, num_rows: int) -> Rows:
    far = torch.stack([8 * x[0], -8 * x[1]])
    return Rows(x[:num_rows], y[:num_rows], torch.cat([x[num_rows:], x[:3], far]))


def _on_grid(values: Tensor) -> Tensor:
    return (values * _GRID).round() / _GRID


def plain() -> Rows:
    """Four standardized columns, the same noise everywhere."""
    return _set(0, 120, 4, (0.3, 0.3))


def in_single_precision() -> Rows:
    """The same in float32."""
    x, y, new = plain()
    return Rows(x.float(), y.float(), new.float())


def even() -> Rows:
    """Three columns and a large noise that is the same everywhere."""
    return _set(4, 150, 3, (0.7, 0.7))


def uneven() -> Rows:
    """Three columns and a noise that varies."""
    return _set(1, 150, 3, (0.05, 1.0))


def many() -> Rows:
    """So many rows of a smooth function of two columns that the default model is calibrated."""
    num_rows, generator = 1410, torch.Generator().manual_seed(6)
    x = _on_grid(4 * torch.rand(num_rows + _NEW, 2, generator=generator, dtype=torch.float64))
    errors = torch.randn(num_rows + _NEW, generator=generator, dtype=torch.float64)
    return _split(x, _on_grid((2 * x[:, 0]).sin() * x[:, 1].cos() + 0.2 * errors), num_rows)


def with_missing_values() -> Rows:
    """Three columns with NaN in a tenth of the cells."""
    x, y, new = _set(2, 150, 3, (0.05, 1.0))
    generator = torch.Generator().manual_seed(3)
    for values in (x, new):
        values[torch.rand(values.shape, generator=generator) < 0.1] = torch.nan
    return Rows(x, y, new)


def with_categories() -> Rows:
    """The first column holds the numbers 0 to 5, another has missing values; training rows have every category."""
    x, y, new = with_missing_values()
    for values in (x, new):
        values[:, 0] = torch.arange(len(values)) % 6
    return Rows(x, y + (x[:, 0] % 3), new)


def in_other_units() -> Rows:
    """Columns of very different means and deviations."""
    x, y, new = _set(5, 120, 3, (0.3, 0.3))
    units, shift = torch.tensor([1.0, _GRID, 1 / _GRID]).double(), torch.tensor([0.0, 5000.0, 3.0]).double()
    return Rows(x * units + shift, y, new * units + shift)


def of_two_outputs() -> Rows:
    """Two targets for every row."""
    x, y, new = plain()
    return Rows(x, torch.stack([y, y.abs() - x[:, 3]]), new)
