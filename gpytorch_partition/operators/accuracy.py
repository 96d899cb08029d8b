"""
Accuracy of solves with a partition kernel: GPyTorch's settings, within limits.

GPyTorch's defaults (a relative residual of 1 in training and of .01 in prediction, 20 Lanczos steps) suit spectra that
decay fast. On partition kernels they leave means 1e-2 off, covariances tens of percent, gradients 28 % and likelihoods
.05 nats per datum. Settings that ask for more accuracy than the limits below are followed; those that ask for less are
not.
"""

from __future__ import annotations

import gpytorch
from linear_operator import settings

from gpytorch_partition.settings import predictions

LARGEST_TRAINING_RESIDUAL = 1e-2
LARGEST_RESIDUAL = 1e-4
FEWEST_LANCZOS_STEPS = 100

# Iterations after which a factor, where there can be one, takes less time than more of them.
FEWEST_ITERATIONS = 300

# Iterations for a few digits: 23 to 37 were measured for samples of 50,000 rows, 35 to 100 at a noise of .01.
_ITERATIONS = 10  # for `_ITERATIONS_ROWS` rows and `_ITERATIONS_NOISE`
_ITERATIONS_ROWS = 5_000
_ITERATIONS_NOISE = 0.1  # in outputscales
_ITERATIONS_GROWTH = 0.45  # exponent of the number of rows


def training_residual() -> float:
    """Return the relative residual of the solves that go with a log determinant: `cg_tolerance`, at most 1e-2."""
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


def expected_iterations(num_rows: int, noise_share: float) -> float:
    """
    Return about how many iterations a solve takes: more for more rows, and for less noise.

    :param num_rows: Number N of rows.
    :param noise_share: The noise over the prior variance of the terms that the preconditioner leaves.
    """
    growth = (num_rows / _ITERATIONS_ROWS) ** _ITERATIONS_GROWTH
    return _ITERATIONS * growth * (_ITERATIONS_NOISE / noise_share) ** 0.5
