"""Gaussian noise that a forest knows more about than its mean level."""

from gpytorch_partition.likelihoods.forest_noise_likelihood import ForestNoise as ForestNoise
from gpytorch_partition.likelihoods.forest_noise_likelihood import (
    ForestNoiseGaussianLikelihood as ForestNoiseGaussianLikelihood,
)
from gpytorch_partition.likelihoods.forest_noise_likelihood import grow_residual_forest as grow_residual_forest
