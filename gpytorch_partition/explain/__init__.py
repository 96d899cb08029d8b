"""Explanations of fitted models; estimators have methods of the same names, and `plots` draws the results."""

from gpytorch_partition.explain.dependence import PartialDependence
from gpytorch_partition.explain.forest_proximities import Prototype, Proximities, geometric_importance, proximities
from gpytorch_partition.explain.importance import Importance
from gpytorch_partition.explain.summary import ClassSummary, ModelSummary, PartSummary, TargetSummary

__all__ = [
    "ClassSummary",
    "Importance",
    "ModelSummary",
    "PartSummary",
    "PartialDependence",
    "Prototype",
    "Proximities",
    "TargetSummary",
    "geometric_importance",
    "proximities",
]
