"""The Mondrian kernel."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from gpytorch_partition.kernels.partition_kernel import PartitionKernel, training_points
from gpytorch_partition.partitions.mondrian import MondrianPartition


class MondrianKernel(PartitionKernel):
    r"""
    The Mondrian kernel (Balog et al. 2016): how often two points share a cell of a Mondrian process.

    Its limit for many trees is the Laplace kernel :math:`\exp(-\lambda \|x - x'\|_1)` with the lifetime
    :math:`\lambda`, for all points, also outside the box of the training rows. Columns should be standardized.

    Building costs nothing; labelling N rows costs :math:`O(N m)` times the depth of the trees.

    :param train_x: `N x D` rows whose bounding box the trees begin with. (Default: None, an unfitted kernel for
        `load_state_dict`.)
    :param num_trees: Number m of trees.
    :param lifetime: :math:`\lambda`, in units of 1/x. (Default: 1 / the median L1 distance of training rows.)
    :param random_state: Seed (int, :class:`numpy.random.RandomState` or None) of the trees.
    :param batch_shape: Batch shape of the kernel. (Default: none.)
    :param active_dims: Columns of x that the trees see. (Default: all.)

    Example:
        >>> x = torch.linspace(0, 1, 50).unsqueeze(-1)
        >>> kernel = MondrianKernel(x, num_trees=2000, lifetime=2.0, random_state=0)
        >>> bool((kernel(x).to_dense()[0, 20] - torch.exp(-2.0 * x[20])).abs() < 0.05)
        True
    """

    def __init__(
        self,
        train_x: Tensor | None = None,
        num_trees: int = 200,
        *,
        lifetime: float | None = None,
        random_state: Any = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        if train_x is None:
            partition = MondrianPartition()
        else:
            points = training_points(train_x, active_dims)
            partition = MondrianPartition(points, num_trees, lifetime=lifetime, random_state=random_state)
        super().__init__(partition, batch_shape=batch_shape, active_dims=active_dims)

    @property
    def lifetime(self) -> float:
        r"""The lifetime :math:`\lambda`, in units of 1/x."""
        return cast(MondrianPartition, self.partition).lifetime
