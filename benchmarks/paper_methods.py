"""The Gaussian processes that Davies & Ghahramani (2014, section 5.1) compare, and their joint predictions."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NanError, NotPSDError
from scipy.stats import norm
from torch import Tensor

from gpytorch_partition import FastClusterKernel, RandomForestKernel, fit_exact_gp, settings
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.training.marginal_likelihood import maximize_marginal_likelihood

from .predictors import Split, paper_forest
from .problems import ExactModel
from .report import Row

LINEAR, RBF, ARD, NOISELESS = "linear", "RBF", "RBF-ARD", "RBF-ARD, noise fixed at 1e-4"
PRINTED, OURS, CLUSTERS = "random forest, as printed", "random forest, ours", "fast cluster"
STANDARD, PARTITION = (LINEAR, RBF, ARD), (PRINTED, OURS, CLUSTERS)

NUM_PARTITIONS = 200
# Random starts of a smooth kernel climb a few steps; the most likely go on.
_FIRST_STEPS, _KEPT = 5, 2
# A little above the least that GPyTorch's likelihood allows.
_LEAST_NOISE = 1.001e-4
_INTERVAL = norm.ppf(0.95)


class Prediction(NamedTuple):
    """The predictive means and covariance of new targets, noise included."""

    mean: Tensor
    covariance: Tensor

    def scores(self, y: Tensor) -> Row:
        """Log densities per target, of all of them together and of each alone, and squared errors."""
        error, std = y - self.mean, self.covariance.diagonal().sqrt()
        joint = torch.distributions.MultivariateNormal(self.mean, self.covariance).log_prob(y) / len(y)
        return {
            "log density, joint": joint.item(),
            "log density, pointwise": torch.distributions.Normal(self.mean, std).log_prob(y).mean().item(),
            "squared error": error.square().mean().item(),
            "coverage of 90 % intervals": (error.abs() <= _INTERVAL * std).double().mean().item(),
        }


Predict = Callable[[Split], Prediction]
Build = Callable[[Tensor, Tensor, int, int], Kernel]  # of rows, targets, the number of partitions and a seed


def _printed(x: Tensor, y: Tensor, num_partitions: int, seed: int) -> Kernel:
    return paper_forest(x, y, num_trees=num_partitions, random_state=seed)


def _ours(x: Tensor, y: Tensor, num_partitions: int, seed: int) -> Kernel:
    return RandomForestKernel(x, y, num_partitions, random_state=seed)


def _clusters(x: Tensor, y: Tensor, num_partitions: int, seed: int) -> Kernel:
    return FastClusterKernel(x, num_partitions, random_state=seed)


# Algorithm 1 with scikit-learn's forest, this package's forest, and algorithm 2.
KERNELS: dict[str, Build] = {PRINTED: _printed, OURS: _ours, CLUSTERS: _clusters}


def partition_gp(split: Split, *, build: Build, num_partitions: int = NUM_PARTITIONS, seed: int = 0) -> Prediction:
    """Outputscale, noise and mean by marginal likelihood; the kernel itself has nothing to train."""
    x, y, points = (torch.from_numpy(values) for values in (split.x, split.y, split.test_x))
    model = PartitionGP(x, y, GaussianLikelihood(), build(x, y, num_partitions, seed))
    fit_exact_gp(model, model.likelihood)
    return predicted(model, points)


def predicted(model: ExactGP, points: Tensor) -> Prediction:
    """Of a trained model, exactly."""
    model.eval()
    with torch.no_grad(), settings.iterative():
        targets = model.likelihood(model(points))
        return Prediction(targets.mean, targets.covariance_matrix)


def smooth_gp(
    split: Split, *, kernel: Callable[[int], Kernel], restarts: int, steps: int, noise: float | None = None
) -> Prediction:
    """The most likely hyperparameters of all, from random starts; the noise too unless it is given."""
    x, y, points = (torch.from_numpy(values) for values in (split.x, split.y, split.test_x))
    model = ExactModel(x, y, kernel(x.shape[1]))
    model.likelihood.noise = 0.1 if noise is None else noise
    model.likelihood.raw_noise.requires_grad_(noise is None)
    first, generator = deepcopy(model.state_dict()), torch.Generator().manual_seed(0)
    tried = []
    for _ in range(restarts):
        model.load_state_dict(first)
        _shake(model, generator)
        tried.append(_climbed(model, _FIRST_STEPS))
    _finish(model, sorted(tried, key=lambda end: end[0])[-_KEPT:], steps)
    return predicted(model, points)


def _shake(model: ExactGP, generator: torch.Generator) -> None:
    """Multiply every positive hyperparameter by a log normal number."""
    for _, parameter, constraint in model.named_parameters_and_constraints():
        if constraint is not None and parameter.requires_grad:
            factor = torch.randn(parameter.shape, generator=generator, dtype=torch.float64).exp()
            parameter.data = constraint.inverse_transform(constraint.transform(parameter.data) * factor)


def _climbed(model: ExactGP, steps: int) -> tuple[float, dict[str, Tensor]]:
    """The likelihood that so many steps of L-BFGS reach, and where."""
    try:
        found = maximize_marginal_likelihood(model, model.likelihood, max_iterations=steps).log_marginal_likelihood
    except (FloatingPointError, NanError, NotPSDError):
        found = -np.inf
    return found, deepcopy(model.state_dict())


def _finish(model: ExactGP, ends: list[tuple[float, dict[str, Tensor]]], steps: int) -> None:
    """Leave the model where the best climb ends."""
    finished = []
    for _, state in ends:
        model.load_state_dict(state)
        finished.append(_climbed(model, steps))
    model.load_state_dict(max(finished, key=lambda end: end[0])[1])


def _rbf(num_columns: int, ard: bool) -> Kernel:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=num_columns if ard else None))
    kernel.base_kernel.lengthscale = num_columns**0.5
    return kernel


SMOOTH: dict[str, Callable[[int], Kernel]] = {
    LINEAR: lambda num_columns: LinearKernel(),
    RBF: partial(_rbf, ard=False),
    ARD: partial(_rbf, ard=True),
}


def methods(restarts: int, steps: int, num_partitions: int) -> dict[str, Predict]:
    """All of them, by name."""
    climb = partial(smooth_gp, restarts=restarts, steps=steps)
    smooth: dict[str, Predict] = {name: partial(climb, kernel=kernel) for name, kernel in SMOOTH.items()}
    smooth[NOISELESS] = partial(climb, kernel=SMOOTH[ARD], noise=_LEAST_NOISE)
    ours: dict[str, Predict] = {
        name: partial(partition_gp, build=build, num_partitions=num_partitions) for name, build in KERNELS.items()
    }
    return smooth | ours
