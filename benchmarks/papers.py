"""
The figures and claims of "The Random Forest Kernel" (Davies & Ghahramani 2014), made again.

`docs/papers.md` has what was found, and where the other documents are. With `--data`, the paper's sets; without,
scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Iterator

from .paper_components import components, scaling
from .paper_equations import equation_9, equation_10
from .paper_noise import noise_only
from .paper_numbers import numbers
from .paper_posterior import posterior
from .paper_sets import sets
from .report import Options, Table


def papers(options: Options) -> Iterator[Table]:
    """Figures 1 to 6, equations 9 and 10, and property 4, each with a sentence on whether the paper's finding holds."""
    for part in (posterior, components, numbers, equation_9, equation_10, noise_only, sets, scaling):
        yield from part(options)
