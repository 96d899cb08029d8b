"""One cell: each quantity right to its tolerance, warned of, refused, or (a defect) silently wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import gpytorch
import torch
from linear_operator import settings
from linear_operator.utils.errors import NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from sklearn.exceptions import ConvergenceWarning

import gpytorch_partition
from gpytorch_partition.linalg.conjugate_gradients import UnconvergedError
from gpytorch_partition.solvers import direct
from tests.extremes.problems import Cell, Exact, exact, model_of, rows

NUM_SAMPLES = 32
NUM_PROBES = 10  # GPyTorch's default

# What counts as right.
MEAN = 0.1  # of a predictive standard deviation
VARIANCE = 0.012  # of the latent variance
CORRELATION = 0.02  # of the product of two latent standard deviations
SAMPLES = (0.25, 2.6)  # ratio of variances of 32 samples and the exact one: one in a million is outside
SAMPLES_MEAN = 1.6  # the same, averaged over the points, or its inverse
LOG_LIKELIHOOD = 0.02  # nats per datum, and four standard errors of the probe vectors beside it

QUANTITIES = ("mean", "variance", "covariance", "samples", "log likelihood")
REFUSALS = (UnconvergedError, NotPSDError)
WARNINGS = (NumericalWarning, ConvergenceWarning)


@dataclass(frozen=True)
class Outcome:
    """What became of one quantity."""

    kind: str  # "right", "warned", "refused" or "WRONG"
    error: float  # in units of the tolerance
    message: str = ""


def outcomes(cell: Cell, quantities: tuple[str, ...] = QUANTITIES) -> dict[str, Outcome]:
    """What became of the quantities of a cell."""
    answers, model = exact(cell), model_of(cell)
    with _settings(cell):
        computed = _computations(cell, model)
        return {name: _outcome(computed[name], _JUDGES[name], answers) for name in quantities}


@contextmanager
def _settings(cell: Cell) -> Iterator[None]:
    path, is_few = cell.path.removeprefix("few rows, "), cell.path.startswith("few rows")
    variances = {"dense": "auto", "defaults": "auto", "feature space": "feature_space"}.get(path, "conjugate_gradients")
    with ExitStack() as stack:
        if path == "many rows":
            stack.enter_context(patch.object(direct, "MOST_ROWS", cell.num_rows - 1))
        if path != "defaults":
            stack.enter_context(gpytorch_partition.settings.iterative())
            stack.enter_context(settings.min_preconditioning_size(400))
        if is_few:
            stack.enter_context(settings.max_cholesky_size(400))
        stack.enter_context(gpytorch_partition.settings.predictive_variances(variances))
        stack.enter_context(gpytorch.settings.debug(False))
        stack.enter_context(torch.no_grad())
        yield


def _computations(cell: Cell, model: gpytorch.models.ExactGP) -> dict[str, Callable[[], torch.Tensor]]:
    points = rows(cell.num_rows)[1].to(cell.dtype)

    def posterior():
        model.train()  # which forgets what was computed for predictions, and warned of
        model.eval()
        return model(points)

    def samples():
        torch.manual_seed(0)
        return posterior().lazy_covariance_matrix.zero_mean_mvn_samples(NUM_SAMPLES)

    def log_likelihood():
        model.train()
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        return mll(model(model.train_inputs[0]), model.train_targets)

    return {
        "mean": lambda: posterior().mean,
        "variance": lambda: posterior().lazy_covariance_matrix.diagonal(),
        "covariance": lambda: posterior().covariance_matrix,
        "samples": samples,
        "log likelihood": log_likelihood,
    }


def _outcome(compute: Callable, judge: Callable[[torch.Tensor, Exact], float], answers: Exact) -> Outcome:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            value = compute()
        except REFUSALS as refusal:
            return Outcome("refused", float("inf"), f"{type(refusal).__name__}: {refusal}")
    messages = [str(warning.message) for warning in seen if issubclass(warning.category, WARNINGS)]
    error = judge(value.double(), answers) if bool(torch.isfinite(value).all()) else float("inf")
    kind = "right" if error <= 1 else "warned" if messages else "WRONG"
    return Outcome(kind, error, messages[0] if messages else "")


def _beyond(difference: torch.Tensor, doubt: torch.Tensor, tolerance: torch.Tensor) -> float:
    """The largest difference, less what the exact value is in doubt, in units of the tolerance."""
    return float(((difference.abs() - doubt.abs()).clamp_min(0) / tolerance).max())


def _mean_error(value: torch.Tensor, answers: Exact) -> float:
    deviation = (answers.covariance().diagonal().clamp_min(0) + answers.noise).sqrt()
    doubt = answers.mean(answers.rounding) - answers.mean()
    return _beyond(value - answers.mean(), doubt, MEAN * deviation)


def _variance_error(value: torch.Tensor, answers: Exact) -> float:
    true = answers.covariance().diagonal()
    doubt = answers.covariance(answers.rounding).diagonal() - true
    return _beyond(value - true, doubt + 4e-16 * answers.prior.diagonal(), VARIANCE * true.clamp_min(1e-300))


def _covariance_error(value: torch.Tensor, answers: Exact) -> float:
    true = answers.covariance()
    deviation = true.diagonal().clamp_min(1e-300).sqrt()
    doubt = (answers.covariance(answers.rounding) - true).abs() + 4e-16 * answers.prior.diagonal().max()
    pairs = _beyond(value - true, doubt, CORRELATION * deviation.outer(deviation))
    return max(pairs, _variance_error(value.diagonal(), answers))


def _samples_error(value: torch.Tensor, answers: Exact) -> float:
    true, other = (answers.covariance(shift).diagonal().clamp_min(1e-300) for shift in (0.0, answers.rounding))
    found = value.square().mean(0)
    low, high = found / true.maximum(other), found / true.minimum(other)
    mean = max(float(low.mean()), 1 / max(1e-300, float(high.mean()))) / SAMPLES_MEAN
    return max(float(low.max()) / SAMPLES[1], SAMPLES[0] / max(1e-300, float(high.min())), mean)


def _log_likelihood_error(value: torch.Tensor, answers: Exact) -> float:
    true = answers.log_likelihood()
    doubt = abs(answers.log_likelihood(answers.rounding) - true)
    standard_error = answers.log_spread / (2 * NUM_PROBES * len(answers.values)) ** 0.5
    return max(0.0, abs(float(value) - true) - doubt) / (LOG_LIKELIHOOD + 4 * standard_error)


_JUDGES = {
    "mean": _mean_error,
    "variance": _variance_error,
    "covariance": _covariance_error,
    "samples": _samples_error,
    "log likelihood": _log_likelihood_error,
}
