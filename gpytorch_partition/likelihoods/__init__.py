"""Gaussian likelihoods whose noise varies with the inputs, or with weights of the rows."""

from gpytorch_partition.likelihoods.forest_noise_likelihood import (
    ForestNoise,
    ForestNoiseGaussianLikelihood,
    grow_residual_forest,
)
from gpytorch_partition.likelihoods.noise_likelihoods import (
    FITCGaussianLikelihood,
    StudentTLikelihood,
    StudentTNoise,
    UnspannedNoise,
    WeightedGaussianLikelihood,
    WeightedNoise,
    student_t_noise,
    weights_of,
)

__all__ = [
    "FITCGaussianLikelihood",
    "ForestNoise",
    "ForestNoiseGaussianLikelihood",
    "StudentTLikelihood",
    "StudentTNoise",
    "UnspannedNoise",
    "WeightedGaussianLikelihood",
    "WeightedNoise",
    "grow_residual_forest",
    "student_t_noise",
    "weights_of",
]
