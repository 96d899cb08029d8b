r"""
Models of the form s K + noise with K fixed: recognition, and access to their outputscale, noise and mean.

Noise of variance :math:`\sigma^2 / w_i` at row i is transformed to equal noise at all rows. With
:math:`W = \mathrm{diag}(w)`, the targets :math:`W^{1/2} y` have the covariance :math:`s W^{1/2} K W^{1/2} + \sigma^2 I`
and the mean :math:`c\, W^{1/2} 1`. Their log density is that of y less :math:`\tfrac12 \sum_i \log w_i`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.means import ConstantMean
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, Interval, LogPrior, Maximum
from gpytorch_partition.likelihoods import WeightedGaussianLikelihood
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator

# Relative distance from its bound at which a value at a bound is written, since a softplus cannot reach its bound.
_BOUND_MARGIN = 1e-6


class NotApplicableError(Exception):
    """Report a model that does not have the form s K + noise; the message gives the reason."""


@dataclass(frozen=True)
class ScaledCovariance:
    """Hold a model whose covariance is s K + noise with K fixed, and the modules that hold its values."""

    model: ExactGP
    covariance: PartitionLinearOperator  #: K (`N x N`), of unit scale; W^(1/2) K W^(1/2) where rows have weights
    residuals: Tensor  #: `N x t` targets, less the prior mean if that is not trained; times W^(1/2)
    noise: HomoskedasticNoise
    scale: ScaleKernel | None  #: the kernel that holds the outputscale; None if it is 1
    mean: ConstantMean | None  #: None if it is not trained
    level: Tensor | None = None  #: the diagonal of W^(1/2) (`N`, float64); None where rows have no weights

    @property
    def num_rows(self) -> int:
        return self.residuals.shape[0]

    @property
    def log_jacobian(self) -> float:
        """Return the log density of the targets less that of the weighted residuals, for each set of targets."""
        return 0.0 if self.level is None else float(self.level.log().sum())

    def bounds(self, target: int) -> Bounds:
        """Return the bounds of outputscale, noise and mean for a target, by its number."""
        noise = _interval(self.noise, "noise", target)
        outputscale = (1.0, 1.0) if self.scale is None else _interval(self.scale, "outputscale", target)
        return Bounds(outputscale, noise, 0.0 if self.mean is None else None)

    def log_prior(self) -> LogPrior | None:
        """Return the log density (nats) of the priors, a function of outputscale and noise; None without priors."""
        priors = list(self.model.named_priors())
        if not priors:
            return None

        def log_density(outputscale: float, noise: float) -> float:
            self._write([outputscale], [noise])
            with torch.no_grad():
                return sum(float(prior.log_prob(closure(module)).sum()) for _, module, prior, closure, _ in priors)

        return log_density

    def write(self, maxima: list[Maximum]) -> None:
        """Set the model's outputscale, noise and mean to a maximum for each target."""
        self._write([found.outputscale for found in maxima], [found.noise for found in maxima])
        if self.mean is not None:
            _set(self.mean, "constant", [found.mean for found in maxima])

    def _write(self, outputscales: list[float], noises: list[float]) -> None:
        if self.scale is not None and self.scale.raw_outputscale.requires_grad:
            _set(self.scale, "outputscale", outputscales)
        if self.noise.raw_noise.requires_grad:
            _set(self.noise, "noise", noises)


def recognize(model: ExactGP, likelihood: Likelihood) -> ScaledCovariance:
    """Return the model as a scaled covariance plus noise; a NotApplicableError if it has another form."""
    noise, weights = _noise_and_weights(likelihood)
    scale, mean = _only_module(model, ScaleKernel), _only_module(model, ConstantMean)
    mean = mean if mean is not None and mean.raw_constant.requires_grad else None
    _check_trained(model, noise, scale, mean)
    with _perturbed(scale, mean):
        _checked_prior(model, scale, mean)  # the form must hold at other values too
    prior_mean, covariance = _checked_prior(model, scale, mean)
    targets = model.train_targets if mean is not None else model.train_targets - prior_mean.detach()
    residuals = targets.reshape(-1, targets.shape[-1]).mT
    found = ScaledCovariance(model, covariance.detach().without_scale(), residuals, noise, scale, mean)
    _check_targets(found)
    return found if weights is None else _weighted(found, weights)


def _noise_and_weights(likelihood: Likelihood) -> tuple[HomoskedasticNoise, Tensor | None]:
    noise: Any = getattr(likelihood, "noise_covar", None)
    if type(likelihood) is GaussianLikelihood:
        return noise, None
    if type(likelihood) is WeightedGaussianLikelihood and type(noise.base_noise) is HomoskedasticNoise:
        return noise.base_noise, noise.relative_weights
    raise NotApplicableError(f"its likelihood is a {type(likelihood).__name__}, not one level of Gaussian noise")


