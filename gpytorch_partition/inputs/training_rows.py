"""Checks of the rows on which a partition is built: types, values, scales of columns and distances between rows."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.inputs.missing import MISSING

_MAX_SCALE_RATIO = 100.0  # of the standard deviations of two columns
_NUM_PAIRS = 2**13  # pairs of rows


def checked_rows(x: Tensor, owner: str, missing: bool = False) -> Tensor:
    r"""
    Return the rows in float64, after checking that a partition can be built on them.

    :param x: `N x D` floating point tensor.
    :param owner: Name of the class or function that checks, for the error.
    :param missing: Whether NaN is allowed, as a missing value. (Default: no.)
    :return: `N x D` float64, detached.
    :raises ValueError: If x is anything else, is empty, or holds infinity, or NaN that is not allowed.
    """
    if not torch.is_tensor(x) or not x.is_floating_point():
        kind = x.dtype if torch.is_tensor(x) else type(x).__name__
        raise ValueError(f"{owner} expected a floating point tensor of rows (N x D), got {kind}.")
    if x.dim() != 2 or x.numel() == 0:
        raise ValueError(f"{owner} expected at least one row and one column (N x D), got shape {tuple(x.shape)}.")
    if x.isinf().any() or (not missing and bool((x.isnan() | (x == MISSING)).any())):
        raise ValueError(f"{owner} expected finite rows, got NaN or infinity: drop or impute these rows.")
    return x.detach().to(torch.float64)


def warn_about_unequal_scales(x: Tensor, owner: str) -> None:
    """
    Warn if the standard deviations of columns that vary differ by more than 100 times.

    :param x: `N x D` rows.
    :param owner: Name of the class that measures distances across columns, for the warning.
    """
    scales = x.std(0, correction=0)
    scales = scales[scales > 0]
    if scales.numel() and scales.max() > _MAX_SCALE_RATIO * scales.min():
        warnings.warn(
            f"{owner} compares columns with each other, but their standard deviations range from "
            f"{scales.min():.3g} to {scales.max():.3g}: columns with small ones will hardly matter. "
            "Standardize the columns to mean 0 and standard deviation 1 first.",
            UserWarning,
            stacklevel=level_of_caller(),
        )


def median_distance(x: Tensor, random: np.random.RandomState, wanted: str) -> float:
    r"""
    Return the median of :math:`\lVert x - x' \rVert_1` over 8192 random pairs of rows, without pairs of equal rows.

    :param x: `N x D` rows.
    :param random: Source of the pairs.
    :param wanted: Name of the parameter whose default the median sets, for the error.
    :raises ValueError: If all rows are the same.
    """
    pairs = torch.from_numpy(random.randint(x.shape[0], size=(2, _NUM_PAIRS))).to(x.device)
    distances = (x[pairs[0]] - x[pairs[1]]).abs().sum(1)
    distances = distances[distances > 0]
    if not distances.numel():
        raise ValueError(
            f"the default {wanted} comes from the median distance, but all rows are the same: give a {wanted}"
        )
    return distances.median().item()
