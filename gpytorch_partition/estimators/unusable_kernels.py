"""Checks that refuse kernels with which an estimator would fail or be wrong, and give alternatives."""

from __future__ import annotations

import torch
from gpytorch.kernels import IndexKernel, InducingPointKernel, Kernel, SpectralMixtureKernel

from gpytorch_partition.partitions import Partition


def check_one_output(kernel: Kernel) -> None:
    """
    Refuse batches of kernels, and kernels of several outputs for a row.

    :param kernel: The kernel, or a sum, product or wrapper of several.
    :raises ValueError: If it has batch dimensions, or a covariance of another shape than N x N for N rows.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> check_one_output(RBFKernel(batch_shape=torch.Size([2])))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: expected a kernel without batch dimensions, got RBFKernel of batch shape (2,): fit an estimator ...
    """
    if kernel.batch_shape:
        raise ValueError(
            f"expected a kernel without batch dimensions, got {type(kernel).__name__} of batch shape "
            f"{tuple(kernel.batch_shape)}: fit an estimator for each, or several targets by one, fit(X, Y)"
        )
    row = torch.ones(1, 1)
    for each in kernel.modules():
        if isinstance(each, Kernel) and each.num_outputs_per_input(row, row) != 1:
            raise ValueError(
                f"expected a kernel of one output for each row, got a {type(each).__name__}, which has several: "
                "for several targets give the kernel of the rows alone, and call fit(X, Y) with Y (N x T)"
            )


def check_has_rows(kernel: Kernel) -> None:
    """
    Refuse kernels of this package that were built without rows, for a saved state.

    :param kernel: The kernel, or a sum, product or wrapper of several.
    :raises ValueError: If one has partitions without rows.
    """
    for each in kernel.modules():
        partition = getattr(each, "partition", None)
        if isinstance(each, Kernel) and isinstance(partition, Partition) and not partition.is_fitted:
            name = type(each).__name__
            raise ValueError(
                f"expected a kernel that is built on rows, got a {name} of none: give {name}(torch.from_numpy(X), "
                f"...), or a function, kernel=lambda x, y: {name}(x, ...)"
            )


def check_standardizable(kernel: Kernel) -> None:
    """
    Refuse kernels that are wrong on standardized columns, or cannot be trained from their values.

    :param kernel: The kernel, or a sum, product or wrapper of several.
    :raises ValueError: If one compares codes of categories, has inducing points in units of its own, or has equal
        mixtures, which training keeps equal.
    """
    for each in kernel.modules():
        if isinstance(each, InducingPointKernel):
            name = type(each.base_kernel).__name__
            raise ValueError(
                f"expected a kernel without inducing points of its own, got an InducingPointKernel, whose points are "
                "not standardized as columns are, and which trains a likelihood of its own: give a LandmarkKernel, "
                f"kernel=lambda x, y: LandmarkKernel.from_kernel({name}(...), x[:500])"
            )
        if isinstance(each, IndexKernel):
            raise ValueError(
                "expected a kernel of numbers, got an IndexKernel, which takes columns for codes, and columns are "
                "standardized for it: give GroupKernel([0]), with the numbers of the columns of codes, alone or in a "
                "sum, GroupKernel([0]) + RBFKernel(active_dims=(1,)), which sees columns as they are"
            )
        if isinstance(each, SpectralMixtureKernel) and _are_the_same(each):
            raise ValueError(
                f"expected a SpectralMixtureKernel whose {each.num_mixtures} mixtures differ, got equal ones, which "
                "training keeps equal: set mixture_means, or give a function of x and y that builds it, calls "
                "initialize_from_data(x, y) and returns it"
            )


def _are_the_same(kernel: SpectralMixtureKernel) -> bool:
    """Return whether a kernel has several mixtures with equal means, scales and weights, GPyTorch's default."""
    means, scales, weights = kernel.mixture_means, kernel.mixture_scales, kernel.mixture_weights.unsqueeze(-1)
    values = torch.cat([means.flatten(-2), scales.flatten(-2), weights], -1)
    return kernel.num_mixtures > 1 and bool((values == values[..., :1, :]).all())
