"""User-defined partitions: any function from points to integer labels, or fitted clusterers of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpytorch_partition.descriptions import counted
from gpytorch_partition.inputs.counts import checked_count
from gpytorch_partition.partitions.clustering import ClusteringPartition
from gpytorch_partition.partitions.fitted_clusterers import is_known
from gpytorch_partition.partitions.partition import Partition


class CallablePartition(Partition):
    r"""
    A partition given by a function from points to labels (Davies & Ghahramani 2014, section 4.2).

    Use it to give a function a `version` (:class:`~gpytorch_partition.PartitionKernel` makes one of any function), if
    counts of rows are saved or come from other processes.

    :param function: Maps points `N x D`, a torch tensor, to integer labels `N x m`, or `N` for one partition: any
        integers, in a torch tensor or a NumPy array. It must be a pure function of each point: labels of a point do not
        depend on the other rows. It must handle NaN and infinity itself. Labels cost a call of it. `state_dict` does
        not save it, and it must be a module-level function for the partition to be pickled. A method of a scikit-learn
        estimator gets float64 NumPy arrays, as in its fit; its rounding may vary with the number of rows where a point
        lies within 1e-15 of a boundary.
    :param num_partitions: Number m of partitions. (Default: None, as many as the first labels have.)
    :param version: The name and version of the function, to be changed whenever its labels change. Counts of rows that
        were saved, or come from other processes, are refused if they have another version. (Default: None, not
        checked.)
    :raises TypeError: If `function` is not callable, or the version is not a string.

    :meth:`labels` raises a `ValueError` if the function does not return integers of the right shape.

    Example:
        >>> stripes = CallablePartition(lambda x: torch.stack([x[..., 0].floor(), x[..., 1].floor()], -1).long())
        >>> stripes.labels(torch.tensor([[0.2, 5.7], [3.9, -1.5]]))
        tensor([[ 0,  5],
                [ 3, -2]])
        >>> CallablePartition(lambda x: np.digitize(x[:, 0], [1.0, 3.0])).labels(torch.tensor([[0.2], [3.9]]))
        tensor([[0],
                [2]])
    """

    def __init__(
        self, function: Callable[[Tensor], Any], num_partitions: int | None = None, *, version: str | None = None
    ) -> None:
        super().__init__()
        self.version = checked_version(version)
        if not callable(function):
            raise TypeError(
                f"expected a function from points (N x D) to integer labels (N x m), got {type(function).__name__}: "
                "labels of rows do not say where new points belong. Give a fitted clusterer or its predict, "
                "ClusteringKernel(train_x, clusterer), or GroupKernel([column]) where a column of x holds the labels"
            )
        self.function = function
        is_given = num_partitions is not None
        self._num_partitions = checked_count(num_partitions, "partitions", "num_partitions") if is_given else None

    @property
    def num_partitions(self) -> int:
        """Number m of partitions; 0 until it is known."""
        return self._num_partitions or 0

    @property
    def is_fitted(self) -> bool:
        """True, since the function has labels for all points."""
        return True

    def extra_repr(self) -> str:
        """Return the function's name, and the number of its partitions if it is known."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return name if not self._num_partitions else f"{counted(self._num_partitions, 'partition')} by {name}"

    def check_points(self, x: Tensor) -> None:
        """
        Raise an error for inputs that are no points; the first points give the number of partitions.

        :param x: `*batch x N x D` points.
        :raises ValueError: If x is not a floating point tensor with two dimensions or more, or the function does not
            return integers of the right shape for its first row.
        """
        super().check_points(x)
        if self._num_partitions is None:
            self._num_partitions = labels_by(self.function, x.detach().reshape(-1, x.shape[-1])[:1], None).shape[-1]

    def _labels(self, x: Tensor) -> Tensor:
        return labels_by(self.function, x, self._num_partitions)

    def _check_values(self, x: Tensor) -> None:
        """Accept all values: the function handles NaN."""


