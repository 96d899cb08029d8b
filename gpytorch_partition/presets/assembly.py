"""The model that a choice describes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise, Noise
from torch import Tensor

from gpytorch_partition.inputs.standardization import standardized_columns, standardized_targets
from gpytorch_partition.likelihoods import FITCGaussianLikelihood, ForestNoise, ForestNoiseGaussianLikelihood
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.presets.choice import Choice
from gpytorch_partition.presets.parts import new_parts, unfitted_part, weighted, weighted_sum

# The least variance of the noise, in units of the targets' own; a likelihood's constraint lies below.
LEAST_NOISE = 1e-4


def assemble(
    choice: Choice, train_x: Tensor, train_y: Tensor, random: np.random.RandomState, n_jobs: int | None
) -> PartitionGP:
    """
    A model of rows and targets in any units, with everything set and nothing to be trained.

    :param choice: What the data said.
    :param train_x: `N x D` rows.
    :param train_y: `N` targets.
    :param random: Source of the draws.
    :param n_jobs: Trees grown at a time.
    """
    mean, scale, y = standardized_targets(train_y)
    x = standardized_columns(train_x)
    parts = new_parts(x, y, choice.lengthscales, random, n_jobs, names=choice.outputscales)
    weights = {name: scale**2 * weight for name, weight in choice.outputscales.items()}
    likelihood = _likelihood(_noise(choice, scale**2), choice.threshold, parts, weights, train_x)
    model = PartitionGP(train_x, train_y, likelihood, weighted_sum(parts, weights, train_x))
    model.covar_module.outputscale = 1.0
    model.mean_module.constant = torch.tensor(mean, dtype=torch.float64)
    return model.requires_grad_(False)


def unfitted_model(
    train_x: Tensor, train_y: Tensor, names: list[str], *, noise_varies: bool, threshold: float | None
) -> PartitionGP:
    """
    A model that takes over the state of an assembled one.

    :param train_x: `N x D` rows of that model.
    :param train_y: `N` targets of that model.
    :param names: The names of its parts.
    :param noise_varies: Whether its noise varies.
    :param threshold: The choice's.
    """
    parts, weights = {name: unfitted_part(name, train_x.shape[1]) for name in names}, dict.fromkeys(names, 1.0)
    noise = ForestNoise() if noise_varies else HomoskedasticNoise()
    likelihood = _likelihood(noise, threshold, parts, weights, None)
    return PartitionGP(train_x, train_y, likelihood, weighted_sum(parts, weights, None)).eval()


def _noise(choice: Choice, unit: float) -> Noise:
    constraint = GreaterThan(0.5 * LEAST_NOISE * unit)
    if choice.noise_forest is None:
        noise = HomoskedasticNoise(noise_constraint=constraint)
    else:
        noise = ForestNoise.from_forest(choice.noise_forest, constraint)
        noise.exponent = choice.exponent
    noise.initialize(noise=choice.noise * unit)
    return noise


def _likelihood(
    noise: Noise,
    threshold: float | None,
    parts: Mapping[str, Kernel],
    outputscales: Mapping[str, float],
    train_x: Tensor | None,
) -> Likelihood:
    """With the noise; and with what landmarks leave out of the smooth part beyond the threshold, if there is one."""
    if threshold is not None:
        landmarks, outputscale = parts["smooth"], outputscales["smooth"]
        exact, approximation = (weighted(part, outputscale, train_x) for part in (landmarks.base_kernel, landmarks))
        return FITCGaussianLikelihood(noise, exact, approximation, threshold * outputscale)
    likelihood = ForestNoiseGaussianLikelihood() if isinstance(noise, ForestNoise) else GaussianLikelihood()
    likelihood.noise_covar = noise
    return likelihood
