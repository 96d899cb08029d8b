"""Kernels around another: with this package's solver, built later, of standardized columns, a view, linear locally."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any, Self

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.descriptions import counted, ranged
from gpytorch_partition.inference.prediction.strategy import PartitionPredictionStrategy
from gpytorch_partition.inputs.numbers import ShapedBuffers, bits_of, checked_count, floats_of, same_bits
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.inputs.training_rows import MISSING, checked_rows, decode_missing
from gpytorch_partition.kernels.cluster_kernel import ClusterKernel
from gpytorch_partition.operators.algebra import structured_terms
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.operators.sums_and_roots import PartitionSumLinearOperator
from gpytorch_partition.tables.number_view import NumberView


def checked_kernel(kernel: Any) -> Kernel:
    """Return a kernel if it is one of this package or of GPyTorch; a `TypeError` for others, such as classes."""
    if isinstance(kernel, Kernel):
        return kernel
    got = f"the class {kernel.__name__}: build one" if isinstance(kernel, type) else f"a {type(kernel).__name__}"
    raise TypeError(f"expected a kernel, of this package or GPyTorch's, got {got}")


class _WrapperKernel(Kernel):
    r"""A kernel of mapped points, :math:`k_0(\phi(x), \phi(x'))`, with the batch shape of :math:`k_0`."""

    def __init__(self, base_kernel: Kernel) -> None:
        super().__init__(batch_shape=checked_kernel(base_kernel).batch_shape)
        self.base_kernel = base_kernel

    def seen(self, x: Tensor) -> Tensor:
        """Return points (`*batch x N x D`) as the kernel inside sees them."""
        return x

    def _around(self, base_kernel: Kernel) -> Self:
        return type(self)(base_kernel)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        return self.base_kernel(self.seen(x1), self.seen(x2), diag=diag, **params)

    def __getitem__(self, index: Any) -> Self:
        return self._around(self.base_kernel[index])

    def expand_batch(self, *sizes: Any) -> Self:
        return self._around(self.base_kernel.expand_batch(*sizes))

    @property
    def dtype(self) -> torch.dtype:
        return self.base_kernel.dtype

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> Any:
        return self.base_kernel.num_outputs_per_input(x1, x2)

    def prediction_strategy(self, *args: Any) -> Any:
        return self.base_kernel.prediction_strategy(*args)


class IterativeKernel(_WrapperKernel):
    """
    Evaluate a kernel to an operator with this package's solver, noise and predictions.

    Use it for kernels of GPyTorch with a fast product, such as a sum of low-rank kernels. A sum with a partition kernel
    in it needs no wrapper (:mod:`gpytorch_partition.composition`).

    Time and memory are those of the terms: a dense RBF remains :math:`O(N^2)`, and low-rank kernels cost :math:`O(N k)`
    (`LinearKernel(ard_num_dims=D)`, random Fourier features). `InducingPointKernel` adds a diagonal of its own.

    :param base_kernel: Any kernel.

    Example:
        >>> import gpytorch
        >>> from gpytorch_partition import FastClusterKernel
        >>> x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
        >>> base = gpytorch.kernels.RBFKernel() + FastClusterKernel(x, 50, random_state=0)
        >>> bool(torch.allclose(IterativeKernel(base)(x).to_dense(), base(x).to_dense()))
        True
    """

    @property
    def is_stationary(self) -> bool:
        return self.base_kernel.is_stationary

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        """Return the base kernel's covariance `*batch x N1 x N2` as a sum of terms, or its diagonal `*batch x N`."""
        if diag:
            return self.base_kernel(x1, x2, diag=True, **params)
        covariance = to_linear_operator(self.base_kernel(x1, x2, **params)).evaluate_kernel()
        return PartitionSumLinearOperator(*structured_terms(covariance))

    def prediction_strategy(self, *args: Any) -> PartitionPredictionStrategy:
        return PartitionPredictionStrategy(*args)


