"""The parts of the default classifier: forests of the classes, smooth parts of two widths, and a linear one."""

from __future__ import annotations

from dataclasses import replace

import torch
from gpytorch.kernels import Kernel

from gpytorch_partition.kernels import EncodedKernel
from gpytorch_partition.presets.parts import SMOOTH, PartInputs, new_parts
from gpytorch_partition.tables import NumberView

_TREES = ("forest", "random_trees")
# Lengthscales of the smooth parts, in square roots of the number of columns. All columns have the same: a lengthscale
# for each of them, learned on the classes, would take most of the time of a fit.
_WIDTHS = {"smooth_short": 0.5, "smooth_long": 2.0}


def class_parts(inputs: PartInputs) -> dict[str, Kernel]:
    """
    Return kernels of unit scale, by name, for a classifier to weigh.

    :param inputs: Standardized rows, and as targets of the forests `N` zeros and ones, or `N x k` indicators of k
        classes. Lengthscales are not needed.
    """
    trees = new_parts(inputs, _TREES)
    if not inputs.has_view:
        return trees | _smooth_and_linear(inputs)
    view = NumberView(inputs.x, inputs.categories, inputs.y)
    seen = replace(inputs, x=view(inputs.x), categories={}, has_view=False)
    return trees | {name: EncodedKernel(part, view) for name, part in _smooth_and_linear(seen).items()}


def _smooth_and_linear(inputs: PartInputs) -> dict[str, Kernel]:
    num_columns = inputs.x.shape[1]
    unit = torch.full((num_columns,), num_columns**0.5, dtype=torch.float64)
    smooth = {name: SMOOTH.build(replace(inputs, lengthscales=width * unit)) for name, width in _WIDTHS.items()}
    return new_parts(inputs, ("linear",)) | smooth
