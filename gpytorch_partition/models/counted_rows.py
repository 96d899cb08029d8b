"""Common parts of models of sums over clusters: their means, checks of rows, and a warning about the least noise."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.clusters.cluster_index import ClusterSizes
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, Maximum
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator

BOUNDS = Bounds((0.0, float("inf")), (1e-4, float("inf")))  # default bounds of outputscale and noise
_BOUND_TOLERANCE = 1e-3  # relative distance from its bound at which the noise is "at" it


class CountedModel:
    """A base of models that keep sums over clusters; subclasses have `fit` and what is declared here."""

    kernel: PartitionKernel
    values: Maximum | None = None  #: outputscale, noise and mean once fitted
    _points: Callable[[Tensor], Incidence]
    _posterior: Any  # of the effects of clusters, with their means (`p x 1`)

    @property
    def _fitted_values(self) -> Maximum:
        if self.values is None:
            raise RuntimeError(f"{type(self).__name__} is not fitted: call fit()")
        return self.values

    def means(self, x: Tensor) -> Tensor:
        """
        Return the mean of each point (`N_test`, float64), without the cost of variances.

        :param x: `N_test x D` points.
        :raises RuntimeError: If the model is not fitted, or a solver does not converge to a tenth of the noise.
        """
        return self._means(self._points(x))

    def _means(self, points: Incidence) -> Tensor:
        return self._fitted_values.mean + points.row_values(self._posterior.mean).squeeze(-1)

    def _kernels_operator(self, sizes: ClusterSizes) -> ClusterOperator:
        with torch.no_grad():
            return self.kernel._cluster_operator(sizes, torch.ones((), dtype=torch.float64))


def check_has_partitions(kernel: Any) -> None:
    """Raise a `TypeError` unless the kernel is one of this package with partitions."""
    if not isinstance(kernel, PartitionKernel):
        raise TypeError(f"expected a kernel of this package with partitions, got a {type(kernel).__name__}")


def check_rows(x: Any, y: Any, least: int = 0) -> None:
    """Raise an error unless x and y are rows (`N x D`) and finite targets (`N`): a `TypeError` unless tensors."""
    _check_are_tensors(rows=x, targets=y)
    if x.dim() != 2 or y.shape != x.shape[:1] or len(y) < least:
        number = f"N >= {least}" if least else "N"
        shapes = f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise ValueError(f"expected rows (N x D) and as many targets ({number}), got {shapes}")
    if not torch.isfinite(y).all():
        raise ValueError("expected finite targets, got NaN or infinity: drop these rows")


def check_points(x: Any) -> None:
    """Raise an error unless x is a matrix of points: a `TypeError` if it is no tensor, else a `ValueError`."""
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