class DeferredKernel(_WrapperKernel):
    """
    Build a kernel on the rows of its first call, which GPyTorch's exact models make on their training rows.

    Use it in a model that transforms its inputs, such as BoTorch's with an `input_transform`: the kernel is built on
    the rows as the model gives them. A state is loaded after the first call.

    :param build: A function from `N x D` rows, as the kernel is first called with them, to a kernel without parameters
        to train, which a search would miss: add kernels that have some to this one.
    :raises TypeError: If `build` is no function, or returns something else than a kernel.
    :raises ValueError: If the first call is between different rows or for a batch, or the kernel has parameters.

    Example:
        >>> from gpytorch_partition import FastClusterKernel
        >>> kernel = DeferredKernel(lambda x: FastClusterKernel(x, 50, random_state=0))
        >>> x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
        >>> bool((kernel(x).to_dense() == FastClusterKernel(x, 50, random_state=0)(x).to_dense()).all())
        True
    """

    def __init__(self, build: Callable[[Tensor], Kernel]) -> None:
        Kernel.__init__(self)
        if isinstance(build, Kernel) or not callable(build):
            raise TypeError(f"expected a function from rows to a kernel, got a {type(build).__name__}")
        self.build = build
        self.register_module("base_kernel", None)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        self._build_on(x1, x2)
        return super().forward(x1, x2, diag=diag, **params)

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> Any:
        self._build_on(x1, x2)
        return super().num_outputs_per_input(x1, x2)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if self.base_kernel is None and any(key.startswith(f"{prefix}base_kernel.") for key in state_dict):
            told = "a DeferredKernel that is not built ignores its state: call it on its training rows, then load"
            warnings.warn(told, UserWarning, stacklevel=level_of_caller())
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _build_on(self, x1: Tensor, x2: Tensor) -> None:
        if self.base_kernel is not None:
            return
        if x1.dim() != 2 or not torch.equal(x1, x2):
            got = f"{tuple(x1.shape)} and {tuple(x2.shape)}"
            raise ValueError(f"expected a first call with the same N x D rows twice, to build a kernel on, got {got}")
        kernel = checked_kernel(self.build(x1.detach()))
        if names := [name for name, _ in kernel.named_parameters()]:
            raise ValueError(f"expected a kernel without parameters, got {names[0]}: add that kernel to this one")
        self.base_kernel = kernel.train(self.training)

    @property
    def dtype(self) -> torch.dtype:
        return torch.get_default_dtype() if self.base_kernel is None else super().dtype


class EncodedKernel(_WrapperKernel):
    r"""
    Compare rows by a :class:`~gpytorch_partition.tables.NumberView` of them, :math:`k_0(\phi(x), \phi(x'))`.

    Use it to compare rows of a table by a smooth, linear or distance-based kernel: :math:`\phi` has numbers for the
    levels of categories and medians for missing cells. Forests need none.

    :param base_kernel: :math:`k_0`, built on the view of the training rows.
    :param view: :math:`\phi`. (Default: None, an unfitted one for `load_state_dict`.)

    Example:
        >>> from gpytorch.kernels import LinearKernel
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [1.0]])  # codes of three levels
        >>> kernel = EncodedKernel(LinearKernel(), NumberView(x, categories={0: 3}))
        >>> kernel.base_kernel.variance = 1.0
        >>> kernel(x).to_dense().detach()[1]
        tensor([0., 1., 0., 1.])
    """

    def __init__(self, base_kernel: Kernel, view: NumberView | None = None) -> None:
        super().__init__(base_kernel)
        self.view = NumberView() if view is None else view

    def seen(self, x: Tensor) -> Tensor:
        return self.view(x)

    def _around(self, base_kernel: Kernel) -> EncodedKernel:
        return EncodedKernel(base_kernel, self.view)


