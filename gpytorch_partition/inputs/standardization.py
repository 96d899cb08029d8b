"""Standardization of columns and targets, for kernels, the default model and estimators."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

# A column whose standard deviation is smaller than this, relative to its mean, is constant up to rounding.
_ROUNDING = 10 * torch.finfo(torch.float64).eps
FAR = 10.0  # standard deviations beyond which values count by their logarithm; normal ones of a million rows reach 5
_EXTREME = 0.01  # share of the values on each side, one at least, that are not among the middle ones


@dataclass(frozen=True, eq=False)
class Standardization:
    r"""
    Map values x to :math:`(x - \mu) / \sigma`, with D means and scales for columns, and one (or T) for targets.

    :param mean: `D` means of the values that are not NaN; 0 where there are none.
    :param scale: `D` standard deviations. It is 1 for columns that are constant up to rounding. For constant targets it
        is their size, so that uncertainty is in their unit, or 1 if they are all 0.
    :param far: `D` distances from 0 (or one for all) in standard deviations; a larger one d counts as
        :math:`far\, (1 + \log(d / far))`. (Default: infinity, all count in full.)
    """

    mean: Tensor
    scale: Tensor
    far: Tensor | float = math.inf

    @classmethod
    def of(cls, values: Tensor, are_targets: bool = False) -> Standardization:
        """Return the standardization of the columns of rows (`N x D`), or of targets (`N` or `N x T`)."""
        values = values.detach().double()
        mean = values.nanmean(0).nan_to_num()
        return cls._with_constants(mean, (values - mean).square().nanmean(0).sqrt().nan_to_num(), are_targets)

    @classmethod
    def of_columns(cls, values: Tensor | np.ndarray) -> Standardization:
        """
        Return the standardization of columns (`N x D`) in which values far from the others count by their logarithm.

        Call it for columns of training rows: a single wrong cell (9,831 mm of rain in an hour) would make all other
        values of its column alike, and linear functions of it huge. In means and standard deviations a value counts as
        at most ten deviations of the middle 98 % from their mean; beyond ten of the resulting deviations it counts by
        its logarithm. Means and deviations are the usual ones where hardly any value of the middle differs from the
        others (rare events).
        """
        rows = values.detach().double() if isinstance(values, Tensor) else torch.from_numpy(np.array(values, float))
        mean, deviation = _middle_moments(rows)
        reach = torch.where(deviation > _ROUNDING * mean.abs(), FAR * deviation, math.inf)
        counted = rows.clamp(mean - reach, mean + reach)
        return replace(cls.of(counted) if isinstance(values, Tensor) else cls.of_array(counted.numpy()), far=FAR)

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
        far = torch.zeros_like(mean) + self.far
        mean[numbers], scale[numbers], far[numbers] = 0.0, 1.0, math.inf
        return Standardization(mean, scale, far)

    def apply(self, values: Tensor) -> Tensor:
        """Return values (`*batch x N x D`, or `N`) in standard deviations from the mean (float64); NaN stays."""
        return self._compressed((values.double() - self.mean) / self.scale)

    def apply_array(self, values: np.ndarray) -> Tensor:
        """Return a standardized array as a tensor; the array may be read-only or reversed, which tensors cannot be."""
        return self._compressed(torch.from_numpy((values - self.mean.numpy()) / self.scale.numpy()))

    def _compressed(self, standardized: Tensor) -> Tensor:
        far = torch.as_tensor(self.far, dtype=torch.float64, device=standardized.device)
        return standardized.clamp(-far, far) * (1 + (standardized.abs() / far).clamp_min(1).log())

    def undo(self, values: Tensor) -> Tensor:
        """Return standardized values (`*batch x N x D`, or `*shape` of targets) in their original units (float64)."""
        return self.in_full(values) * self.scale + self.mean

    def in_full(self, values: Tensor) -> Tensor:
        """Return standardized values (`*batch x N x D`) with the distances of far ones themselves (float64)."""
        return expanded(values.double(), torch.as_tensor(self.far, dtype=torch.float64, device=values.device))


def expanded(standardized: Tensor, far: Tensor | float = FAR) -> Tensor:
    """Return standardized values in full, of which distances beyond `far` count by their logarithm."""
    within = standardized.clamp(-far, far)  # type: ignore[arg-type]  # a tensor or a number, as both ends are
    return within * ((standardized.abs() / far).clamp_min(1) - 1).exp()


def _middle_moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and standard deviations (`D`) of columns (`N x D`) without extreme values; 0 for too few others."""
    counts = (~values.isnan()).sum(0)
    left_out = (_EXTREME * counts).long().clamp_min(1)
    ordered, places = values.sort(0)[0], torch.arange(len(values), device=values.device).unsqueeze(-1)
    is_middle = (places >= left_out) & (places < counts - left_out)  # NaN is sorted to the end
    middle = torch.where(is_middle, ordered, math.nan)
    median = ordered.gather(0, (counts // 2).clamp_max(len(values) - 1).unsqueeze(0))
    varies = (is_middle & (middle != median)).sum(0) >= left_out
    mean = middle.nanmean(0).nan_to_num()
    return mean, torch.where(varies, (middle - mean).square().nanmean(0).sqrt(), 0.0)
