"""Gaussian likelihoods whose noise varies with the inputs."""

from gpytorch_partition.likelihoods.fitc_likelihood import FITCGaussianLikelihood as FITCGaussianLikelihood
from gpytorch_partition.likelihoods.fitc_likelihood import UnspannedNoise as UnspannedNoise
from gpytorch_partition.likelihoods.forest_noise_likelihood import ForestNoise as ForestNoise
from gpytorch_partition.likelihoods.forest_noise_likelihood import (
    ForestNoiseGaussianLikelihood as ForestNoiseGaussianLikelihood,
)
from gpytorch_partition.likelihoods.forest_noise_likelihood import grow_residual_forest as grow_residual_forest
