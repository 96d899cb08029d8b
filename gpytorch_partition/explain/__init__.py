"""Explanations of fitted models; estimators have methods of the same names, and `plots` draws the results."""

from gpytorch_partition.explain.dependence import PartialDependence as PartialDependence
from gpytorch_partition.explain.importance import Importance as Importance
from gpytorch_partition.explain.summary import ClassSummary as ClassSummary
from gpytorch_partition.explain.summary import ModelSummary as ModelSummary
from gpytorch_partition.explain.summary import PartSummary as PartSummary
from gpytorch_partition.explain.summary import TargetSummary as TargetSummary

__all__ = [
    "ClassSummary",
    "Importance",
    "ModelSummary",
    "PartSummary",
    "PartialDependence",
    "TargetSummary",
]
