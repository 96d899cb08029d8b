"""Gaussian noise whose variance is divided by a weight at each training row."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.likelihoods.noise_models import HomoskedasticNoise, Noise
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.inputs.numbers import check_tensors, checked_positive


class WeightedNoise(Noise):
    r"""
    The covariance of noise of variance :math:`\sigma^2(x)\, u / w_i` at training row i, and :math:`a\, \sigma^2(x)\, u`
    at all other points.

    :class:`WeightedGaussianLikelihood` uses it. Construct it yourself as the base noise of a
    :class:`FITCGaussianLikelihood`, where the kernel is one through inducing points.

    Inputs are training rows in training mode, or if they are a list, as GPyTorch's prediction strategies give them.
    Rows after those with weights, of fantasies, have a weight of 1. Points as a tensor, as in
    `likelihood(model(x), x)`, are new observations, at the training rows as well.

    :param base_noise: The noise :math:`\sigma^2(x)`.
    :param weights: `N` weights w of the training rows, above 0.
    :param unit: The weight u of a usual row, for which bounds of the base noise are meant. (Default: 1.)
    :param factor: The factor a of the noise of new observations, where held-out rows show more or less noise than the
        noise of training rows. (Default: 1.)
    :raises ValueError: If weights, unit or factor are not positive; in calls, if the number of training rows differs.
    """

    weights: Tensor
    unit: Tensor
    factor: Tensor

    def __init__(self, base_noise: Noise, weights: Tensor, unit: float = 1.0, factor: float = 1.0) -> None:
        super().__init__()
        check_tensors(weights=weights)
        checked_positive(unit, "unit")
        checked_positive(factor, "factor")
        if weights.dim() != 1 or not bool(((weights > 0) & weights.isfinite()).all()):
            raise ValueError(f"expected N finite weights above 0, got a tensor of shape {tuple(weights.shape)}")
        self.base_noise = base_noise
        self.register_buffer("weights", weights.detach().clone())
        self.register_buffer("unit", torch.tensor(unit, dtype=weights.dtype))
        self.register_buffer("factor", torch.tensor(factor, dtype=torch.float64))

    def extra_repr(self) -> str:
        """Return the range of the weights."""
        return f"weights from {self.weights.min():.4g} to {self.weights.max():.4g}"

    def forward(self, *params: Any, shape: Any = None, **kwargs: Any) -> LinearOperator:
        """Return the noise's covariance, at training rows or at the points given (see above)."""
        found = self.base_noise(*params, shape=shape, **kwargs)
        variances = found.diagonal(dim1=-2, dim2=-1)
        is_of_rows = self.training or (bool(params) and not isinstance(params[0], Tensor))
        factors = 1 / self._relative_weights(variances) if is_of_rows else self.new_factor.to(variances)
        return DiagLinearOperator(variances * factors)

    @property
    def new_factor(self) -> Tensor:
        """Return the variance of the noise of new observations over that of the base noise."""
        return self.unit * self.factor.to(self.unit)

    @property
    def noise(self) -> Tensor:
        """Return the variance, or the level, of the noise of new observations, which have a weight of 1."""
        return self.base_noise.noise * self.new_factor.to(self.base_noise.noise)

    @noise.setter
    def noise(self, value: Tensor | float) -> None:
        self.base_noise.initialize(noise=value / self.new_factor)

    @property
    def relative_weights(self) -> Tensor:
        """Return the weights in units of a usual row's (`N`)."""
        return self.weights / self.unit

    def _relative_weights(self, variances: Tensor) -> Tensor:
        """Weights of training rows; in evaluation mode there may be more rows than weights."""
        number, got = len(self.weights), variances.shape[-1]
        more = got - number
        if more < 0 or (more and self.training):
            raise ValueError(f"expected the {number} training rows that have weights, got {got}")
        return torch.cat([self.relative_weights, 1 / self.unit.expand(more)]).to(variances)


class WeightedGaussianLikelihood(_GaussianLikelihoodBase):
    r"""
    A likelihood with Gaussian noise of variance :math:`\sigma^2 / w_i` at training row i, and :math:`\sigma^2` at new
    points.

    Use it where training rows are not equally precise: means of several measurements (w their number), old or doubtful
    rows (w below 1). Only ratios of weights matter for means; :attr:`noise` is the noise of weight 1, as of new
    observations. GPyTorch's :class:`~gpytorch.likelihoods.FixedNoiseGaussianLikelihood` takes known variances instead,
    and learns none.

    :func:`~gpytorch_partition.fit_exact_gp` trains it in one pass: with :math:`W = \mathrm{diag}(w)`,
    :math:`s W^{1/2} K W^{1/2} + \sigma^2 I` has the Krylov spaces of :math:`W^{1/2} K W^{1/2}`. In a training loop of
    your own, nothing changes. :class:`WeightedNoise` explains which inputs are training rows.

    :param weights: `N` weights w of the training rows, above 0.
    :param noise: Noise of rows of the unit's weight, from GPyTorch or this package. (Default: None, the same at all
        points, at least 1e-4.)
    :param unit: The weight of a usual row, whose noise is bounded. (Default: 1.)

    Example:
        >>> from gpytorch.distributions import MultivariateNormal
        >>> likelihood = WeightedGaussianLikelihood(torch.tensor([1.0, 4.0]))
        >>> likelihood.noise = 0.4
        >>> prior, x = MultivariateNormal(torch.zeros(2), torch.eye(2)), torch.zeros(2, 1)
        >>> likelihood.train()(prior, x).variance.detach(), likelihood.eval()(prior, x).variance.detach()
        (tensor([1.4000, 1.1000]), tensor([1.4000, 1.4000]))
    """

    def __init__(self, weights: Tensor, noise: Noise | None = None, unit: float = 1.0) -> None:
        super().__init__(WeightedNoise(HomoskedasticNoise() if noise is None else noise, weights, unit))

    @property
    def noise(self) -> Tensor:
        """Return the variance, or the level, of the noise at a weight of 1."""
        return self.noise_covar.noise

    @noise.setter
    def noise(self, value: Tensor | float) -> None:
        self.noise_covar.noise = value


def weights_of(likelihood: Any) -> Tensor | None:
    """
    Return the weights of the training rows (`N`) that a likelihood divides its noise by; None where it has none.

    Call it on the likelihood of a :func:`~gpytorch_partition.default_model` to see which rows are outliers: with
    Student-t noise their weights are small.

    :param likelihood: Any likelihood.
    """
    found = [module for module in likelihood.modules() if isinstance(module, WeightedNoise)]
    return found[0].weights if found else None
