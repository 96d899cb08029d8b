"""Plots by matplotlib (`pip install "gpytorch_partition[plot]"`)."""

from gpytorch_partition.explain.plots_of_models import (
    plot_cells,
    plot_importance,
    plot_kernel_slice,
    plot_lifetimes,
    plot_partial_dependence,
)
from gpytorch_partition.explain.plots_of_predictions import (
    plot_calibration,
    plot_comparison,
    plot_coverage,
    plot_predictions,
    plot_residuals,
    plot_truth,
)

__all__ = [
    "plot_calibration",
    "plot_cells",
    "plot_comparison",
    "plot_coverage",
    "plot_importance",
    "plot_kernel_slice",
    "plot_lifetimes",
    "plot_partial_dependence",
    "plot_predictions",
    "plot_residuals",
    "plot_truth",
]
