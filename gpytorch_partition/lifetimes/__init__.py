"""Lifetimes (inverse lengthscales) of Mondrian kernels: sweep, path, projections, and the Mondrian forest."""

from gpytorch_partition.lifetimes.gradient_projection import (
    expected_gradient_projection as expected_gradient_projection,
)
from gpytorch_partition.lifetimes.mondrian_forest import MondrianForest as MondrianForest
from gpytorch_partition.lifetimes.mondrian_forest import joint_weights as joint_weights
from gpytorch_partition.lifetimes.path import LifetimeModel as LifetimeModel
from gpytorch_partition.lifetimes.path import LifetimePath as LifetimePath
from gpytorch_partition.lifetimes.path import fit_along_lifetimes as fit_along_lifetimes
from gpytorch_partition.lifetimes.sweep import LifetimeSweep as LifetimeSweep
from gpytorch_partition.lifetimes.sweep import lifetime_sweep as lifetime_sweep

__all__ = [
    "LifetimeModel",
    "LifetimePath",
    "LifetimeSweep",
    "MondrianForest",
    "expected_gradient_projection",
    "fit_along_lifetimes",
    "joint_weights",
    "lifetime_sweep",
]
