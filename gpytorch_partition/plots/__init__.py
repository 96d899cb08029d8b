"""Matplotlib figures (`pip install "gpytorch_partition[plot]"` for matplotlib)."""

from gpytorch_partition.plots.comparison import plot_calibration as plot_calibration
from gpytorch_partition.plots.comparison import plot_comparison as plot_comparison
from gpytorch_partition.plots.comparison import plot_predictions as plot_predictions
