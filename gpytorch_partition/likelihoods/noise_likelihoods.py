"""
Noise plus the variance that a low-rank kernel lacks (FITC), and noise divided by weights of training rows: Gaussian, or
Student-t, whose weights are small for outliers.
"""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.likelihoods.noise_models import HomoskedasticNoise, Noise
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Tensor
from torch.distributions import StudentT

from gpytorch_partition.descriptions import without_values
from gpytorch_partition.inputs.numbers import check_positive, check_tensors
from gpytorch_partition.likelihoods.scale_mixture import log_densities


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
    Give noise the variance :math:`\sigma^2(x) + \max(\kappa(x, x) - k(x, x) - t, 0)`.

    Here k approximates :math:`\kappa` through a few inducing points, and lacks the variance that they do not span.

    :class:`FITCGaussianLikelihood` uses it. Construct it yourself around a :class:`StudentTNoise`.

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
        return without_values(self) or f"threshold {float(self.threshold):.4g}"

    def forward(self, *params: Any, shape: Any = None, **kwargs: Any) -> DiagLinearOperator:
        """Return the noise's covariance at the inputs given (a tensor `*batch x N x D`, or a list of one)."""
        x = inputs_of(params)
        base = self.base_noise(*params, shape=x.shape[:-1] if shape is None else shape, **kwargs)
        return DiagLinearOperator(base.diagonal(dim1=-2, dim2=-1).to(x) + self.unspanned(x))


class FITCGaussianLikelihood(NoiseLikelihood):
    r"""
    Observe a function with Gaussian noise plus the variance that a low-rank approximation of its kernel lacks.

    Use it when the model has only a kernel through inducing points, whose variance is too small far from them.

    The covariance of observations is :math:`K + \mathrm{diag}(\kappa(x, x) - k(x, x)) + \sigma^2(x) I`, the "fully
    independent training conditional" (Snelson & Ghahramani 2006, eqs. 3 to 7). If all training rows are inducing
    points, predictions are those of :math:`\kappa`. With a threshold t above 0, only the variance beyond it is added.

    It needs the inputs: call `likelihood(model(x), x)`, and `mll(model(train_x), train_y, train_x)` to train.

    Parameters and errors are those of :class:`UnspannedNoise`; `kernel` and `approximation` have equal outputscales.

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


class WeightedNoise(Noise):
    r"""
    Give noise the variance :math:`\sigma^2(x)\, u / w_i` at training row i, and :math:`a\, \sigma^2(x)\, u` elsewhere.

    :class:`WeightedGaussianLikelihood` uses it. Construct it yourself as the base noise of :class:`UnspannedNoise`.

    Inputs are training rows in training mode, or if they are a list, as GPyTorch's prediction strategies give them; of
    fantasy models, more rows have the weight 1. Others, as in `likelihood(model(x), x)`, are new observations.

    :param base_noise: The noise :math:`\sigma^2(x)`.
    :param weights: `N` weights w of the training rows, above 0.
    :param unit: The weight u of a usual row, for which bounds of the base noise are meant. (Default: 1.)
    :param factor: The factor a of the noise of new observations, by which it differs from training rows'. (Default: 1.)
    :raises ValueError: If weights, unit or factor are not positive; in calls, if the number of training rows differs.
    """

    weights: Tensor
    unit: Tensor
    factor: Tensor

    def __init__(self, base_noise: Noise, weights: Tensor, unit: float = 1.0, factor: float = 1.0) -> None:
        super().__init__()
        check_tensors(weights=weights)
        check_positive(unit=unit, factor=factor)
        if weights.dim() != 1 or not bool(((weights > 0) & weights.isfinite()).all()):
            raise ValueError(f"expected N finite weights above 0, got a tensor of shape {tuple(weights.shape)}")
        self.base_noise = base_noise
        self.register_buffer("weights", weights.detach().clone())
        self.register_buffer("unit", torch.tensor(unit, dtype=weights.dtype))
        self.register_buffer("factor", torch.tensor(factor, dtype=torch.float64))

    def extra_repr(self) -> str:
        return without_values(self) or f"weights from {self.weights.min():.4g} to {self.weights.max():.4g}"

    def forward(self, *params: Any, shape: Any = None, **kwargs: Any) -> LinearOperator:
        """Return the covariance of the noise at training rows, or at the given points."""
        found = self.base_noise(*params, shape=shape, **kwargs)
        variances = found.diagonal(dim1=-2, dim2=-1)
        is_of_rows = self.training or (bool(params) and not isinstance(params[0], Tensor))
        factors = 1 / self._relative_weights(variances) if is_of_rows else self.new_factor.to(variances)
        return DiagLinearOperator(variances * factors)

    @property
    def new_factor(self) -> Tensor:
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
        return self.weights / self.unit

    def _relative_weights(self, variances: Tensor) -> Tensor:
        """Weights of training rows; in evaluation mode there may be more rows than weights."""
        number, got = len(self.weights), variances.shape[-1]
        more = got - number
        if more < 0 or (more and self.training):
            raise ValueError(f"expected the {number} training rows that have weights, got {got}")
        return torch.cat([self.relative_weights, 1 / self.unit.expand(more)]).to(variances)


class WeightedGaussianLikelihood(NoiseLikelihood):
    r"""
    Observe a function with Gaussian noise of variance :math:`\sigma^2 / w_i` at training row i.

    Use it where training rows are not equally precise: means of several measurements (w their number), old or doubtful
    rows (w below 1). Only ratios of weights matter for means; :attr:`noise` is that of new observations.

    :func:`~gpytorch_partition.fit_exact_gp` trains it in one pass: with :math:`W = \mathrm{diag}(w)`, :math:`s W^{1/2}
    K W^{1/2} + \sigma^2 I` has the Krylov spaces of :math:`W^{1/2} K W^{1/2}`.

    :param weights: `N` weights w of the training rows, above 0.
    :param noise: Noise of a row of weight `unit`. (Default: None, the same at all points, at least 1e-4.)
    :param unit: The weight of a usual row, whose noise is bounded. (Default: 1.)
    :raises ValueError: As :class:`WeightedNoise`.

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