def _weighted(found: ScaledCovariance, weights: Tensor) -> ScaledCovariance:
    """Equal noise at all rows, which are multiplied by the roots of their weights."""
    if len(weights) != found.num_rows:
        raise ValueError(f"expected one weight for each of {found.num_rows} training rows, got {len(weights)}")
    level = weights.double().sqrt()
    column = level.unsqueeze(-1)
    loadings = column.to(found.covariance.cluster_operator.dtype)
    covariance = found.covariance.with_loadings(loadings, loadings)
    return replace(found, covariance=covariance, residuals=column * found.residuals, level=level)


@contextmanager
def _perturbed(*modules: Any) -> Iterator[None]:
    parameters = [p for module in modules if module is not None for p in module.parameters(recurse=False)]
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.data += 0.7
        yield
    finally:
        for parameter, value in zip(parameters, before):
            parameter.data.copy_(value)


def _checked_prior(model: ExactGP, scale: ScaleKernel | None, mean: ConstantMean | None) -> tuple[Tensor, Any]:
    """Return mean and covariance of the prior at training inputs; an error if the modules alone do not explain them."""
    prior = model.train()(*model.train_inputs)
    covariance = prior.lazy_covariance_matrix.evaluate_kernel()
    _check_covariance(covariance, scale)
    if mean is not None and not torch.allclose(prior.mean, mean.constant.unsqueeze(-1).expand_as(prior.mean)):
        raise NotApplicableError("its mean is more than one constant")
    return prior.mean, covariance


def _only_module(model: ExactGP, kind: type) -> Any:
    modules = [module for module in model.modules() if isinstance(module, kind)]
    if len(modules) > 1:
        raise NotApplicableError(f"it has {len(modules)} modules of type {kind.__name__}")
    return modules[0] if modules else None


def _check_trained(model: ExactGP, noise: HomoskedasticNoise, scale: Any, mean: Any) -> None:
    known = {id(noise.raw_noise), id(getattr(scale, "raw_outputscale", None)), id(getattr(mean, "raw_constant", None))}
    others = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in known]
    if others:
        raise NotApplicableError(f"it also trains {', '.join(others)}")


def _check_covariance(covariance: Any, scale: ScaleKernel | None) -> None:
    if not isinstance(covariance, PartitionLinearOperator) or covariance.left_loadings is not None:
        raise NotApplicableError(f"its covariance is a {type(covariance).__name__}, not that of one partition kernel")
    if covariance.left.batch_shape:
        raise NotApplicableError("its batch elements have different rows")
    expected = covariance.scale.new_ones(()) if scale is None else scale.outputscale
    is_summed = expected.dim() > covariance.scale.dim()  # over the batch
    if is_summed or not torch.allclose(covariance.scale, expected.expand_as(covariance.scale)):
        raise NotApplicableError("its covariance is more than an outputscale times a partition kernel")


def _check_targets(found: ScaledCovariance) -> None:
    num_targets = found.residuals.shape[1]
    for name, parameter in found.model.named_parameters():
        if parameter.requires_grad and parameter.numel() != num_targets:
            raise NotApplicableError(f"{num_targets} sets of targets share {name}")
    has_prior = any(True for _ in found.model.named_priors())
    if has_prior and (num_targets > 1 or (found.mean is not None and any(True for _ in found.mean.named_priors()))):
        raise NotApplicableError("it has a prior on the mean, or priors and several sets of targets")


def _interval(module: Any, name: str, target: int) -> Interval:
    if not getattr(module, f"raw_{name}").requires_grad:
        values = getattr(module, name).detach().reshape(-1)
        value = float(values[target if values.numel() > 1 else 0])
        return value, value
    constraint = getattr(module, f"raw_{name}_constraint")
    return float(constraint.lower_bound.min()), float(constraint.upper_bound.max())


def _set(module: Any, name: str, values: list[float]) -> None:
    current = getattr(module, name)
    new = torch.tensor(values, dtype=current.dtype, device=current.device).view(current.shape)
    constraint = getattr(module, f"raw_{name}_constraint", None)
    if constraint is not None:
        new = _inside(new, constraint.lower_bound.to(new), constraint.upper_bound.to(new))
    module.initialize(**{name: new})


def _inside(values: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Values moved inside their bounds, far enough that the difference is not lost to rounding."""
    width = upper - lower
    least = lower + (_BOUND_MARGIN * torch.minimum(lower.abs(), width)).clamp_min(torch.finfo(values.dtype).tiny ** 0.5)
    # Where a bound is infinite these are nan, which fmax and fmin pass over.
    return torch.fmin(torch.fmax(values, least), upper - _BOUND_MARGIN * width)
