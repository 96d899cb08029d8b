"""
Everything that a client says, how far it is from the dense oracle, and how far it may be.

Up to `max_cholesky_size` rows (N = 300) all is Cholesky's algebra, in float64: what differs is rounding, and the jitter
of at most 1e-6 that GPyTorch adds to roots. Above (N = 1,500):

- A log determinant and its derivatives are traces, from GPyTorch's 10 probe vectors. Per datum, the standard error of
  half a trace is sqrt(2 / 10) / 2 / sqrt(N) times the standard deviation of the matrix' eigenvalues, .0058 where that
  is 1; derivatives by log noises and log scales have eigenvalues from 0 to 1, the logarithms spread by 1 or less.
  3.5 of these are .02, in nats per datum (per unit of a raw parameter).
- Means are solved for to 1e-3 of the scale of the targets, which is 1.
- Variances are right to 1 % by this package's own tolerance; with rounding and other solves 2 %. Covariances are in
  units of the two standard deviations.
- Samples: means and variances of 1,000 at up to 80 points are within 5 standard errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import gpytorch
import torch
from torch import Tensor

from gpytorch_partition import settings
from tests.clients.cases import SIZES, Deviation, deviation, tolerance_of
from tests.clients.client import Client, Recipe
from tests.clients.problems import dense_algebra, dense_factory, kernel_factory, problem

NUM_SAMPLES = 1000
_STANDARD_ERRORS = {"sample mean": 5.0, "sample variance": 5.0}
_DENSE = dict.fromkeys(("likelihood", "gradient", "mean", "variance", "covariance", "observed variance"), 1e-5)
_ITERATIVE = {
    "likelihood": 0.02,
    "gradient": 0.02,
    "mean": 1e-3,
    "variance": 0.02,
    "covariance": 0.02,
    "observed variance": 0.02,
}
TOLERANCES = {300: _DENSE | _STANDARD_ERRORS, 1500: _ITERATIVE | _STANDARD_ERRORS}
CONTEXTS: dict[str, Callable[[], Any]] = {
    "default": nullcontext,
    "iterative": settings.iterative,
    "fast_pred_var": gpytorch.settings.fast_pred_var,
}


@dataclass(frozen=True)
class Failure:
    """An error in place of a quantity."""

    error: Exception

    @property
    def message(self) -> str:
        return re.sub(r"\s+", " ", f"{type(self.error).__name__}: {self.error}")


Quantities = dict[str, Tensor | Failure]


def quantities(found: Client, is_oracle: bool) -> Quantities:
    """What a client computes, each by a call of its own, or the error that it raises."""
    results: Quantities = {}

    def ask(name: str, function: Callable[[], Tensor]) -> None:
        try:
            results[name] = function().detach()
        except Exception as error:  # noqa: BLE001 (what is raised is what is examined)
            results[name] = Failure(error)

    with found.settings():
        found.modules.train()
        if found.objective is not None:
            ask("likelihood", lambda: _backward(found))
            ask("gradient", lambda: _gradient(found, results["likelihood"]))
        found.modules.eval()
        with torch.no_grad():
            ask("mean", lambda: found.predict().mean)
            if found.is_posterior:
                ask("variance", lambda: found.predict().variance)
                ask("covariance", lambda: found.predict().covariance_matrix)
            if found.observe is not None:
                ask("observed variance", lambda: found.observe(found.predict()).variance)
            if found.is_posterior and not is_oracle:
                ask("samples", lambda: found.predict().sample(torch.Size([NUM_SAMPLES])))
    return results


def _backward(found: Client) -> Tensor:
    found.modules.zero_grad()
    objective = found.objective()
    objective.backward()
    return objective


def _gradient(found: Client, likelihood: Tensor | Failure) -> Tensor:
    if isinstance(likelihood, Failure):
        raise likelihood.error
    gradients = [
        p.grad if p.grad is not None else torch.zeros_like(p) for p in found.modules.parameters() if p.requires_grad
    ]
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def _built(recipe: Recipe, kernel: str, num_rows: int, is_oracle: bool) -> Client:
    rows = problem(num_rows)
    factory = kernel_factory(kernel, num_rows)
    torch.manual_seed(0)
    if is_oracle:
        return (recipe.oracle or recipe.build)(rows, dense_factory(factory))
    return recipe.build(rows, factory)


@cache
def oracle(recipe: Recipe, kernel: str, num_rows: int) -> Quantities:
    """The same client with a dense kernel and dense algebra."""
    with torch.random.fork_rng(), dense_algebra():
        return quantities(_built(recipe, kernel, num_rows, is_oracle=True), is_oracle=True)


def run(recipe: Recipe, kernel: str, num_rows: int, mode: str) -> Quantities:
    """The client as a user runs it."""
    with torch.random.fork_rng(), ExitStack() as stack:
        stack.enter_context(CONTEXTS[mode]())
        return quantities(_built(recipe, kernel, num_rows, is_oracle=False), is_oracle=False)


def errors(got: Quantities, expected: Quantities) -> dict[str, float]:
    """How far each quantity is from the oracle's, in the unit of its tolerance."""
    found = {}
    for name, value in got.items():
        if isinstance(value, Failure):
            continue
        if name == "samples":
            found |= _sample_errors(value, expected["mean"], expected["variance"])
        else:
            found[name] = _ERRORS[name](value.double(), expected[name])
    return found


