"""The FITC likelihood, Gaussian noise plus the variance that a low-rank approximation of a kernel lacks."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.likelihoods.noise_models import Noise
from linear_operator.operators import DiagLinearOperator
from torch import Tensor


class NoiseLikelihood(_GaussianLikelihoodBase):
    """The base class of likelihoods whose noise, or its level, is the `noise` of their `noise_covar`."""

    @property
    def noise(self) -> Tensor:
        """Return the variance, or the level, of the noise of new observations."""
        return self.noise_covar.noise

    @noise.setter
    def noise(self, value: Tensor | float) -> None:
        self.noise_covar.noise = value


def inputs_of(params: tuple[Any, ...]) -> Tensor:
    """Return the inputs (`*batch x N x D`) that a likelihood is given, as a tensor or a list of one."""
    if not params:
        raise ValueError("expected the inputs of the noise, got none: call likelihood(model(x), x)")
    x = params[0] if isinstance(params[0], Tensor) else params[0][0]
    return x.unsqueeze(-1) if x.dim() == 1 else x


class UnspannedNoise(Noise):
    r"""
    The covariance of noise whose variance is :math:`\sigma^2(x) + \max(\kappa(x, x) - k(x, x) - t, 0)`, where k
    approximates :math:`\kappa` through a few inducing points, and lacks the variance that they do not span.

    :class:`FITCGaussianLikelihood` uses it. Construct it yourself around a :class:`StudentTNoise`, for a
    :class:`StudentTLikelihood` of a model with inducing points.

    :param base_noise: The noise :math:`\sigma^2(x)`.
    :param kernel: The kernel :math:`\kappa`.
    :param approximation: Its approximation k, whose variance is nowhere larger.
    :param threshold: The threshold t. (Default: 0.)
    :raises ValueError: If the threshold is negative or not finite; in calls, without inputs.
    """

    threshold: Tensor

    def __init__(self, base_noise: Noise, kernel: Kernel, approximation: Kernel, threshold: float = 0.0) -> None:
        super().__init__()
        if not 0 <= threshold < float("inf"):
            raise ValueError(f"expected a threshold of 0 or more, in squared units of the targets, got {threshold!r}")
        self.register_buffer("threshold", torch.tensor(threshold, dtype=torch.float64))
        self.base_noise = base_noise
        self.kernel = kernel
        self.approximation = approximation

    def unspanned(self, x: Tensor) -> Tensor:
        r"""Return :math:`\max(\kappa(x, x) - k(x, x) - t, 0)` (`*batch x N`) at points (`*batch x N x D`)."""
        unspanned = self.kernel(x, diag=True) - self.approximation(x, diag=True)
        return (unspanned - self.threshold.to(unspanned)).clamp_min(0.0)

    @property
    def noise(self) -> Tensor:
        return self.base_noise.noise

    @noise.setter
    def noise(self, value: Tensor | float) -> None:
        self.base_noise.initialize(noise=value)

    def extra_repr(self) -> str:
        return f"threshold {float(self.threshold):.4g}"

    def forward(self, *params: Any, shape: Any = None, **kwargs: Any) -> DiagLinearOperator:
        """Return the noise's covariance at the inputs given (a tensor `*batch x N x D`, or a list of one)."""
        x = inputs_of(params)
        base = self.base_noise(*params, shape=x.shape[:-1] if shape is None else shape, **kwargs)
        return DiagLinearOperator(base.diagonal(dim1=-2, dim2=-1).to(x) + self.unspanned(x))


class FITCGaussianLikelihood(NoiseLikelihood):
    r"""
    A likelihood with Gaussian noise plus the variance that a low-rank approximation of a kernel lacks.

    Use it when the model has only a kernel through inducing points, whose variance is too small far from them.

    It turns a Gaussian process with k into the "fully independent training conditional" approximation of the process
    with the kernel :math:`\kappa` (Snelson & Ghahramani 2006, "Sparse Gaussian processes using pseudo-inputs", eqs. 3
    to 7): the covariance of observations is :math:`K + \mathrm{diag}(\kappa(x, x) - k(x, x)) + \sigma^2(x) I`. If all
    training rows are inducing points, predictions are those of :math:`\kappa`. With a threshold t above 0, only the
    variance beyond it is added.

    It needs the inputs: call `likelihood(model(x), x)`, and `mll(model(train_x), train_y, train_x)` in a training loop
    of your own.

    Parameters and errors are those of :class:`UnspannedNoise`; `kernel` and `approximation` have the same outputscale,
    and may share modules with the model.

    Example:
        >>> from gpytorch.distributions import MultivariateNormal
        >>> from gpytorch.kernels import RBFKernel
        >>> from gpytorch.likelihoods.noise_models import HomoskedasticNoise
        >>> from gpytorch_partition import LandmarkKernel
        >>> exact, landmarks = RBFKernel(), torch.zeros(1, 1)
        >>> likelihood = FITCGaussianLikelihood(
        ...     HomoskedasticNoise(), exact, LandmarkKernel.from_kernel(exact, landmarks))
        >>> likelihood.noise = 0.1
        >>> function = MultivariateNormal(torch.zeros(2), torch.eye(2))
        >>> likelihood(function, torch.tensor([[0.0], [9.0]])).variance.detach()
        tensor([1.1000, 2.1000])
    """

    def __init__(self, base_noise: Noise, kernel: Kernel, approximation: Kernel, threshold: float = 0.0) -> None:
        super().__init__(UnspannedNoise(base_noise, kernel, approximation, threshold))


def unspanned_variances(likelihood: Any, x: Tensor) -> Tensor | None:
    """Return the variance (`N`) at points that inducing points do not span; None for other likelihoods."""
    noise = getattr(likelihood, "noise_covar", None)
    return noise.unspanned(x) if isinstance(noise, UnspannedNoise) else None


@torch.no_grad()
def noise_variances(likelihood: Any, x: Tensor) -> Tensor:
    """Return the noise's variance at points (`N`), without the variance that inducing points do not span."""
    noise = likelihood.noise_covar
    noise = noise.base_noise if isinstance(noise, UnspannedNoise) else noise
    return noise(x, shape=x.shape[:-1]).diagonal(dim1=-2, dim2=-1)