class StandardizedKernel(_WrapperKernel):
    r"""
    Compare points by standardized columns, :math:`k(x, x') = k_0((x - \mu) / \sigma, (x' - \mu) / \sigma)`.

    Use it for points in any units with a kernel that compares columns with each other (fast cluster, Mondrian) or with
    0 (linear kernels). Means and standard deviations are those of the training rows.

    :param base_kernel: :math:`k_0`, built on standardized rows.
    :param train_x: `N x D` rows, or the map of their columns; None for an unfitted kernel for `load_state_dict`.

    Example:
        >>> from gpytorch.kernels import LinearKernel
        >>> x = torch.tensor([[100.0], [101.0], [102.0]])
        >>> kernel = StandardizedKernel(LinearKernel(), x)
        >>> kernel.base_kernel.variance = 1.0
        >>> kernel(x, x[:1]).to_dense().squeeze(-1).detach()
        tensor([ 1.5000,  0.0000, -1.5000])
    """

    def __init__(self, base_kernel: Kernel, train_x: Tensor | Standardization | None = None) -> None:
        super().__init__(base_kernel)
        if not isinstance(train_x, Standardization):
            rows = torch.empty(0, 0) if train_x is None else checked_rows(train_x, "StandardizedKernel", missing=True)
            train_x = Standardization.of(decode_missing(rows))
        self.units = _Units(train_x)

    def standardized(self, x: Tensor) -> Tensor:
        """Standardize points (`*batch x N x D`) for the kernel inside."""
        columns = Standardization(*map(floats_of, (self.units.mean, self.units.scale, self.units.far)))
        if not columns.scale.numel():
            raise RuntimeError("StandardizedKernel is not fitted: give it training rows, or load a state")
        if x.shape[-1] != (size := columns.scale.numel()):
            raise ValueError(
                f"expected points with {size} columns, as the training rows have, got {x.shape[-1]}: add or drop some"
            )
        return columns.apply(decode_missing(x)).to(x.dtype)

    seen = standardized

    def _around(self, base_kernel: Kernel) -> StandardizedKernel:
        kernel = StandardizedKernel(base_kernel)
        kernel.units = self.units
        return kernel


class _Units(ShapedBuffers):
    """The map of the columns; GPyTorch would treat buffers of the kernel itself as batched."""

    mean: Tensor  # (D,) bit patterns of float64, which no change of dtype can round
    scale: Tensor  # (D,)
    far: Tensor  # (D,)

    def __init__(self, columns: Standardization) -> None:
        super().__init__()
        far = torch.zeros_like(columns.mean) + columns.far
        for name, values in (("mean", columns.mean), ("scale", columns.scale), ("far", far)):
            self.register_buffer(name, bits_of(values))

    def extra_repr(self) -> str:
        return counted(self.mean.numel(), "column") if self.mean.numel() else "unfitted"


class LocalLinearKernel(ClusterKernel):
    r"""
    Multiply a partition kernel by a linear kernel, for functions that are linear within clusters.

    Use it for functions with slopes within clusters, which levels alone follow by many small steps.

    .. math:: k(x, x') = k_0(x, x') \Big(1 + \sum_{d=1}^D v_d x_d x'_d\Big)

    :math:`k_0` gives every cluster a level; this kernel also gives it a slope in each column, of variance :math:`v_d`.
    A product costs D + 1 times as much as one of :math:`k_0`, :math:`O(N m D)`, and a mean O(m D) per point.

    Standardize columns: :math:`v_d` is the variance that a slope adds one unit from 0, and a function is least certain
    far from 0. A missing value counts as 0 in the linear part.

    :param base_kernel: A partition kernel :math:`k_0` (or a sum or multiple of some), with its own `active_dims`.
    :param num_dims: Number D of columns of the linear part.
    :param active_dims: Numbers of these columns, such as those that need slopes. (Default: all.)
    :param variance_prior: Prior of :math:`v`. (Default: none.)
    :param variance_constraint: Constraint of :math:`v`. (Default: `Positive`; v begins at 1 / D.)
    :param batch_shape: Batch shape of :math:`v`. (Default: none.)
    :raises TypeError: In calls, if it is no partition kernel; a `ValueError` for points of another width.

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
        """Return the variances of the slopes, `*batch x 1 x D`; they can be set to positive numbers."""
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
            got = type(self.base_kernel).__name__
            raise TypeError(f"expected a partition kernel to make linear locally, got {got}")
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
