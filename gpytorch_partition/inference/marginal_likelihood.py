"""Hyperparameters by maximum marginal likelihood."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.constraints import Interval
from gpytorch.likelihoods import Likelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from torch.nn import Parameter

from gpytorch_partition import settings
from gpytorch_partition.progress import progress

# L-BFGS-B stops when the marginal likelihood per row changes by less than this share, or no component of its
# gradient is larger than that. Float32 resolves the former.
_RELATIVE_CHANGE = 1e-6
_GRADIENT = 1e-5


@dataclass(frozen=True)
class MarginalLikelihoodFit:
    """What :func:`maximize_marginal_likelihood` found."""

    log_marginal_likelihood: float  # in nats, of all rows together
    num_iterations: int
    converged: bool
    at_bounds: dict[str, float]  # values that sit at a bound of their constraints, by parameter


def maximize_marginal_likelihood(
    model: ExactGP,
    likelihood: Likelihood,
    *,
    max_iterations: int = 100,
    callback: Callable[[np.ndarray], None] | None = None,
) -> MarginalLikelihoodFit:
    ...
