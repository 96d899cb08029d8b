"""The local linear kernel: a partition kernel times a linear one, for functions that are linear within clusters."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.descriptions import counted, ranged
from gpytorch_partition.inputs.numbers import checked_count, same_bits
from gpytorch_partition.inputs.training_rows import MISSING
from gpytorch_partition.kernels.cluster_kernel import ClusterKernel
from gpytorch_partition.kernels.wrapper_kernels import checked_kernel
from gpytorch_partition.operators.algebra import structured_terms
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator


class LocalLinearKernel(ClusterKernel):
    r"""
    A partition kernel times a linear kernel, the prior of functions that are linear within clusters.

    Use it for functions with slopes within clusters, which levels alone follow by many small steps.

    .. math::

        k(x, x') = k_0(x, x') \Big(1 + \sum_{d=1}^D v_d x_d x'_d\Big)

    :math:`k_0` gives every cluster a level; this kernel also gives it a slope in each column, of variance :math:`v_d`.
    A product costs D + 1 times as much as one of :math:`k_0`, :math:`O(N m D)`, and a mean O(m D) per point.

    Standardize columns: :math:`v_d` is the variance that a slope adds one unit from 0, and a function is least certain
    far from 0. A missing value counts as 0 in the linear part.

    :param base_kernel: A partition kernel :math:`k_0` (or a sum or multiple of partition kernels), with its own
        `active_dims`.
    :param num_dims: Number D of columns of the linear part.
    :param active_dims: Numbers of these columns, such as those that need slopes. (Default: all.)
    :param variance_prior: Prior of :math:`v`. (Default: none.)
    :param variance_constraint: Constraint of :math:`v`. (Default: `Positive`; v begins at 1 / D.)
    :param batch_shape: Batch shape of :math:`v`. (Default: none.)
    :raises TypeError: In calls, if the base kernel is not a partition kernel; a `ValueError` for points of another
        width.

    Example:
        >>> from gpytorch_partition import PartitionKernel
        >>> kernel = LocalLinearKernel(PartitionKernel(lambda x: x.floor().long()), num_dims=1)
        >>> kernel.variance = 0.5
        >>> kernel(torch.tensor([[0.2], [0.8], [1.5]])).to_dense().detach()
        tensor([[1.0200, 1.0800, 0.0000],
                [1.0800, 1.3200, 0.0000],
                [0.0000, 0.0000, 2.1250]])
    """

    _instead_of_lengthscale = "its base_kernel may have what sets how far points look alike, and it has a variance"

    def __init__(
        self,
        base_kernel: Kernel,
        num_dims: int,
        *,
        active_dims: tuple[int, ...] | None = None,
        variance_prior: Prior | None = None,
        variance_constraint: Interval | None = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
    ) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        if checked_count(num_dims, "columns", "num_dims") < 1 or self.columns.numbers.numel() not in (0, num_dims):
            raise ValueError(f"expected as many active_dims as num_dims, got {active_dims} and {num_dims}")
        self.base_kernel = checked_kernel(base_kernel)
        self.register_parameter("raw_variance", torch.nn.Parameter(torch.zeros(*batch_shape, 1, num_dims)))
        self.register_constraint("raw_variance", variance_constraint or Positive())
        if variance_constraint is None:
            self.variance = 1 / num_dims
        if variance_prior is not None:
            self.register_prior("variance_prior", variance_prior, _variance_of, _set_variance)

    @property
    def num_dims(self) -> int:
        return self.raw_variance.shape[-1]

    @property
    def variance(self) -> Tensor:
        """Variances of the slopes, `*batch x 1 x D`; they can be set to positive numbers."""
        return self.raw_variance_constraint.transform(self.raw_variance)

    @variance.setter
    def variance(self, value: float | Tensor) -> None:
        _set_variance(self, value)

    def _described(self) -> str:
        return f"slopes of variance {ranged(self.variance.flatten().tolist())} in {counted(self.num_dims, 'column')}"

    def _choose_columns(self, dims: Any) -> None:
        super()._choose_columns(dims)
        self.base_kernel.active_dims = torch.as_tensor(dims)

    def _check_points(self, x: Tensor) -> None:
        width = self._active(x).shape[-1] if torch.is_tensor(x) and x.dim() else None
        if width is not None and width != self.num_dims:
            raise ValueError(
                f"{type(self).__name__} expected points with {self.num_dims} columns for its linear part, got {width}: "
                "choose them with active_dims"
            )

    def _covariance(self, x1: Tensor, x2: Tensor) -> LinearOperator:
        parts = structured_terms(self.base_kernel(x1, x2).evaluate_kernel())
        if not all(isinstance(part, PartitionLinearOperator) for part in parts):
            raise TypeError(
                f"expected a partition kernel to make linear locally, got {type(self.base_kernel).__name__}"
            )
        left = self._loadings(x1, parts[0].left.batch_shape)
        right = left if same_bits(x1, x2) else self._loadings(x2, parts[0].right.batch_shape)
        return reduce(add, (part.with_loadings(left, right) for part in parts))

    def _loadings(self, x: Tensor, batch_shape: torch.Size) -> Tensor:
        r""":math:`[1, \sqrt v x]` (`*batch x N x (D + 1)`)."""
        x = self.columns.select(x)
        x = x if batch_shape else x[(0,) * (x.dim() - 2)]
        x = x.masked_fill(x.isnan() | (x == MISSING), 0)
        slopes = x * self.variance.sqrt()
        return torch.cat([slopes.new_ones(*slopes.shape[:-1], 1), slopes], -1)


def _variance_of(kernel: LocalLinearKernel) -> Tensor:
    return kernel.variance


def _set_variance(kernel: LocalLinearKernel, value: float | Tensor) -> None:
    value = torch.as_tensor(value).to(kernel.raw_variance)
    kernel.initialize(raw_variance=kernel.raw_variance_constraint.inverse_transform(value))
