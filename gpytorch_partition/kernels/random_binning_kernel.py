"""The random binning kernel, whose clusters are the bins of grids with random spacings and shifts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from gpytorch_partition.kernels.partition_kernel import PartitionKernel, training_points
from gpytorch_partition.partitions.hashed_cells import RandomBinningPartition


class RandomBinningKernel(PartitionKernel):
    r"""
    The random binning kernel (Rahimi & Recht 2007, section 4): the fraction of grids in which two points share a bin.

    Use it for a lengthscale per column at linear cost, with the Laplace kernel as the limit.

    Its limit for many grids is the Laplace kernel :math:`\exp(-\sum_d |x_d - x'_d| / \ell_d)`, anywhere in space.
    :class:`~gpytorch_partition.MondrianKernel` has this limit too (with :math:`\ell = 1 / \lambda` for all columns),
    and the cells of every shorter lifetime. Its labels cost a descent of each tree, those here :math:`O(D)` per grid.

    Building costs :math:`O(N D + m D)`, labelling N rows :math:`O(N m D)`. Memory is 16 bytes per (grid, column) and
    8 per (row, grid).

    :param train_x: `N x D` rows. (Default: None, an unfitted kernel for `load_state_dict`.)
    :param num_partitions: Number m of grids. (Default: 200.)
    :param lengthscale: :math:`\ell`, in units of x: a number, or one for each column that the grids see. (Default: the
        median L1 distance of training rows, over those of 8192 random pairs that differ.) Standardize columns that
        share one lengthscale: standard deviations that differ by more than 100 times give a `UserWarning`.
    :param random_state: Seed of the grids, as in :class:`~gpytorch_partition.PartitionKernel`.
    :param batch_shape: As in :class:`~gpytorch_partition.PartitionKernel`.
    :param active_dims: As in :class:`~gpytorch_partition.PartitionKernel`.
    :raises ValueError: If the rows are empty, not finite or not a floating point matrix, are all the same and no
        lengthscale is given, or `num_partitions`, `lengthscale`, `random_state` or `active_dims` cannot be used.

    Example:
        >>> x = torch.linspace(0, 1, 50).unsqueeze(-1)
        >>> kernel = RandomBinningKernel(x, num_partitions=2000, lengthscale=0.5, random_state=0)
        >>> bool((kernel(x).to_dense()[0, 20] - torch.exp(-2.0 * x[20])).abs() < 0.05)
        True
    """

    has_usual_lengthscale = False
    """Whether nobody has chosen the lengthscale: it is the one by the median distance."""

    def __init__(
        self,
        train_x: Tensor | None = None,
        num_partitions: int = 200,
        *,
        lengthscale: float | Sequence[float] | Tensor | None = None,
        random_state: Any = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        if train_x is None:
            partition = RandomBinningPartition()
        else:
            points = training_points(train_x, active_dims)
            partition = RandomBinningPartition(
                points, num_partitions, lengthscale=lengthscale, random_state=random_state
            )
        super().__init__(partition, batch_shape=batch_shape, active_dims=active_dims)
        self._remember(train_x)
        self.has_usual_lengthscale = train_x is not None and lengthscale is None

    @property
    def lengthscale(self) -> Tensor:
        r"""Lengthscales :math:`\ell` (`1 x D`), in units of x, which are fixed with the grids."""
        return cast(RandomBinningPartition, self.partition).lengthscale.unsqueeze(0)

    @lengthscale.setter
    def lengthscale(self, value: Any) -> None:
        raise AttributeError(
            "the lengthscales are those that the grids were drawn with: build a new RandomBinningKernel"
        )
