"""Kernels of numbers for the rows of a table matrix, which has codes of categories and missing cells."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.tables.number_view import NumberView


class EncodedKernel(Kernel):
    r"""
    A kernel of points mapped to numbers by a :class:`~gpytorch_partition.tables.NumberView`, :math:`k(x, x') =
    k_0(\phi(x), \phi(x'))`.

    Use it to compare rows of a table by a smooth, linear or distance-based kernel: :math:`\phi` has numbers for the
    levels of categories and medians for missing cells. Forests do not need it: they split on sets of levels and accept
    missing values. Costs one pass over the points.

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
        super().__init__(batch_shape=base_kernel.batch_shape)
        self.base_kernel = base_kernel
        self.view = NumberView() if view is None else view

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        """Return the covariance of points `*batch x N1 x D` and `*batch x N2 x D`, or its diagonal."""
        return self.base_kernel(self.view(x1), self.view(x2), diag=diag, **params)

    def __getitem__(self, index: Any) -> EncodedKernel:
        """Return the kernel of some batch elements."""
        return EncodedKernel(self.base_kernel[index], self.view)

    def expand_batch(self, *sizes: Any) -> EncodedKernel:
        """Return the kernel with a larger batch shape."""
        return EncodedKernel(self.base_kernel.expand_batch(*sizes), self.view)

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
