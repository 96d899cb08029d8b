"""Standardization of columns and targets, for kernels, the default model and estimators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# A column whose standard deviation is smaller than this, relative to its mean, is constant up to rounding.
_ROUNDING = 10 * torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class Standardization:
    r"""
    Map values x to :math:`(x - \mu) / \sigma`, with D means and scales for columns, and one (or T) for targets.

    :param mean: `D` means of the values that are not NaN; 0 where there are none.
    :param scale: `D` standard deviations. It is 1 for columns that are constant up to rounding. For constant targets it
        is their size, so that uncertainty is in their unit, or 1 if they are all 0.
    """

    mean: Tensor
    scale: Tensor

    @classmethod
    def of(cls, values: Tensor, are_targets: bool = False) -> Standardization:
        """Return the standardization of the columns of rows (`N x D`), or of targets (`N` or `N x T`)."""
        values = values.detach().double()
        mean = values.nanmean(0).nan_to_num()
        return cls._with_constants(mean, (values - mean).square().nanmean(0).sqrt().nan_to_num(), are_targets)

    # NumPy adds in another order than torch. The last digits decide between equally good splits of trees, so arrays
    # keep NumPy's sums: with torch's, estimators would predict differently from the same seed.
    @classmethod
    def of_array(cls, values: np.ndarray, are_targets: bool = False) -> Standardization:
        """Return the standardization of an array (`N x D` or `N`), equal to NumPy's moments to the last digit."""
        known = np.ma.masked_invalid(values)
        moments = (np.asarray(np.ma.filled(moment, 0.0)) for moment in (known.mean(0), known.std(0)))
        mean, deviation = map(torch.from_numpy, moments)
        return cls._with_constants(mean, deviation, are_targets)

    @classmethod
    def _with_constants(cls, mean: Tensor, deviation: Tensor, are_targets: bool) -> Standardization:
        unit = torch.where(mean == 0, 1.0, mean.abs()) if are_targets else torch.ones_like(mean)
        return cls(mean, torch.where(deviation <= _ROUNDING * mean.abs(), unit, deviation))

    @classmethod
    def of_weighted(cls, values: Tensor, weights: Tensor | None) -> Standardization:
        """Return the standardization of targets (`N`) with weights (`N`, from 0; None for equal ones)."""
        if weights is None:
            return cls.of(values, are_targets=True)
        values, shares = values.detach().double(), weights / weights.sum()
        mean = shares @ values
        return cls._with_constants(mean, (shares @ (values - mean).square()).sqrt(), are_targets=True)

    def without(self, columns: Iterable[int]) -> Standardization:
        """Return the map that does not change some columns, such as codes of categories."""
        mean, scale, numbers = self.mean.clone(), self.scale.clone(), list(columns)
        mean[numbers], scale[numbers] = 0.0, 1.0
        return Standardization(mean, scale)

    def apply(self, values: Tensor) -> Tensor:
        """Return values (`*batch x N x D`, or `N`) in standard deviations from the mean (float64); NaN stays."""
        return (values.double() - self.mean) / self.scale

    def apply_array(self, values: np.ndarray) -> Tensor:
        """Return a standardized array as a tensor; the array may be read-only or reversed, which tensors cannot be."""
        return torch.from_numpy((values - self.mean.numpy()) / self.scale.numpy())

    def undo(self, values: Tensor) -> Tensor:
        """Return standardized values (`*batch x N x D`, or `*shape` of targets) in their original units (float64)."""
        return values.double() * self.scale + self.mean