def _relative(value: Tensor, exact: Tensor) -> float:
    return float(((value - exact).abs() / exact.abs().clamp_min(1e-6)).max())


def _covariance_error(value: Tensor, exact: Tensor) -> float:
    scale = exact.diagonal(dim1=-2, dim2=-1).clamp_min(1e-6).sqrt()
    return float(((value - exact).abs() / (scale.unsqueeze(-1) * scale.unsqueeze(-2))).max())


_ERRORS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "likelihood": lambda value, exact: float((value - exact).abs().max()),
    "gradient": lambda value, exact: float((value - exact).abs().max()),
    "mean": lambda value, exact: float((value - exact).abs().max()),
    "variance": _relative,
    "covariance": _covariance_error,
    "observed variance": _relative,
}


def _sample_errors(samples: Tensor, mean: Tensor, variance: Tensor) -> dict[str, float]:
    """Of the samples' means and variances, in their standard errors."""
    variance = variance.clamp_min(1e-6)
    num_samples = len(samples)
    by_mean = (samples.mean(0) - mean).abs() / (variance / num_samples).sqrt()
    by_variance = ((samples - mean).square().mean(0) / variance - 1).abs() / (2 / num_samples) ** 0.5
    return {"sample mean": float(by_mean.max()), "sample variance": float(by_variance.max())}


def deviations(recipe: Recipe, kernel: str, num_rows: int, mode: str) -> list[str]:
    """Whatever of a case is other than declared, in words; nothing if all is as it should be."""
    size = SIZES[num_rows > SIZES[0]]  # the column of the page
    got, expected = run(recipe, kernel, num_rows, mode), oracle(recipe, kernel, num_rows)
    broken = [f"the oracle raised {value.message}" for value in expected.values() if isinstance(value, Failure)]
    if broken:
        return broken
    found, tolerances = errors(got, expected), TOLERANCES[SIZES[-1] if recipe.is_iterative else size]
    answers = {name: found.get(name, value) for name, value in got.items() if name != "samples"}
    answers |= {"sample mean": got["samples"], "sample variance": got["samples"]} if "samples" in got else {}
    answers |= found
    complaints = (
        _complaint(
            value,
            tolerance_of(recipe.name, kernel, name, tolerances[name]) if size == SIZES[-1] else tolerances[name],
            deviation(recipe.name, name, size, mode, kernel),
        )
        for name, value in answers.items()
    )
    return [f"{name}: {words}" for name, words in zip(answers, complaints) if words]


def _complaint(value: float | Failure, tolerance: float, declared: Deviation | None) -> str | None:
    """What is wrong with one quantity (an error's size, or a failure), given what is declared of it."""
    kind = declared.kind if declared else "exact"
    if isinstance(value, Failure):
        if declared is None:
            return f"expected exact, but it raised {value.message}"
        return None if re.search(declared.says, value.message) else f"expected {declared.says!r} in {value.message}"
    if kind == "refused":
        return f"expected it to be refused, but it is {value:.1e} off"
    if (value <= tolerance) == (kind == "exact"):
        return None
    return f"expected {kind}, but it is {value:.1e} off, and {tolerance:.1e} is the tolerance"
