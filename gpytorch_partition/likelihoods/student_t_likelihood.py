"""Student-t noise, with weights of training rows that are small for outliers, and heavy tails of new observations."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.likelihoods.noise_models import Noise
from torch import Tensor
from torch.distributions import StudentT

from gpytorch_partition.likelihoods.fitc_likelihood import UnspannedNoise
from gpytorch_partition.likelihoods.scale_mixture import log_densities
from gpytorch_partition.likelihoods.weighted_likelihood import WeightedNoise


class StudentTNoise(WeightedNoise):
    r"""
    The covariance of Student-t noise. Its variance is :math:`\sigma^2(x)\, u / w_i` at training row i, where the weight
    w is the expected precision of the row's noise. At new points it is :math:`s^2(x)\, \nu / (\nu - 2)`, with the
    squared scale :math:`s^2(x) = a\, \sigma^2(x)\, u`.

    Use it to make a :class:`StudentTLikelihood` with weights of your own;
    :func:`~gpytorch_partition.likelihoods.scale_mixture.expected_precisions` gives weights from residuals.

    :param base_noise: The noise :math:`\sigma^2(x)`.
    :param weights: `N` weights w of the training rows, above 0.
    :param unit: The unit u. (Default: 1.)
    :param df: Degrees of freedom :math:`\nu`, above 2. (Default: 4.)
    :param factor: The factor a. (Default: 1.)
    :raises ValueError: If weights are not positive, or the variance is not finite.
    """

    df: Tensor

    def __init__(
        self, base_noise: Noise, weights: Tensor, unit: float = 1.0, df: float = 4.0, factor: float = 1.0
    ) -> None:
        super().__init__(base_noise, weights, unit, factor)
        if not df > 2:
            raise ValueError(f"expected more than 2 degrees of freedom, with which the variance is finite, got {df}")
        self.register_buffer("df", torch.tensor(df, dtype=torch.float64))

    def extra_repr(self) -> str:
        """Return degrees of freedom, and the range of the weights."""
        return f"{float(self.df):g} degrees of freedom, {super().extra_repr()}"

    @property
    def new_factor(self) -> Tensor:
        """Return the variance of the noise of new observations over that of the base noise."""
        return super().new_factor * (self.df / (self.df - 2)).to(self.unit)

    def squared_scales(self, variances: Tensor) -> Tensor:
        """Return the squared scales of noise with these variances at new observations."""
        return variances * ((self.df - 2) / self.df).to(variances)


class StudentTLikelihood(_GaussianLikelihoodBase):
    r"""
    A likelihood with Student-t noise, a mixture of Gaussians of many scales; a Gaussian process stays exact given the
    weights.

    Use it where some training targets are outliers. Each row's noise has a precision of its own, whose expectation is
    the row's weight (Tipping & Lawrence 2005), so that outliers have hardly any influence.
    :func:`gpytorch_partition.presets.default_model` finds weights, scale and degrees of freedom by held-out rows, and
    uses this likelihood where they favour it.

    `likelihood(model(x), x)` has the mean and the variance of new observations (:class:`StudentTNoise`), as a Gaussian;
    :meth:`log_marginal` is the density of the mixture, and
    :func:`~gpytorch_partition.likelihoods.scale_mixture.student_quantiles` has its quantiles.

    :param noise_covar: A :class:`StudentTNoise`, or a
        :class:`~gpytorch_partition.likelihoods.fitc_likelihood.UnspannedNoise` of one.

    Example:
        >>> from gpytorch.likelihoods.noise_models import HomoskedasticNoise
        >>> likelihood = StudentTLikelihood(StudentTNoise(HomoskedasticNoise(), torch.tensor([1.0, 0.01]), df=4.0))
        >>> likelihood.noise_covar.base_noise.noise = 0.1
        >>> prior, x = MultivariateNormal(torch.zeros(2), torch.eye(2)), torch.zeros(2, 1)
        >>> likelihood.eval()(prior, x).variance.detach()
        tensor([1.2000, 1.2000])
    """

    def __init__(self, noise_covar: Noise) -> None:
        super().__init__(noise_covar)
        if student_t_noise(self) is None:
            raise TypeError(f"expected a StudentTNoise, or an UnspannedNoise of one, got {type(noise_covar).__name__}")

    @property
    def _noise(self) -> StudentTNoise:
        found = student_t_noise(self)
        assert found is not None
        return found

    @property
    def noise(self) -> Tensor:
        """Return the variance, or the level, of the noise of new observations."""
        return self._noise.noise

    def forward(self, function_samples: Tensor, *params: Any, **kwargs: Any) -> StudentT:
        """Return the distribution of new observations, given values of the function (`*batch x N`)."""
        variances = self._noise(*params, shape=function_samples.shape, **kwargs).diagonal(dim1=-1, dim2=-2)
        scales = self._noise.squared_scales(variances)
        return StudentT(self._noise.df.to(scales), function_samples, scales.sqrt())

    def log_marginal(
        self, observations: Tensor, function_dist: MultivariateNormal, *params: Any, **kwargs: Any
    ) -> Tensor:
        """Return log densities (`*batch x N`) of single new observations."""
        total = self.marginal(function_dist, *params, **kwargs).variance
        noise = self._noise(*params, shape=function_dist.mean.shape, **kwargs).diagonal(dim1=-1, dim2=-2)
        errors, scales = observations - function_dist.mean, self._noise.squared_scales(noise)
        return log_densities(errors, total - noise, scales, float(self._noise.df))


def student_t_noise(likelihood: Any) -> StudentTNoise | None:
    """
    Return the Student-t noise of a likelihood; None where it has another noise.

    Call it on the likelihood of a :func:`~gpytorch_partition.default_model` to see whether heavy tails were chosen.

    :param likelihood: Any likelihood.
    """
    noise = getattr(likelihood, "noise_covar", None)
    noise = noise.base_noise if isinstance(noise, UnspannedNoise) else noise
    return noise if isinstance(noise, StudentTNoise) else None
