"""Columns and targets of mean 0 and standard deviation 1."""

from __future__ import annotations

import torch
from torch import Tensor

from gpytorch_partition.inputs.missing import decode_missing


def standardized_columns(x: Tensor) -> Tensor:
    """Rows (`N x D`, float64) with columns of mean 0 and standard deviation 1; NaN stays."""
    mean, scale = column_moments(x)
    return (decode_missing(x).double() - mean) / scale


def column_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """
    Means and standard deviations of columns (`D` each, float64) without their missing values; 1 for the deviations of
    columns that are constant up to rounding.

    :param x: `N x D`.
    """
    values = decode_missing(x).detach().double()
    mean = values.nanmean(0).nan_to_num()
    scale = (values - mean).square().nanmean(0).sqrt().nan_to_num()
    is_constant = scale <= 10 * torch.finfo(torch.float64).eps * mean.abs()
    return mean, torch.where(is_constant, 1.0, scale)


def standardized_targets(train_y: Tensor) -> tuple[float, float, Tensor]:
    """Mean and standard deviation of targets, and the targets (`N`, float64) less the one and over the other."""
    (mean,), (scale,) = column_moments(train_y.unsqueeze(-1))
    return float(mean), float(scale), (train_y.double() - mean) / scale
