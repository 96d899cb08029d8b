"""The parts of the default classifier: forests of the classes, smooth parts of two widths, and a linear one."""

from __future__ import annotations

from dataclasses import replace

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.presets.options import Setup
from gpytorch_partition.presets.parts import SMOOTH, PartInputs, new_parts

_SHARED = ("forest", "random_trees", "linear")
# Lengthscales of the smooth parts, in square roots of the number of columns. All columns count the same: a lengthscale
# for each of them, learned on the classes, would take most of the time of a fit.
_WIDTHS = {"smooth_short": 0.5, "smooth_long": 2.0}


def class_parts(x: Tensor, indicators: Tensor, setup: Setup, *, is_complete: bool = True) -> dict[str, Kernel]:
    """
    Kernels of unit scale, by name, for a classifier to weigh.

    :param x: `N x D` standardized rows; NaN is a missing value.
    :param indicators: `N` zeros and ones, or `N x k` of k classes, which the forests are grown on.
    :param setup: Source of the draws, and the options.
    :param is_complete: Whether no row, of these or others, misses values; else there are forests only. (Default: yes.)
    """
    if not is_complete:
        return new_parts(PartInputs(x, indicators, None, setup), _SHARED)
    unit = torch.full((x.shape[1],), x.shape[1] ** 0.5, dtype=torch.float64)
    inputs = PartInputs(x, indicators, unit, setup)
    smooth = {name: SMOOTH.build(replace(inputs, lengthscales=width * unit)) for name, width in _WIDTHS.items()}
    return new_parts(inputs, _SHARED) | smooth
