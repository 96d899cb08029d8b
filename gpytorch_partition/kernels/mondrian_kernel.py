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
    lengthscales by `projection`.

    :attr:`lifetime` can be set to any positive value up to :attr:`max_lifetime` (section 4.1). The trees stay
    unchanged, and the codes of cached rows are looked up in :math:`O(N m)`. :func:`~gpytorch_partition.lifetime_sweep`
    chooses it. As after any other change of hyperparameters, a model that has predicted must be put into training mode
    once.

    `projection` gives each column a lengthscale, or other directions to cut across. It is fixed: cuts cannot be removed
    from a tree to lower the rate of a column, so lengthscales have no gradient.
    :func:`~gpytorch_partition.lifetimes.gradient_projection.expected_gradient_projection` learns one from targets.

    All parameters, their errors and costs are those of :class:`~gpytorch_partition.partitions.MondrianPartition`,
    except `batch_shape` and `active_dims`, which are those of :class:`~gpytorch_partition.PartitionKernel`.

    Example:
        >>> x = torch.linspace(0, 1, 50).unsqueeze(-1)
        >>> kernel = MondrianKernel(x, num_trees=2000, lifetime=2.0, random_state=0)
        >>> bool((kernel(x).to_dense()[0, 20] - torch.exp(-2.0 * x[20])).abs() < 0.05)
        True
    """

    vanishes_far_away = True
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
        partition = MondrianPartition(
            training_points(train_x, active_dims),
            num_trees,
            lifetime=lifetime,
            max_lifetime=max_lifetime,
            projection=projection,
            random_state=random_state,
        )
        super().__init__(partition, batch_shape=batch_shape, active_dims=active_dims)
        self.has_usual_width = train_x is not None and lifetime is None
        self._remember(train_x)

    @property
    def lifetime(self) -> float:
        r"""
        The lifetime :math:`\lambda`, in units of 1/x, positive and up to :attr:`max_lifetime`; 0 while the kernel is
        unfitted, where it cannot be set.
        """
        return cast(MondrianPartition, self.partition).lifetime

    @lifetime.setter
    def lifetime(self, lifetime: float) -> None:
        cast(MondrianPartition, self.partition).lifetime = lifetime
        self.has_usual_width = False

    @property
    def max_lifetime(self) -> float:
        """The longest lifetime that can be set, in units of 1/x; 0 while the kernel is unfitted."""
        return cast(MondrianPartition, self.partition).max_lifetime

    def cut(self, lifetime: float) -> MondrianKernel:
        """
        Return a copy with the same trees and another lifetime, in :math:`O(N m)` for cached rows.

        :param lifetime: As of :attr:`lifetime`, with the same errors.
        """
        partition = cast(MondrianPartition, self.partition).cut(lifetime)
        kernel = deepcopy(self)
        kernel.partition, kernel.has_usual_width = partition, False
        return kernel

    @property
    def other_widths(self) -> str:
        others, has_others = f"max_lifetime={LONGER * self.lifetime:.3g}", self.max_lifetime != self.lifetime
        trees = "" if has_others else f"build it as MondrianKernel(train_x, {others}), so that it has others, and "
        return (
            f"the lifetime of a MondrianKernel ({self.lifetime:.3g}, by the median distance of its rows) stays as it "
            f"is: {trees}lifetime_sweep(kernel, train_x, train_y) chooses it; or set kernel.lifetime"
        )
