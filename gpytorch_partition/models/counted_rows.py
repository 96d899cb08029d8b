"""Common parts of models of sums over clusters: checks of rows, default bounds, and a warning about the least noise."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, Maximum
from gpytorch_partition.kernels.partition_kernel import PartitionKernel

BOUNDS = Bounds((0.0, float("inf")), (1e-4, float("inf")))  # default bounds of outputscale and noise
_BOUND_TOLERANCE = 1e-3  # relative distance from its bound at which the noise is "at" it


def check_has_partitions(kernel: Any) -> None:
    """Raise a `TypeError` unless the kernel is one of this package with partitions."""
    if not isinstance(kernel, PartitionKernel):
        raise TypeError(f"expected a kernel of this package with partitions, got a {type(kernel).__name__}")


def check_rows(x: Any, y: Any, least: int = 0) -> None:
    """
    Raise an error unless x and y are rows and targets, a least number of them.

    :raises TypeError: If x or y is no tensor of real numbers.
    :raises ValueError: If they do not match (`N x D` and `N`), are too few, or targets are not finite.
    """
    _check_are_tensors(rows=x, targets=y)
    if x.dim() != 2 or y.shape != x.shape[:1] or len(y) < least:
        number = f"N >= {least}" if least else "N"
        shapes = f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise ValueError(f"expected rows (N x D) and as many targets ({number}), got {shapes}")
    if not torch.isfinite(y).all():
        raise ValueError("expected finite targets, got NaN or infinity: drop these rows")


def check_points(x: Any) -> None:
    """
    Raise an error unless x are points to predict.

    :raises TypeError: If it is no tensor of real numbers.
    :raises ValueError: If it is no matrix.
    """
    _check_are_tensors(points=x)
    if x.dim() != 2:
        raise ValueError(f"expected points (N x D), got shape {tuple(x.shape)}")


def _check_are_tensors(**tensors: Any) -> None:
    for name, value in tensors.items():
        if not torch.is_tensor(value) or value.is_complex():
            raise TypeError(
                f"expected {name} as a tensor of real numbers, got {type(value).__name__}: torch.as_tensor(...) or "
                "array_chunks make one"
            )


def warn_of_least_noise(values: Maximum, bounds: Bounds) -> None:
    """Warn if the fitted noise is at its lower bound."""
    if values.noise <= bounds.noise[0] * (1 + _BOUND_TOLERANCE):
        message = f"the noise is at its lower bound, {bounds.noise[0]:g}: is the unit of the targets small?"
        warnings.warn(message, ConvergenceWarning, stacklevel=level_of_caller())
