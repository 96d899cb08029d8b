"""Weights of training rows, with their checks and their uses in noise and trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.inputs.numbers import refuse_mask

_MOST_RATIO = 1e30  # of weights above 0: noise is 1 / w, which float32 must hold
_UNIT_SHARE = 0.9  # share of the rows that weigh the unit or less


@dataclass(frozen=True, eq=False)
class RowWeights:
    r"""
    Hold the weights w (`N`, above 0) of training rows, where the variance of the noise is :math:`\sigma^2 / w`.

    The unit is the weight of a usual row, the 90 % quantile of the weights. Bounds of noise and scales are meant for
    usual rows.
    """

    values: Tensor
    unit: float

    @classmethod
    def of(cls, values: Tensor) -> RowWeights:
        values = values.detach().double()
        unit = np.quantile(values.cpu().numpy(), _UNIT_SHARE, method="lower")
        return cls(values, float(unit))

    @property
    def relative(self) -> Tensor:
        """Return the weights (`N`) in units of the weight of a usual row."""
        return self.values / self.unit

    @property
    def capped(self) -> Tensor:
        """Return the relative weights, 1 at most (`N`), for means and trees: a precise row is still one point."""
        return self.relative.clamp_max(1.0)

    def of_rows(self, rows: Tensor | np.ndarray | slice) -> RowWeights:
        return RowWeights(self.values[rows], self.unit)


def noise_factors(weights: RowWeights | None, num_rows: int) -> Tensor:
    """Return the variance of the noise at each row, divided by that at a usual row (`N`, float64)."""
    return torch.ones(num_rows, dtype=torch.float64) if weights is None else 1 / weights.relative


def checked_weights(weights: Any, num_rows: int) -> np.ndarray | None:
    """Return weights of rows as an array (`N`, float64), or None where all are 1, which equals no weights."""
    if weights is None:
        return None
    refuse_mask(weights, "sample_weight", "give sample_weight.filled(0), and these rows are left out")
    try:
        found = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected sample_weight as numbers, one for each row: {error}") from error
    found = np.full(num_rows, float(found)) if found.ndim == 0 else found
    if found.ndim != 1:
        raise ValueError(f"Sample weights must be 1D array or scalar: expected {num_rows}, got shape {found.shape}")
    if len(found) != num_rows:
        raise ValueError(f"expected one weight for each of {num_rows} rows, got sample_weight of {len(found)}")
    wrong = ~np.isfinite(found) | (found < 0)
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(
            f"expected weights of rows from 0, finite ones, got {found[first]:g} for row {first} (sample_weight; "
            f"{int(wrong.sum())} such): 0 leaves a row out"
        )
    if not found.any():
        raise ValueError("expected weights of rows (sample_weight) that are not all zero, got zero for all")
    least, most = found[found > 0].min(), found.max()
    if not least >= most / _MOST_RATIO:
        raise ValueError(
            f"expected weights of rows (sample_weight) within a factor of {_MOST_RATIO:g}, got {least:g} to {most:g}: "
            "give rows of less a weight of 0, which leaves them out"
        )
    return None if bool((found == 1).all()) else found


def positive_weights(weights: Tensor | None, num_rows: int) -> RowWeights | None:
    """Return weights of rows that are all above 0, None where all are 1; a `ValueError` for anything else."""
    if weights is None:
        return None
    fits = torch.is_tensor(weights) and weights.shape == (num_rows,)
    if not fits or not bool(((weights > 0) & weights.isfinite()).all()):
        got = tuple(weights.shape) if torch.is_tensor(weights) else type(weights).__name__
        raise ValueError(f"expected {num_rows} weights of rows as a tensor of finite numbers above 0, got {got}")
    return None if bool((weights == 1).all()) else RowWeights.of(weights)
