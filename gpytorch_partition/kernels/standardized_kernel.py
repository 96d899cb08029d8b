"""Kernels of standardized columns, for points in any units."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.descriptions import counted
from gpytorch_partition.inputs.numbers import bits_of, floats_of, take_shapes
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.inputs.training_rows import checked_rows, decode_missing
from gpytorch_partition.kernels.given import checked_kernel


class _Units(torch.nn.Module):
    """Means and scales of the columns; GPyTorch would treat buffers of the kernel itself as batched."""

    mean: Tensor  # (D,) bit patterns of float64, which no change of dtype can round
    scale: Tensor  # (D,)

    def __init__(self, columns: Standardization) -> None:
        super().__init__()
        self.register_buffer("mean", bits_of(columns.mean))
        self.register_buffer("scale", bits_of(columns.scale))

    def extra_repr(self) -> str:
        """Describe the number of columns."""
        return counted(self.mean.numel(), "column") if self.mean.numel() else "unfitted"


class StandardizedKernel(Kernel):
    r"""
    A kernel of standardized columns, :math:`k(x, x') = k_0((x - \mu) / \sigma, (x' - \mu) / \sigma)`.

    Use it for points in any units with a kernel that compares columns with each other (fast cluster, Mondrian) or with
    0 (linear kernels). Means and standard deviations are those of the training rows. The kernel inside gets NaN for NaN
    and for its code by :func:`~gpytorch_partition.encode_missing`. Costs one pass over the points.

    :param base_kernel: :math:`k_0`, built on standardized rows.
    :param train_x: `N x D` rows, or their means and scales; None for an unfitted kernel for `load_state_dict`.
    :raises ValueError: If the rows are not a floating point tensor, are empty, or hold infinity.

    Example:
        >>> from gpytorch.kernels import LinearKernel
        >>> x = torch.tensor([[100.0], [101.0], [102.0]])
        >>> kernel = StandardizedKernel(LinearKernel(), x)
        >>> kernel.base_kernel.variance = 1.0
        >>> kernel(x, x[:1]).to_dense().squeeze(-1).detach()
        tensor([ 1.5000,  0.0000, -1.5000])
    """

    def __init__(self, base_kernel: Kernel, train_x: Tensor | Standardization | None = None) -> None:
        super().__init__(batch_shape=checked_kernel(base_kernel).batch_shape)
        self.base_kernel = base_kernel
        self.units = _Units(train_x if isinstance(train_x, Standardization) else _columns_of(train_x))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        """Return the covariance of points `*batch x N1 x D` and `*batch x N2 x D`, or its diagonal."""
        return self.base_kernel(self.standardized(x1), self.standardized(x2), diag=diag, **params)

    def standardized(self, x: Tensor) -> Tensor:
        """
        Standardize points (`*batch x N x D`) for the kernel inside.

        :raises RuntimeError: If the kernel is unfitted.
        :raises ValueError: If there are not as many columns as the training rows have.
        """
        columns = Standardization(floats_of(self.units.mean), floats_of(self.units.scale))
        if not columns.scale.numel():
            raise RuntimeError("StandardizedKernel is not fitted: give it training rows, or load a state")
        if x.shape[-1] != (size := columns.scale.numel()):
            raise ValueError(f"StandardizedKernel was built on {size} columns, got points with {x.shape[-1]}")
        return columns.apply(decode_missing(x)).to(x.dtype)

    def __getitem__(self, index: Any) -> StandardizedKernel:
        """Return the kernel of some batch elements."""
        return self._around(self.base_kernel[index])

    def expand_batch(self, *sizes: Any) -> StandardizedKernel:
        """Return the kernel with a larger batch shape."""
        return self._around(self.base_kernel.expand_batch(*sizes))

    def _around(self, base_kernel: Kernel) -> StandardizedKernel:
        kernel = StandardizedKernel(base_kernel)
        kernel.units = self.units
        return kernel

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the base kernel, which may have no parameters."""
        return self.base_kernel.dtype

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> Any:
        """Return the base kernel's number of outputs per input."""
        return self.base_kernel.num_outputs_per_input(x1, x2)

    def prediction_strategy(self, *args: Any) -> Any:
        """Return the prediction strategy of the kernel inside."""
        return self.base_kernel.prediction_strategy(*args)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        take_shapes(self.units, state_dict, f"{prefix}units.")
        super()._load_from_state_dict(state_dict, prefix, *args)


def _columns_of(train_x: Tensor | None) -> Standardization:
    rows = torch.empty(0, 0) if train_x is None else checked_rows(train_x, "StandardizedKernel", missing=True)
    return Standardization.of(decode_missing(rows))
