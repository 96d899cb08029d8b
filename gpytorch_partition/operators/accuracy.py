"""
Accuracy of solves and log determinants with a partition kernel: GPyTorch's settings, within limits.

GPyTorch's defaults (a relative residual of 1 in training and of .01 in prediction, 20 Lanczos steps) leave means 1e-2
off, covariances tens of percent, gradients 28 % and likelihoods .05 nats per datum. Settings that ask for more accuracy
than the limits below are followed; those that ask for less are not.

A log determinant by Lanczos quadrature is bounded from both sides: Gauss quadrature of the logarithm is never too
small, and Gauss-Radau quadrature with a node at a lower bound of the spectrum never too large (Golub & Meurant 2010,
theorem 6.4). Where the noise is tiny, their difference is a larger error than the variance of the probe vectors.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import gpytorch
import torch
from linear_operator import settings
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from gpytorch_partition.linalg.conjugate_gradients import CGResult, UnconvergedError
from gpytorch_partition.linalg.lanczos import radau_matrix
from gpytorch_partition.settings import predictions

LARGEST_TRAINING_RESIDUAL = 1e-2
LARGEST_RESIDUAL = 1e-4
FEWEST_LANCZOS_STEPS = 100
MOST_CHECKED_STEPS = 300  # of Lanczos, where log determinants are checked
LARGEST_BIAS = 5e-3  # of the log marginal likelihood, in nats per datum, without a warning or an exact computation
_NUM_PROBES = 3  # probe vectors for the bias: it is an average over all eigenvalues, and nearly the same for each


def training_residual() -> float:
    """Return the relative residual of solves that go with a log determinant: `cg_tolerance`, at most 1e-2."""
    return min(LARGEST_TRAINING_RESIDUAL, predictions.tolerance_outside())


def solve_residual() -> float:
    """Return the relative residual of all other solves: `cg_tolerance`, at most 1e-4."""
    return min(LARGEST_RESIDUAL, settings.cg_tolerance.value())


def prediction_residual() -> float:
    """Return the relative residual of solves for predictions: `eval_cg_tolerance`, at most 1e-4."""
    return min(LARGEST_RESIDUAL, gpytorch.settings.eval_cg_tolerance.value())


def num_lanczos_steps() -> int:
    """Return the most Lanczos steps of a log determinant: `max_lanczos_quadrature_iterations`, at least 100."""
    return max(FEWEST_LANCZOS_STEPS, settings.max_lanczos_quadrature_iterations.value())


class _Check(NamedTuple):
    least: float
    is_fatal: bool
    most: int


_CHECK: ContextVar[_Check | None] = ContextVar("the check of log determinants", default=None)


@contextmanager
def checked_determinants(least: float, *, is_fatal: bool, most: int) -> Iterator[None]:
    """Check log determinants inside, given a lower bound of the spectrum of the preconditioned matrix."""
    token = _CHECK.set(_Check(least, is_fatal, most))
    try:
        yield
    finally:
        _CHECK.reset(token)


def current_check() -> _Check | None:
    """Return the check of this context."""
    return _CHECK.get()


def check_determinant(result: CGResult) -> None:
    """Check Lanczos matrices of probe vectors, and whether their solves converged, as the context says."""
    found = _CHECK.get()
    if found is None or result.tridiagonal is None:
        return
    if found.is_fatal and not result.converged:
        raise UnconvergedError("conjugate gradients do not converge: solve in float64")
    bias = 0.5 * float(log_bias(result.tridiagonal[:_NUM_PROBES], found.least).mean(0).max())
    if bias <= LARGEST_BIAS:
        return
    if found.is_fatal:
        raise UnconvergedError(f"the log determinant may be off by {bias:.1e} nats per datum: factorize")
    warnings.warn(
        f"the log marginal likelihood may be off by up to {bias:.1e} nats per datum: Lanczos quadrature has not "
        "converged at a noise so small. Raise the noise, or max_lanczos_quadrature_iterations and max_cg_iterations.",
        NumericalWarning,
        stacklevel=2,
    )


def log_bias(tridiagonal: Tensor, least: float) -> Tensor:
    r"""Return bounds (`q x *batch`) of the error of :math:`e_1^\top \log(T) e_1` for Lanczos matrices T."""
    matrices = tridiagonal.detach().double()
    upper, lower = (_first_log(each, least) for each in (matrices, radau_matrix(matrices, least)))
    return (upper - lower).clamp_min(0)


def _first_log(matrices: Tensor, least: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrices)
    return (vectors[..., 0, :].square() * values.clamp_min(least).log()).sum(-1)
