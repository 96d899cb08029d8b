"""
The figures of "The Mondrian Kernel" (Balog et al. 2016, section 8), made again.

With `--data`, CPU is the paper's set; without, Friedman's first function takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator

from .mondrian_against_forest import kernel_against_forest
from .mondrian_approximation import kernel_error, prediction_error
from .mondrian_widths import width_recovery, width_search
from .report import Options, Table


def mondrian_figures(options: Options) -> Iterator[Table]:
    """Figures 5 to 10, each with a sentence on whether the paper's finding holds."""
    for figures in (kernel_error, prediction_error, width_recovery, width_search, kernel_against_forest):
        yield from figures(options)
