"""The Mondrian kernel, whose clusters are the cells of Mondrian processes up to a lifetime that can be changed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor

from gpytorch_partition.kernels.partition_kernel import PartitionKernel, training_points
from gpytorch_partition.partitions.mondrian.mondrian_partition import MondrianPartition

LONGER = 30  # lifetimes that are worth a try, over the usual one


class MondrianKernel(PartitionKernel):
    r"""
    The Mondrian kernel (Balog et al. 2016, section 3.1): the fraction of m Mondrian trees in which points share a cell.

    Use it to get every kernel width from one set of trees, if rows arrive one by one, or if the posterior must return
    to the prior far from all rows.

    Its limit for many trees is the Laplace kernel :math:`\exp(-\lambda \|x - x'\|_1)` with the lifetime :math:`\lambda`
    (proposition 1), for all points, also outside the box of the training rows. Standardize columns, or give them
    lengthscales by `projection`; otherwise, standard deviations that differ by more than 100 times give a
    `UserWarning`.

    Building costs :math:`O(N D)`; labelling N rows costs :math:`O(N m)` times the number of cuts above a cell
    (:class:`~gpytorch_partition.partitions.MondrianPartition` gives its mean) and :math:`O(D)` per node that holds
    any of them. Memory is 8 bytes per tree, 16 per column and 8 per (row, tree).

    :attr:`lifetime` can be set to any positive value up to :attr:`max_lifetime` (section 4.1). The trees stay
    unchanged, and the codes of cached rows are looked up in :math:`O(N m)`. :func:`~gpytorch_partition.lifetime_sweep`
    chooses it. As after any other change of hyperparameters, a model that has predicted must be put into training mode
    once.

    `projection` gives each column a lengthscale, or other directions to cut across; the limit is then
    :math:`\exp(-\lambda \|U^\top (x - x')\|_1)`, or isotropic with rotations. It is fixed: cuts cannot be removed from
    a tree to lower the rate of a column, so lengthscales have no gradient. For other lengthscales, build a new kernel.
    :func:`~gpytorch_partition.lifetimes.gradient_projection.expected_gradient_projection` learns one from targets.

    :param train_x: `N x D` rows whose bounding box the trees begin with. (Default: None, an unfitted kernel for
        `load_state_dict`.)
    :param num_trees: Number m of trees. (Default: 200.)
    :param lifetime: :math:`\lambda`, in units of 1/x. (Default: 1 / the median L1 distance of training rows, over
        those of 8192 random pairs that differ, or `max_lifetime` if that is less.)
    :param max_lifetime: Cuts are sampled up to it: the longest lifetime that can be set. (Default: `lifetime`.)
    :param projection: `D x K` matrix U of floats, which maps points x to :math:`U^\top x`; `m x D x K`, a matrix for
        each tree; a vector of `D` inverse lengthscales; or `"rotations"`, a random rotation for each tree. Lifetimes
        are then in units of 1/:math:`U^\top x`. D counts the columns in `active_dims`. (Default: None, unchanged
        columns.)
    :param random_state: Seed of the trees, as in :class:`~gpytorch_partition.PartitionKernel`.
    :param batch_shape: As in :class:`~gpytorch_partition.PartitionKernel`.
    :param active_dims: As in :class:`~gpytorch_partition.PartitionKernel`.
    :raises ValueError: If the rows are empty, not finite or not a floating point matrix, are all the same and no
        lifetime is given, or `num_trees`, `lifetime`, `max_lifetime`, `projection`, `random_state` or `active_dims`
        cannot be used.

    Example:
        >>> x = torch.linspace(0, 1, 50).unsqueeze(-1)
        >>> kernel = MondrianKernel(x, num_trees=2000, lifetime=2.0, random_state=0)
        >>> bool((kernel(x).to_dense()[0, 20] - torch.exp(-2.0 * x[20])).abs() < 0.05)
        True
    """

    has_usual_lifetime = False
    """Whether nobody has chosen the lifetime: it is the one by the median distance."""

    _instead_of_lengthscale = "kernel.lifetime is 1 / lengthscale, which lifetime_sweep chooses"

    def __init__(
        self,
        train_x: Tensor | None = None,
        num_trees: int = 200,
        *,
        lifetime: float | None = None,
        max_lifetime: float | None = None,
        projection: Tensor | str | None = None,
        random_state: Any = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        if train_x is None:
            partition = MondrianPartition()
        else:
            points = training_points(train_x, active_dims)
            partition = MondrianPartition(
                points,
                num_trees,
                lifetime=lifetime,
                max_lifetime=max_lifetime,
                projection=projection,
                random_state=random_state,
            )
        super().__init__(partition, batch_shape=batch_shape, active_dims=active_dims)
        self.has_usual_lifetime = train_x is not None and lifetime is None
        self._remember(train_x)

    @property
    def lifetime(self) -> float:
        r"""
        The lifetime :math:`\lambda`, in units of 1/x; 0 while the kernel is unfitted.

        It can be set to any positive value up to :attr:`max_lifetime`.

        :raises RuntimeError: If the kernel is unfitted.
        :raises ValueError: If the lifetime is not positive, or longer than the longest.

        Example:
            >>> x = torch.linspace(0, 1, 50).unsqueeze(-1)
            >>> kernel = MondrianKernel(x, num_trees=2000, lifetime=8.0, random_state=0)
            >>> kernel.lifetime = 2.0
            >>> bool((kernel(x).to_dense()[0, 20] - torch.exp(-2.0 * x[20])).abs() < 0.05)
            True
        """
        return cast(MondrianPartition, self.partition).lifetime

    @lifetime.setter
    def lifetime(self, lifetime: float) -> None:
        cast(MondrianPartition, self.partition).lifetime = lifetime
        self.has_usual_lifetime = False

    @property
    def max_lifetime(self) -> float:
        """The longest lifetime that can be set, in units of 1/x; 0 while the kernel is unfitted."""
        return cast(MondrianPartition, self.partition).max_lifetime

    def cut(self, lifetime: float) -> MondrianKernel:
        """
        Return a copy with the same trees and another lifetime, in :math:`O(N m)` for cached rows; all else is
        unchanged.

        :param lifetime: In units of 1/x, up to :attr:`max_lifetime`.
        :raises RuntimeError: If the kernel is unfitted.
        :raises ValueError: If the lifetime is not positive, or longer than the longest.

        Example:
            >>> x = torch.linspace(0, 1, 50).unsqueeze(-1)
            >>> kernel = MondrianKernel(x, num_trees=2000, lifetime=8.0, random_state=0).cut(2.0)
            >>> bool((kernel(x).to_dense()[0, 20] - torch.exp(-2.0 * x[20])).abs() < 0.05)
            True
        """
        partition = cast(MondrianPartition, self.partition).cut(lifetime)
        kernel = deepcopy(self)
        kernel.partition, kernel.has_usual_lifetime = partition, False
        return kernel
