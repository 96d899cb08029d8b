"""Lifetimes (inverse lengthscales) of Mondrian kernels: sweep, path, projections, and the Mondrian forest."""

from gpytorch_partition.lifetimes.gradient_projection import expected_gradient_projection
from gpytorch_partition.lifetimes.lifetime_path import LifetimeModel, LifetimePath, fit_along_lifetimes
from gpytorch_partition.lifetimes.likelihood_sweep import LifetimeSweep, lifetime_sweep
from gpytorch_partition.lifetimes.mondrian_bounds import expected_cells, trees_for_error
from gpytorch_partition.lifetimes.mondrian_forest import MondrianForest, joint_weights

__all__ = [
    "LifetimeModel",
    "LifetimePath",
    "LifetimeSweep",
    "MondrianForest",
    "expected_cells",
    "expected_gradient_projection",
    "fit_along_lifetimes",
    "joint_weights",
    "lifetime_sweep",
    "trees_for_error",
]
