"""Training by L-BFGS on the marginal likelihood, and warnings about values at a bound of a constraint."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.likelihoods import Likelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NanError, NotPSDError
from sklearn.exceptions import ConvergenceWarning
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from gpytorch_partition import settings
from gpytorch_partition.all_or_nothing import unchanged_by_errors
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.inputs.numbers import checked_count
from gpytorch_partition.linalg.parallel import minimize_lbfgsb
from gpytorch_partition.progress import progress

# Stopping rules of L-BFGS-B: the relative change of the likelihood, the largest component of its gradient (both per
# row), or a line search of a few steps without improvement. Log determinants from probe vectors have gradients
# that are right on average but not derivatives of the same estimate, so that long line searches follow noise.
_STOP = {"ftol": 1e-5, "gtol": 1e-4, "maxls": 5}

_HEIGHT = 1.0  # height, in nats per row, of the bowl above the last value where the likelihood has none

# Distance at which a value is "at" its bound, for targets of variance 1 (the noise's lower bound is 1e-4).
_BOUND_TOLERANCE = 1e-4

#: Consequences for intervals of a noise at its bound (`python -m benchmarks noise_at_bound`).
NOISE_AT_BOUND = (
    "the model reproduces the training targets, and takes their noise, if there is any, for a part of the function. "
    "Intervals of new observations are too narrow if the kernel has seen the targets, as a forest grown on all of them "
    "has, or if its clusters single out rows of one column; else they mostly hold, but those of the function alone are "
    "as wide"
)

# Consequences for predictions of a hyperparameter at its lower bound.
_MEANINGS = {
    "noise": NOISE_AT_BOUND,
    "outputscale": "the kernel explains nothing, so predictions are those of the others, or the constant mean",
}


@dataclass(frozen=True)
class MarginalLikelihoodFit:
    """The result of :func:`maximize_marginal_likelihood` or :func:`~gpytorch_partition.fit_exact_gp`."""

    log_marginal_likelihood: float  #: in nats, of all rows together
    num_iterations: int  #: of L-BFGS, or steps of Lanczos
    converged: bool  #: False if the iterations were used up
    at_bounds: dict[str, float]  #: the values at a bound of their constraint, by name
    method: str = "l-bfgs"  #: the method that was used
    standard_error: float | None = None  #: of the log marginal likelihood, in nats; 0 if exact, None if not estimated
    bias: float = 0.0  #: how much larger the log marginal likelihood may be, in nats: part of the standard error


def maximize_marginal_likelihood(
    model: ExactGP, likelihood: Likelihood, *, max_iterations: int = 100
) -> MarginalLikelihoodFit:
    """
    Train a model's hyperparameters by maximizing the marginal likelihood of its training data, with L-BFGS.

    Every parameter of the model that requires a gradient is trained, from its current value, in usually 10 to 30
    evaluations. Up to 2,000 rows the likelihood is exact; above, fixed probe vectors make it a deterministic function
    (:class:`gpytorch_partition.settings.probe_seed`). It runs inside :class:`gpytorch_partition.settings.iterative`; to
    change its settings, call it inside another one: `with iterative(), cg_tolerance(1e-3): ...`. A
    :class:`~sklearn.exceptions.ConvergenceWarning` explains each value at a bound, and says if the iterations did not
    suffice. The model's mode stays; after an error or an interruption its parameters are unchanged.

    :return: The likelihood reached, and the values at a bound of their constraint.
    :raises ValueError: If the likelihood is not the model's own, no parameter requires a gradient, or `max_iterations`
        is no whole number from 1.
    :raises FloatingPointError: If the likelihood or its gradient is not finite at the first values; the message has the
        hyperparameters.

    Example:
        >>> from gpytorch.likelihoods import GaussianLikelihood
        >>> from gpytorch_partition import MondrianKernel
        >>> from gpytorch_partition.models import PartitionGP
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.rand(200, 1, generator=generator)
        >>> y = 4 * x.squeeze(-1) + 0.3 * torch.randn(200, generator=generator)
        >>> likelihood = GaussianLikelihood()
        >>> model = PartitionGP(x, y, likelihood, MondrianKernel(x, num_trees=50, random_state=0))
        >>> fit = maximize_marginal_likelihood(model, likelihood)
        >>> fit.converged, round(likelihood.noise.item(), 1)  # 0.3 squared
        (True, 0.1)
    """
    checked_count(max_iterations, "iterations", "max_iterations")
    check_likelihood(model, likelihood)
    objective = _Objective(model, likelihood)
    with unchanged_by_errors(model, likelihood):
        found = _minimum(objective, max_iterations)
        fit = MarginalLikelihoodFit(
            log_marginal_likelihood=-float(found.fun) * model.train_targets.shape[-1],
            num_iterations=int(found.nit),
            converged=found.nit < max_iterations,
            at_bounds=dict(values_at_bounds(model)),
        )
        warn_about(fit, model)
    return fit


def check_likelihood(model: ExactGP, likelihood: Likelihood) -> None:
    """Raise a ValueError for a likelihood that is not the model's own, whose noise would be trained in vain."""
    if likelihood is not model.likelihood:
        raise ValueError(
            f"expected the model's own likelihood, model.likelihood, got another {type(likelihood).__name__}: the "
            "model would go on predicting with the noise that it has"
        )