def weights_of(likelihood: Any) -> Tensor | None:
    """
    Return the weights of the training rows (`N`) that a likelihood divides its noise by; None where it has none.

    Call it on the likelihood of a :func:`~gpytorch_partition.default_model` to see which rows are outliers.

    Example:
        >>> weights_of(WeightedGaussianLikelihood(torch.tensor([1.0, 4.0])))
        tensor([1., 4.])
    """
    found = [module for module in likelihood.modules() if isinstance(module, WeightedNoise)]
    return found[0].weights if found else None


class StudentTNoise(WeightedNoise):
    r"""
    Give Student-t noise the variance :math:`\sigma^2(x)\, u / w_i` at training row i, w being expected precisions.

    At new points the variance is :math:`s^2(x)\, \nu / (\nu - 2)`, with :math:`s^2(x) = a\, \sigma^2(x)\, u`.

    Use it to make a :class:`StudentTLikelihood` with weights of your own, as of :func:`.expected_precisions`.

    All parameters but one are those of :class:`WeightedNoise`.

    :param df: Degrees of freedom :math:`\nu`, above 2. (Default: 4.)
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
        return without_values(self) or f"{float(self.df):g} degrees of freedom, {super().extra_repr()}"

    @property
    def new_factor(self) -> Tensor:
        """Return the variance of the noise of new observations over that of the base noise."""
        return super().new_factor * (self.df / (self.df - 2)).to(self.unit)

    def squared_scales(self, variances: Tensor) -> Tensor:
        """Return the squared scales of noise with these variances at new observations."""
        return variances * ((self.df - 2) / self.df).to(variances)


class StudentTLikelihood(NoiseLikelihood):
    """
    Observe a function with Student-t noise, a mixture of Gaussians of many scales.

    Use it where some training targets are outliers. Each row's noise has a precision of its own, whose expectation is
    the row's weight (Tipping & Lawrence 2005), so that outliers have hardly any influence. Given the weights, inference
    is exact. :func:`gpytorch_partition.presets.default_model` finds weights, scale and degrees of freedom by held-out
    rows, and uses this likelihood where they favour it.

    `likelihood(model(x), x)` has the mean and the variance of new observations, as a Gaussian; :meth:`log_marginal` is
    the density of the mixture.

    :param noise_covar: A :class:`StudentTNoise`, or an :class:`UnspannedNoise` of one.

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

    Example:
        >>> student_t_noise(WeightedGaussianLikelihood(torch.ones(2))) is None
        True
    """
    noise = getattr(likelihood, "noise_covar", None)
    noise = noise.base_noise if isinstance(noise, UnspannedNoise) else noise
    return noise if isinstance(noise, StudentTNoise) else None
