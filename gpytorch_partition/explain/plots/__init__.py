"""Plots by matplotlib (`pip install "gpytorch_partition[plot]"`)."""

from gpytorch_partition.explain.plots.column_plots import plot_importance as plot_importance
from gpytorch_partition.explain.plots.column_plots import plot_partial_dependence as plot_partial_dependence
from gpytorch_partition.explain.plots.kernel_plots import plot_cells as plot_cells
from gpytorch_partition.explain.plots.kernel_plots import plot_kernel_slice as plot_kernel_slice
from gpytorch_partition.explain.plots.kernel_plots import plot_lifetimes as plot_lifetimes
from gpytorch_partition.explain.plots.prediction_plots import plot_calibration as plot_calibration
from gpytorch_partition.explain.plots.prediction_plots import plot_comparison as plot_comparison
from gpytorch_partition.explain.plots.prediction_plots import plot_coverage as plot_coverage
from gpytorch_partition.explain.plots.prediction_plots import plot_predictions as plot_predictions
from gpytorch_partition.explain.plots.prediction_plots import plot_residuals as plot_residuals
from gpytorch_partition.explain.plots.prediction_plots import plot_truth as plot_truth

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
