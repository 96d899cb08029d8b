"""What a fitted model says of itself, and pictures of it. Estimators have methods of the same names."""

from gpytorch_partition.explain.dependence import PartialDependence as PartialDependence
from gpytorch_partition.explain.importance import Importance as Importance
from gpytorch_partition.explain.summary import ModelSummary as ModelSummary
from gpytorch_partition.explain.summary import PartSummary as PartSummary
from gpytorch_partition.explain.summary import TargetSummary as TargetSummary

__all__ = ["Importance", "ModelSummary", "PartSummary", "PartialDependence", "TargetSummary"]
