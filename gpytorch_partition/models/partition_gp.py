"""A GPyTorch exact Gaussian process with a constant mean and a scaled partition kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean
from gpytorch.models import ExactGP
from torch import Tensor
from torch.nn import ModuleList

from gpytorch_partition.composition.covariance import lazy_covariance
from gpytorch_partition.inputs.numbers import check_tensors
from gpytorch_partition.inputs.training_rows import encode_missing
from gpytorch_partition.kernels import EncodedKernel, IterativeKernel
from gpytorch_partition.kernels.cluster_kernel import ClusterKernel
from gpytorch_partition.kernels.wrapper_kernels import checked_kernel
from gpytorch_partition.settings import predictions


class PartitionGP(ExactGP):
    r"""
    Model a function by an exact Gaussian process, :math:`f \sim GP(c, s\, k)`, with a partition kernel in k.

    Use it as a ready-made model around a kernel; a model of your own works as well.

    The constant c, the outputscale s, and the noise in the likelihood are trained, besides the hyperparameters of k. A
    kernel that is not a partition kernel itself is put into an :class:`~gpytorch_partition.kernels.IterativeKernel`.
    The model has the dtype and the device of `train_x`. Above `max_cholesky_size` training rows the likelihood and the
    predictions cost products with the kernel, :math:`O(N m)` each for a partition kernel, and memory linear in N.

    :param train_x: `N x D` training inputs. NaN is a missing value, for kernels of trees that accept it; the model
        stores inputs encoded by :func:`~gpytorch_partition.encode_missing`, and accepts encoded ones in calls.
    :param train_y: `N` training targets, best standardized ones: the noise is 1e-4 or more.
    :param likelihood: A Gaussian likelihood, which holds the noise.
    :param kernel: The kernel k.
    :raises TypeError: If the inputs are not a tensor of float32 or float64.
    :raises ValueError: If inputs, here or in a call, hold NaN and a kernel is GPyTorch's, which does not know it.
    :raises RuntimeError: If the likelihood is not Gaussian.

    Example:
        >>> from gpytorch.likelihoods import GaussianLikelihood
        >>> from gpytorch_partition import FastClusterKernel
        >>> x = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
        >>> kernel = FastClusterKernel(x, num_partitions=20, random_state=0)
        >>> model = PartitionGP(x, x.squeeze(-1).sin(), GaussianLikelihood(), kernel)
        >>> model.eval()(x[:3]).mean.dtype
        torch.float64
    """

    def __init__(self, train_x: Tensor, train_y: Tensor, likelihood: Likelihood, kernel: Kernel) -> None:
        check_tensors(train_x=train_x, train_y=train_y)
        if train_y.shape[-1] != train_x.shape[-2 if train_x.dim() > 1 else -1]:
            shapes = f"{tuple(train_x.shape)} and {tuple(train_y.shape)}"
            raise ValueError(f"expected rows (*batch x N x D) and as many targets (*batch x N), got {shapes}")
        super().__init__(encode_missing(train_x), train_y, likelihood)
        kernel = checked_kernel(kernel)
        inner = kernel.base_kernel if isinstance(kernel, EncodedKernel) else kernel
        solves_itself = isinstance(inner, ClusterKernel | IterativeKernel)
        self.mean_module = ConstantMean()
        self.covar_module = ScaleKernel(kernel if solves_itself else IterativeKernel(kernel))
        self.to(train_x)
        self._encoded(train_x)

    def __call__(self, *inputs: Tensor, **kwargs: Any) -> Any:
        for x in inputs:
            if not torch.is_tensor(x) or x.is_complex():
                raise TypeError(f"expected points as a tensor of real numbers, got {type(x).__name__}")
            known = self.train_inputs[0].shape[-1] if self.train_inputs else None
            got = 1 if x.dim() == 1 else x.shape[-1] if x.dim() else 0
            if known is not None and got != known:
                raise ValueError(
                    f"expected points with {known} columns, as the training rows have, got {tuple(x.shape)}"
                )
        with predictions():
            return super().__call__(*map(self._encoded, inputs), **kwargs)

    def share_of_rows(self, x: Tensor) -> Tensor:
        """Return the factor of the training rows' weighted sum in the mean at points (`*batch x N`)."""
        return x.new_ones(x.shape[:-1])

    def level(self, x: Tensor) -> Tensor:
        """Return the part of the mean at points (`*batch x N`) that does not depend on training rows."""
        return self.mean_module(x)

    def _encoded(self, x: Tensor) -> Tensor:
        """Encode NaN, if all kernels are this package's, which check themselves whether they accept it."""
        if bool(x.isnan().any()):
            for kernel in innermost_kernels(self.covar_module):
                if not isinstance(kernel, ClusterKernel | EncodedKernel):
                    told = f"which a part of the model, {type(kernel).__name__}, does not know"
                    remedy = 'impute them, leave it out, or fit PartitionGPRegressor("auto") to rows that miss some too'
                    raise ValueError(f"expected points without missing values (NaN), {told}: {remedy}")
        return encode_missing(x)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior at points `*batch x N x D`."""
        return MultivariateNormal(self.mean_module(x), lazy_covariance(self.covar_module, x))


def innermost_kernels(kernel: Kernel, is_whole: Callable[[Kernel], bool] | None = None) -> Iterator[Kernel]:
    """Yield the kernels of which a kernel is composed; by default, kernels of this package are not taken apart."""
    children = [each for child in kernel.children() for each in (child if isinstance(child, ModuleList) else [child])]
    inside = [each for each in children if isinstance(each, Kernel)]
    closed = isinstance(kernel, ClusterKernel | EncodedKernel) if is_whole is None else is_whole(kernel)
    if closed or not inside:
        yield kernel
    else:
        for each in inside:
            yield from innermost_kernels(each, is_whole)
