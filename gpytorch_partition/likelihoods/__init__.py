"""Gaussian likelihoods whose noise varies with the inputs, or with weights of the rows."""

from gpytorch_partition.likelihoods.fitc_likelihood import FITCGaussianLikelihood as FITCGaussianLikelihood
from gpytorch_partition.likelihoods.fitc_likelihood import UnspannedNoise as UnspannedNoise
from gpytorch_partition.likelihoods.forest_noise_likelihood import ForestNoise as ForestNoise
from gpytorch_partition.likelihoods.forest_noise_likelihood import (
    ForestNoiseGaussianLikelihood as ForestNoiseGaussianLikelihood,
)
from gpytorch_partition.likelihoods.forest_noise_likelihood import grow_residual_forest as grow_residual_forest
from gpytorch_partition.likelihoods.weighted_likelihood import StudentTLikelihood as StudentTLikelihood
from gpytorch_partition.likelihoods.weighted_likelihood import StudentTNoise as StudentTNoise
from gpytorch_partition.likelihoods.weighted_likelihood import WeightedGaussianLikelihood as WeightedGaussianLikelihood
from gpytorch_partition.likelihoods.weighted_likelihood import WeightedNoise as WeightedNoise
from gpytorch_partition.likelihoods.weighted_likelihood import student_t_noise as student_t_noise
from gpytorch_partition.likelihoods.weighted_likelihood import weights_of as weights_of

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
