"""
The figures of "Kernels and Ensembles" (Zhu 2008), made again, and its two methods beside others.

With `--data`, spambase is the tutorial's set; without, scikit-learn's breast cancer set takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator

from .ensemble_figures import kernel_components, sensitivity
from .ensemble_speed import speed
from .evolution_figures import criterion_gap, exact_rates, universes
from .rare_class import rankings
from .report import Options, Table


def kernels_and_ensembles(options: Options) -> Iterator[Table]:
    """Figures 2, 3, 5 and 6, each with a sentence on whether the tutorial's finding holds; rare classes; seconds."""
    for figures in (kernel_components, sensitivity, criterion_gap, universes, exact_rates, rankings, speed):
        yield from figures(options)