def checked_version(version: Any) -> str | None:
    """
    Return a user's name of a function or program, checked.

    :raises TypeError: If the version is neither a string nor None.
    """
    if version is not None and not isinstance(version, str):
        raise TypeError(f"expected a version as a text such as 'streets 2', got {version!r}")
    return version


def labels_by(function: Callable[[Any], Any], x: Tensor, num_partitions: int | None) -> Tensor:
    """
    Return a function's labels of points, checked.

    :param function: The function, which may be a method of a scikit-learn estimator.
    :param x: `n x D` points.
    :param num_partitions: Number m of partitions; None for any.
    :return: `n x m` int64, on the device of x.
    :raises ValueError: If the function does not return integers of the right shape.
    """
    is_method = isinstance(getattr(function, "__self__", None), BaseEstimator)
    labels = function(x.detach().cpu().double().numpy() if is_method else x)
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "biu":
        labels = torch.from_numpy(labels.astype(np.int64))
    if not torch.is_tensor(labels) or labels.is_floating_point() or labels.is_complex():
        kind = labels.dtype if isinstance(labels, (Tensor, np.ndarray)) else type(labels).__name__
        raise ValueError(
            f"expected the function to return integer labels, a torch tensor or a NumPy array, got {kind}: return "
            "labels.long(), or labels.astype(int) of an array"
        )
    shape = tuple(labels.shape)
    labels = labels.unsqueeze(-1) if labels.dim() == 1 else labels
    if labels.dim() == 2 and not labels.shape[-1]:
        raise ValueError("expected the function to return labels of at least one partition, got none")
    wanted = labels.shape[-1] if num_partitions is None and labels.dim() else num_partitions
    if tuple(labels.shape) != (x.shape[0], wanted):
        raise ValueError(
            f"expected the function to return labels of shape {(x.shape[0], wanted)} for points {tuple(x.shape)}"
            f"{', or one label for each' if wanted == 1 else ''}, got {shape}"
        )
    return labels.to(device=x.device, dtype=torch.int64)


def partition_of(source: Any) -> Partition:
    """
    Convert a user's source of clusters to a partition.

    :param source: A partition; a function from points to labels; a fitted clusterer of scikit-learn or its `predict`;
        or a list of fitted clusterers. Where the clusterers' rule for new points is known
        (:meth:`ClusteringPartition.of_fitted`), it is read into buffers.
    :raises TypeError: If `source` is none of these, or a fitted clusterer that has no `predict`.
    :raises sklearn.exceptions.NotFittedError: If a clusterer is not fitted.
    """
    if isinstance(source, Partition):
        return source
    clusterers = [_estimator(each) for each in source] if isinstance(source, (list, tuple)) else [_estimator(source)]
    for clusterer in clusterers:
        if clusterer is not None:
            check_is_fitted(clusterer)
    if clusterers and all(clusterer is not None and is_known(clusterer) for clusterer in clusterers):
        return ClusteringPartition.of_fitted(clusterers)
    if isinstance(source, type):
        raise TypeError(f"expected a fitted clusterer or a function, got the class {source.__name__}")
    if isinstance(source, BaseEstimator) and not callable(getattr(source, "predict", None)):
        raise TypeError(
            f"expected a function from points to labels, or a fitted clusterer that says where new points belong, got "
            f"a {type(source).__name__} that does not: ClusteringKernel(train_x, clusterer, 1, rows=0.5) clusters the "
            "rows itself, and new points join the nearest row"
        )
    if isinstance(source, (list, tuple)):
        names = [type(each).__name__ for each in source]
        raise TypeError(f"expected fitted clusterers whose rule for new points is known, got a list of {names}")
    return CallablePartition(getattr(source, "predict", source) if isinstance(source, BaseEstimator) else source)


def _estimator(source: Any) -> BaseEstimator | None:
    if isinstance(source, BaseEstimator):
        return source
    owner = getattr(source, "__self__", None)
    return owner if isinstance(owner, BaseEstimator) and getattr(source, "__name__", "") == "predict" else None
