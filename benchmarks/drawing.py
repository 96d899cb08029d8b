"""How pictures look: panels with a title on the left, a light grid and no box; nothing without matplotlib."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any

_GRID = "#E4E4E4"


def if_possible(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Nothing without matplotlib."""

    @wraps(draw)
    def drawn(*arguments: Any) -> Any:
        if find_spec("matplotlib") is None:
            print('[no picture: matplotlib is missing, pip install "gpytorch_partition[plot]"]', file=sys.stderr)
            return None
        return draw(*arguments)

    return drawn


def panels(number: int, width: float, height: float = 4.4, **options: Any) -> tuple[Any, list[Any]]:
    """A figure and so many panels beside each other; sizes in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    return figure, list(figure.subplots(1, number, squeeze=False, **options)[0])


def finish(panel: Any, title: str) -> None:
    """The title and the grid."""
    panel.set_title(title, loc="left", fontsize=11)
    panel.grid(color=_GRID, lw=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
