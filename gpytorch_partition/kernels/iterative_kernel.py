"""A wrapper that brings this package's solver to any sum of kernels, whatever the order of its terms."""

from __future__ import annotations

from typing import Any

from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from torch import Tensor

from gpytorch_partition.inference.prediction.strategy import PartitionPredictionStrategy
from gpytorch_partition.operators.addition import structured_terms
from gpytorch_partition.operators.partition_sum_linear_operator import PartitionSumLinearOperator


class IterativeKernel(Kernel):
    r"""
    The same covariance as `base_kernel`, evaluated to a sum that owns its noise, solver and predictions.

    A sum such as `RBFKernel() + RandomForestKernel(...)` never asks the second kernel how to add noise or how to
    predict. Wrapped, the sum keeps this package's preconditioner in training and prediction alike. Time and memory are
    those of the terms: a dense RBF remains O(N^2), while a constant (`gpytorch.kernels.ConstantKernel`) costs O(N), and
    GPyTorch's low-rank kernels O(N k): `LinearKernel(ard_num_dims=D)` is a global linear term (k = D), beside kernels
    of inducing points and of random Fourier features. Where all terms are such or partition kernels, means take
    O(m + k) per point, and samples a solve each, as for one partition kernel. (In evaluation `InducingPointKernel` adds
    a diagonal of its own, which leaves it out of that.)

    :param base_kernel: Any kernel, usually a sum with a partition kernel in it.

    Example:
        >>> import torch, gpytorch
        >>> from gpytorch_partition import FastClusterKernel
        >>> x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
        >>> base = gpytorch.kernels.RBFKernel() + FastClusterKernel(x, 50, random_state=0)
        >>> bool(torch.allclose(IterativeKernel(base)(x).to_dense(), base(x).to_dense()))
        True
    """

    def __init__(self, base_kernel: Kernel) -> None:
        super().__init__()
        self.base_kernel = base_kernel

    @property
    def is_stationary(self) -> bool:
        """Whether the base kernel is."""
        return self.base_kernel.is_stationary

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        """The base kernel's covariance `*batch x N1 x N2` as a sum of its terms, or its diagonal `*batch x N`."""
        if diag:
            return self.base_kernel(x1, x2, diag=True, **params)
        covariance = to_linear_operator(self.base_kernel(x1, x2, **params)).evaluate_kernel()
        return PartitionSumLinearOperator(*structured_terms(covariance))

    def __getitem__(self, index: Any) -> IterativeKernel:
        """The kernel of some batch elements."""
        return IterativeKernel(self.base_kernel[index])

    def expand_batch(self, *sizes: Any) -> IterativeKernel:
        """The kernel with a larger batch shape."""
        return IterativeKernel(self.base_kernel.expand_batch(*sizes))

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> Any:
        """That of the base kernel."""
        return self.base_kernel.num_outputs_per_input(x1, x2)

    def prediction_strategy(
        self, train_inputs: Any, train_prior_dist: Any, train_labels: Tensor, likelihood: Any
    ) -> PartitionPredictionStrategy:
        """Predictions by sums over clusters and this package's solver."""
        return PartitionPredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)
