"""A wrapper of any kernel that makes GPyTorch use this package's solver and predictions."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from torch import Tensor

from gpytorch_partition.inference.prediction.strategy import PartitionPredictionStrategy
from gpytorch_partition.kernels.given import checked_kernel
from gpytorch_partition.operators.addition import structured_terms
from gpytorch_partition.operators.partition_sum_linear_operator import PartitionSumLinearOperator


class IterativeKernel(Kernel):
    r"""
    A kernel with the covariance of `base_kernel`, as an operator with this package's solver, noise and predictions.

    Use it for kernels of GPyTorch with a fast product, such as a sum of low-rank kernels, which then have this
    package's preconditioner in training and prediction. A sum with a partition kernel in it needs no wrapper
    (:mod:`gpytorch_partition.composition`). Time and memory are those of the terms. A dense RBF remains O(N^2), and a
    constant (`gpytorch.kernels.ConstantKernel`) costs O(N). GPyTorch's low-rank kernels cost O(N k):
    `LinearKernel(ard_num_dims=D)`, a global linear term (k = D), and kernels of inducing points or random Fourier
    features. If all terms are of these kinds or partition kernels, means cost O(m + k) per point, and samples a solve
    each, as for one partition kernel. The exception is `InducingPointKernel`, which adds its own diagonal in
    evaluation.

    :param base_kernel: Any kernel.

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
        self.base_kernel = checked_kernel(base_kernel)

    @property
    def is_stationary(self) -> bool:
        """Whether the base kernel is stationary."""
        return self.base_kernel.is_stationary

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        """Return the base kernel's covariance `*batch x N1 x N2` as a sum of terms, or its diagonal `*batch x N`."""
        if diag:
            return self.base_kernel(x1, x2, diag=True, **params)
        covariance = to_linear_operator(self.base_kernel(x1, x2, **params)).evaluate_kernel()
        return PartitionSumLinearOperator(*structured_terms(covariance))

    def __getitem__(self, index: Any) -> IterativeKernel:
        """Return the kernel of some batch elements."""
        return IterativeKernel(self.base_kernel[index])

    def expand_batch(self, *sizes: Any) -> IterativeKernel:
        """Return the kernel with a larger batch shape."""
        return IterativeKernel(self.base_kernel.expand_batch(*sizes))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the base kernel, which may have no parameters."""
        return self.base_kernel.dtype

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> Any:
        """Return the base kernel's number of outputs per input."""
        return self.base_kernel.num_outputs_per_input(x1, x2)

    def prediction_strategy(
        self, train_inputs: Any, train_prior_dist: Any, train_labels: Tensor, likelihood: Any
    ) -> PartitionPredictionStrategy:
        """Return a prediction strategy that uses sums over clusters and this package's solver."""
        return PartitionPredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)
