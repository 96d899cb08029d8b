"""Common parts of models of sums over clusters: checks of rows, default bounds, and a warning about the least noise."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, Maximum

BOUNDS = Bounds((0.0, float("inf")), (1e-4, float("inf")))  # default bounds of outputscale and noise
_BOUND_TOLERANCE = 1e-3  # relative distance from its bound at which the noise is "at" it


def check_rows(x: Any, y: Any) -> None:
    """
    Raise an error unless x and y are rows and targets.

    :param x: The rows to check.
    :param y: The targets to check.
    :raises TypeError: If x or y is no tensor of real numbers.
    :raises ValueError: If they do not match (`n x D` and `n`), or targets are not finite.
    """
    _check_are_tensors(rows=x, targets=y)
    if x.dim() != 2 or y.shape != x.shape[:1]:
        shapes = f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise ValueError(f"expected rows (n x D) and as many targets (n), got {shapes}")
    if not torch.isfinite(y).all():
        raise ValueError("expected finite targets, got NaN or infinity: drop these rows")


def check_points(x: Any) -> None:
    """
    Raise an error unless x are points to predict.

    :param x: The points to check.
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
