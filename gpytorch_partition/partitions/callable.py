"""A user's own partitions: any function from points to integer labels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gpytorch_partition.partitions.partition import Partition


class CallablePartition(Partition):
    r"""
    Partitions given by a function from points to labels (Davies & Ghahramani 2014, section 4.2).

    :param function: Maps points `N x D` to integer labels `N x m`, any integers. It must be a pure function
        of each point: the same point gets the same labels whatever the other rows. It is not part of the state
        that `state_dict` saves, and must be a module-level function for the partition to be pickled. Labels cost what
        the function costs; it must handle NaN and infinity itself.
    :param num_partitions: Number m of partitions. (Default: None, as many as the first labels have.)
    :raises TypeError: If `function` is not callable.

    :meth:`labels` raises a `ValueError` when the function returns anything but integers of the right shape.

    Example:
        >>> stripes = CallablePartition(lambda x: torch.stack([x[..., 0].floor(), x[..., 1].floor()], -1).long())
        >>> stripes.labels(torch.tensor([[0.2, 5.7], [3.9, -1.5]]))
        tensor([[ 0,  5],
                [ 3, -2]])
    """

    def __init__(self, function: Callable[[Tensor], Tensor], num_partitions: int | None = None) -> None:
        super().__init__()
        if not callable(function):
            raise TypeError(
                f"expected a function from points (N x D) to integer labels (N x m), got {type(function).__name__}"
            )
        self.function = function
        self._num_partitions = num_partitions

    @property
    def num_partitions(self) -> int:
        """Number m of partitions; 0 until it is known."""
        return self._num_partitions or 0

    @property
    def is_fitted(self) -> bool:
        """True: the function gives labels for all points."""
        return True

    def check_points(self, x: Tensor) -> None:
        """
        Raise an error for anything but points; the first ones give the number of partitions.

        :param x: `*batch x N x D` points.
        :raises ValueError: If x is not a floating point tensor with two dimensions or more, or the function returns
            anything but integers of the right shape for its first rows.
        """
        super().check_points(x)
        if self._num_partitions is None:
            self._num_partitions = self._checked(x.detach().reshape(-1, x.shape[-1])[:1], None).shape[-1]

    def _labels(self, x: Tensor) -> Tensor:
        return self._checked(x, self._num_partitions)

    def _checked(self, x: Tensor, num_partitions: int | None) -> Tensor:
        labels = self.function(x)
        if not torch.is_tensor(labels) or labels.is_floating_point() or labels.is_complex():
            kind = labels.dtype if torch.is_tensor(labels) else type(labels).__name__
            raise ValueError(f"expected the function to return a tensor of integer labels, got {kind}")
        if labels.dim() and not labels.shape[-1]:
            raise ValueError("expected the function to return labels of at least one partition, got none")
        expected = (*x.shape[:-1], labels.shape[-1] if num_partitions is None and labels.dim() else num_partitions)
        if labels.shape != expected:
            raise ValueError(
                f"expected the function to return labels of shape {expected} for points {tuple(x.shape)}, "
                f"got {tuple(labels.shape)}"
            )
        return labels.to(torch.int64)

    def _check_values(self, x: Tensor) -> None:
        """Accept all values: the function handles NaN."""
