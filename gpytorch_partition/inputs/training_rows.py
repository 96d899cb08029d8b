"""Checks of the rows on which a partition is built, their missing values, and their columns of categories."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.inputs.numbers import is_whole

# Stands for NaN, which equals nothing, so that GPyTorch would not recognize training inputs that hold it. It is the
# largest float32, which float64 holds as well, so that no change of dtype moves it.
MISSING = torch.finfo(torch.float32).max
_MAX_SCALE_RATIO = 100.0  # of the standard deviations of two columns
_NUM_PAIRS = 2**13  # pairs of rows


def encode_missing(x: Tensor) -> Tensor:
    r"""
    Return points with the largest float32 (3.4e38) instead of NaN, which tree kernels read as a missing value.

    A :class:`gpytorch.models.ExactGP` of your own cannot be trained on inputs that hold NaN: give it the encoded
    inputs, in training and in prediction. :class:`~gpytorch_partition.models.PartitionGP` and the estimators encode
    themselves. Costs a copy of x.

    :param x: `*batch x N x D` float32 or float64 points.
    :return: The points without NaN; infinities stay.
    :raises TypeError: If x is anything else: narrower dtypes cannot hold the code.

    Example:
        >>> x = torch.tensor([[0.5, torch.nan], [0.1, 2.0]])
        >>> encode_missing(x)
        tensor([[5.0000e-01, 3.4028e+38],
                [1.0000e-01, 2.0000e+00]])
    """
    if not torch.is_tensor(x) or x.dtype not in (torch.float32, torch.float64):
        kind = x.dtype if torch.is_tensor(x) else type(x).__name__
        raise TypeError(f"expected points in a float32 or float64 tensor, got {kind}")
    return x.masked_fill(x.isnan(), MISSING)


def decode_missing(x: Tensor) -> Tensor:
    """Return points (`*shape`) with NaN where :func:`encode_missing` wrote its code."""
    return x.masked_fill(x == MISSING, torch.nan) if bool((x == MISSING).any()) else x


def checked_categories(categories: Any, x: Tensor) -> dict[int, int]:
    """Return the number C of levels of each column of codes, by the column's number; no columns for None."""
    if categories is None:
        return {}
    if not isinstance(categories, Mapping):
        raise ValueError(f"expected categories as a mapping of columns to their numbers of levels, got {categories!r}")
    for column, count in categories.items():
        if not is_whole(column, 0, x.shape[1] - 1):
            raise ValueError(f"expected columns of categories as numbers from 0 to {x.shape[1] - 1}, got {column!r}")
        if not is_whole(count, 1):
            raise ValueError(f"expected the number of levels of column {column}, 1 or more, got {count!r}")
        cells = x[:, column]
        wrong = cells[~cells.isnan() & ((cells != cells.round()) | (cells < 0) | (cells >= count))]
        if len(wrong):
            raise ValueError(
                f"expected codes from 0 to {count - 1}, or NaN, in column {column} of categories, got "
                f"{float(wrong[0]):g}: TableEncoder makes codes of text and categories"
            )
    return {int(column): int(count) for column, count in categories.items()}


def checked_rows(x: Tensor, owner: str, missing: bool = False) -> Tensor:
    """Return the rows (`N x D`, float64, detached) of a partition, checked; NaN, if allowed, is a missing value."""
    if not torch.is_tensor(x) or not x.is_floating_point():
        kind = x.dtype if torch.is_tensor(x) else type(x).__name__
        raise ValueError(f"{owner} expected a floating point tensor of rows (N x D), got {kind}.")
    if x.dim() != 2 or x.numel() == 0:
        raise ValueError(f"{owner} expected at least one row and one column (N x D), got shape {tuple(x.shape)}.")
    if x.isinf().any() or (not missing and bool((x.isnan() | (x == MISSING)).any())):
        raise ValueError(f"{owner} expected finite rows, got NaN or infinity: drop or impute these rows.")
    return x.detach().to(torch.float64)


def warn_about_unequal_scales(x: Tensor, owner: str) -> None:
    scales = x.std(0, correction=0)
    scales = scales[scales > 0]
    if scales.numel() and scales.max() > _MAX_SCALE_RATIO * scales.min():
        got = f"got standard deviations from {scales.min():.3g} to {scales.max():.3g}"
        remedy = "standardize them, since columns with small ones will hardly matter"
        told = f"{owner} compares columns and expected them in one scale, {got}: {remedy}"
        warnings.warn(told, stacklevel=level_of_caller())


def median_distance(x: Tensor, random: np.random.RandomState, wanted: str) -> float:
    """Return the median L1 distance of 8192 random pairs of different rows; a `ValueError` if all rows are equal."""
    pairs = torch.from_numpy(random.randint(x.shape[0], size=(2, _NUM_PAIRS))).to(x.device)
    distances = (x[pairs[0]] - x[pairs[1]]).abs().sum(1)
    distances = distances[distances > 0]
    if not distances.numel():
        raise ValueError(f"expected rows that differ for the default {wanted}, got equal ones: give a {wanted}")
    return distances.median().item()