def _minimum(objective: _Objective, max_iterations: int) -> Any:
    """Move the parameters to the minimum found by L-BFGS; the model's mode stays."""
    mode = objective.model.training
    steps = iter(progress(range(max_iterations), "maximizing the marginal likelihood"))
    try:
        with settings.iterative():
            objective.model.train()
            found = minimize_lbfgsb(
                objective,
                objective.position(),
                callback=lambda _: next(steps, None),
                options={"maxiter": max_iterations, **_STOP},
            )
    finally:
        objective.model.train(mode)
    objective.move_to(found.x)
    return found


class _Objective:
    """Minus the log marginal likelihood per row, with its gradient, of the raw parameters as one float64 vector."""

    def __init__(self, model: ExactGP, likelihood: Likelihood) -> None:
        self.model = model
        self.likelihood = ExactMarginalLogLikelihood(likelihood, model)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not self.parameters:
            raise ValueError("expected a model with parameters to train, got one in which none requires a gradient")
        self._last: tuple[np.ndarray, float] | None = None  # position and value

    def position(self) -> np.ndarray:
        return parameters_to_vector(self.parameters).detach().cpu().double().numpy()

    def move_to(self, position: np.ndarray) -> None:
        like = self.parameters[0]
        vector_to_parameters(torch.as_tensor(position, dtype=like.dtype, device=like.device), self.parameters)

    def __call__(self, position: np.ndarray) -> tuple[float, np.ndarray]:
        """
        Return the value and the gradient.

        Where rounding leaves no positive definite matrix or no numbers, as after a far too long first step or at a
        lengthscale that underflows to 0, the value is that of a bowl around the last position that had one. The line
        search then turns back.
        """
        try:
            found = self._evaluated(position)
        except (NotPSDError, NanError, FloatingPointError):
            if self._last is None:
                raise
            position, value = position - self._last[0], self._last[1]
            return value + _HEIGHT + float(position @ position), 2 * position
        self._last = position.copy(), found[0]
        return found

    def _evaluated(self, position: np.ndarray) -> tuple[float, np.ndarray]:
        self.move_to(position)
        self.model.zero_grad()
        with torch.enable_grad():
            inputs = self.model.train_inputs
            loss = -self.likelihood(self.model(*inputs), self.model.train_targets, *inputs).sum()
        if not torch.isfinite(loss):
            raise self._not_finite("marginal likelihood")
        loss.backward()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        gradient = parameters_to_vector(gradients).cpu().double().numpy()
        if not np.isfinite(gradient).all():
            raise self._not_finite("gradient of the marginal likelihood")
        return loss.item(), gradient

    def _not_finite(self, name: str) -> FloatingPointError:
        values = {name: value.tolist() for name, value, *_ in _constrained(self.model)}
        return FloatingPointError(f"the {name} is not finite at {values}: use float64, check the data")


def _constrained(model: ExactGP) -> Iterator[tuple[str, torch.Tensor, float, float]]:
    """The trained parameters that have constraints: name, values, and bounds."""
    for name, parameter, constraint in model.named_parameters_and_constraints():
        if constraint is not None and parameter.requires_grad:
            values = constraint.transform(parameter.detach())
            bounds = float(constraint.lower_bound.min()), float(constraint.upper_bound.max())
            yield name.replace("raw_", ""), values, *bounds


def values_at_bounds(model: ExactGP) -> Iterator[tuple[str, float]]:
    """Yield the trained values of a model that are at a bound of their constraint, by name."""
    distance = _BOUND_TOLERANCE * min(1.0, float(model.train_targets.var(correction=0)) or 1.0)
    for name, values, lower, upper in _constrained(model):
        for extreme, bound in ((values.min(), lower), (values.max(), upper)):
            if abs(float(extreme) - bound) <= max(distance, 0.1 * abs(bound)) < float("inf"):
                yield name, float(extreme)


def warn_about(fit: MarginalLikelihoodFit, model: ExactGP) -> None:
    """Warn about values at a bound, and about iterations that ended while the likelihood was improving."""
    messages, bounds = [], {name: bounds for name, _, *bounds in _constrained(model)}
    for name, value in fit.at_bounds.items():
        lower, upper = bounds[name]
        kind = name.rpartition(".")[-1] if value - lower < upper - value else ""
        meaning = _MEANINGS.get(kind, "the best value lies outside its constraint")
        messages.append(f"{name} = {value:.2g} is at a bound of its constraint: {meaning}.")
    if not fit.converged and fit.bias > 0:
        messages.append(
            f"the likelihood is not known after {fit.num_iterations} Lanczos steps, the most there are: it may be "
            f"larger by {fit.bias:.2g} nats, and the values found may not be the best. Fit by another method "
            '("feature_space", "dense"), or keep the noise larger by a constraint.'
        )
    elif not fit.converged:
        remedy = "iterations: raise max_iterations" if fit.method == "l-bfgs" else "Lanczos steps, the most there are"
        messages.append(f"the likelihood was still improving after {fit.num_iterations} {remedy}.")
    for message in messages:
        warnings.warn(message, ConvergenceWarning, stacklevel=level_of_caller())
