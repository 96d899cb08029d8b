"""The Gaussian processes that Davies & Ghahramani (2014, section 5.1) compare, and their joint predictions."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from gpytorch_partition import FastClusterKernel, RandomForestKernel, fit_exact_gp, settings
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.training.marginal_likelihood import maximize_marginal_likelihood

from .datasets import HALF, Split
from .plots import styles
from .processes import ExactModel, ard_kernel, paper_forest
from .report import Row

LINEAR, RBF, ARD, NOISELESS = "linear", "RBF", "RBF-ARD", "RBF-ARD, noise fixed at 1e-4"
PRINTED, OURS, CLUSTERS = "random forest, as printed", "random forest, ours", "fast cluster"
STANDARD = (LINEAR, RBF, ARD)
LOOKS = styles((OURS, ARD, CLUSTERS, NOISELESS, RBF, PRINTED, LINEAR))
NUM_PARTITIONS = 200
JOINT, ALONE, ERROR = "log density, joint", "log density, pointwise", "squared error"
COVERAGE = "coverage of 90 % intervals"
_FIRST_STEPS, _KEPT = 5, 2  # random starts of a smooth kernel climb a few steps; the most likely go on
_LEAST_NOISE = 1.001e-4  # a little above the least that GPyTorch's likelihood allows


class Prediction(NamedTuple):
    """The predictive means and covariance of new targets, noise included."""

    mean: Tensor
    covariance: Tensor

    def scores(self, y: Tensor) -> Row:
        """Return log densities per target, of all of them together and of each alone, and squared errors."""
        error, std = y - self.mean, self.covariance.diagonal().sqrt()
        joint = torch.distributions.MultivariateNormal(self.mean, self.covariance).log_prob(y) / len(y)
        return {
            JOINT: joint.item(),
            ALONE: torch.distributions.Normal(self.mean, std).log_prob(y).mean().item(),
            ERROR: error.square().mean().item(),
            COVERAGE: (error.abs() <= HALF * std).double().mean().item(),
        }


Predict = Callable[[Split], Prediction]
Build = Callable[[Tensor, Tensor, int, int], Kernel]  # of rows, targets, the number of partitions and a seed

# Algorithm 1 with scikit-learn's forest, this package's forest, and algorithm 2.
KERNELS: dict[str, Build] = {
    PRINTED: paper_forest,
    OURS: lambda x, y, m, seed: RandomForestKernel(x, y, m, random_state=seed),
    CLUSTERS: lambda x, y, m, seed: FastClusterKernel(x, m, random_state=seed),
}


def partition_model(x: Tensor, y: Tensor, build: Build, m: int, seed: int = 0) -> PartitionGP:
    """Return a process with the most likely outputscale, noise and mean; the kernel has nothing to train."""
    model = PartitionGP(x, y, GaussianLikelihood(), build(x, y, m, seed))
    fit_exact_gp(model, model.likelihood)
    return model.eval()


def partition_gp(split: Split, *, build: Build, m: int = NUM_PARTITIONS, seed: int = 0) -> Prediction:
    """Predict by a partition kernel."""
    x, y, points = split.tensors
    return predicted(partition_model(x, y, build, m, seed), points)


def predicted(model: ExactGP, points: Tensor) -> Prediction:
    """Predict exactly by a trained model."""
    model.eval()
    with torch.no_grad(), settings.iterative():
        targets = model.likelihood(model(points))
        return Prediction(targets.mean, targets.covariance_matrix)


def smooth_gp(
    split: Split, *, kernel: Callable[[int], Kernel], restarts: int, steps: int, noise: float | None = None
) -> Prediction:
    """Predict by the most likely hyperparameters of several random starts; the noise too unless it is given."""
    x, y, points = split.tensors
    model = ExactModel(x, y, kernel(x.shape[1]))
    model.likelihood.noise = 0.1 if noise is None else noise
    model.likelihood.raw_noise.requires_grad_(noise is None)
    first, generator = deepcopy(model.state_dict()), torch.Generator().manual_seed(0)
    tried = []
    for _ in range(restarts):
        model.load_state_dict(first)
        _shake(model, generator)
        tried.append(_climbed(model, _FIRST_STEPS))
    finished = []
    for _, state in sorted(tried, key=lambda end: end[0])[-_KEPT:]:
        model.load_state_dict(state)
        finished.append(_climbed(model, steps))
    model.load_state_dict(max(finished, key=lambda end: end[0])[1])
    return predicted(model, points)


def _shake(model: ExactGP, generator: torch.Generator) -> None:
    for _, parameter, constraint in model.named_parameters_and_constraints():
        if constraint is not None and parameter.requires_grad:
            factor = torch.randn(parameter.shape, generator=generator, dtype=torch.float64).exp()
            parameter.data = constraint.inverse_transform(constraint.transform(parameter.data) * factor)


def _climbed(model: ExactGP, steps: int) -> tuple[float, dict[str, Tensor]]:
    try:
        found = maximize_marginal_likelihood(model, model.likelihood, max_iterations=steps).log_marginal_likelihood
    except (FloatingPointError, NanError, NotPSDError):
        found = -np.inf
    return found, deepcopy(model.state_dict())


def methods(restarts: int, steps: int, m: int) -> dict[str, Predict]:
    """Return all methods by name."""
    climb = partial(smooth_gp, restarts=restarts, steps=steps)
    ard = partial(ard_kernel, RBFKernel)
    smooth: dict[str, Predict] = {
        LINEAR: partial(climb, kernel=lambda num_columns: LinearKernel()),
        RBF: partial(climb, kernel=partial(ard, ard=False)),
        ARD: partial(climb, kernel=ard),
        NOISELESS: partial(climb, kernel=ard, noise=_LEAST_NOISE),
    }
    return smooth | {name: partial(partition_gp, build=build, m=m) for name, build in KERNELS.items()}
