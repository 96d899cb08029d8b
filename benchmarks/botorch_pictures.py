"""Regrets of Bayesian optimization; needs matplotlib."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

# Okabe & Ito's colors, told apart with any color vision; markers tell lines apart in print.
_STYLES = (
    {"color": "#0072B2", "marker": "o"},
    {"color": "#D55E00", "marker": "D"},
    {"color": "#6E6E6E", "marker": "s"},
)
_NUM_COLUMNS = 4

Line = list[tuple[float, float]]  # seconds and regret


def regrets(lines: Mapping[str, Mapping[str, Line]], instant: str) -> Any:
    """
    A panel of regret over seconds for each problem.

    :param lines: For each problem the lines of the methods.
    :param instant: The method that takes no seconds: its last regret is a horizontal line.
    """
    if find_spec("matplotlib") is None:
        print('[no botorch_optimizers.png: pip install "gpytorch_partition[plot]"]', file=sys.stderr)
        return None
    from matplotlib.figure import Figure

    num_rows = -(-(len(lines) + 1) // _NUM_COLUMNS)
    figure = Figure(figsize=(12, 3.0 * num_rows), layout="constrained", dpi=150)
    panels = figure.subplots(num_rows, _NUM_COLUMNS).flat
    names = list(dict.fromkeys(name for each in lines.values() for name in each))
    styles = dict(zip(names, _STYLES))
    for panel, (problem, methods) in zip(panels, lines.items()):
        for name, line in methods.items():
            _draw(panel, name, line, styles[name], name == instant)
        panel.set_title(problem, loc="left", fontsize=11)
        panel.set_xlabel("seconds")
        panel.grid(color="#E4E4E4", lw=0.8)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_ylim(bottom=0)
    legend = figure.axes[len(lines)]
    for panel in figure.axes[len(lines) :]:
        panel.set_axis_off()
    legend.legend(*figure.axes[0].get_legend_handles_labels(), loc="center", frameon=False, title="median regret")
    return figure


def _draw(panel: Any, name: str, line: Line, style: dict[str, str], is_instant: bool) -> None:
    if is_instant:
        panel.axhline(line[-1][1], color=style["color"], ls=":", lw=1.5, label=f"{name}, all points")
    else:
        panel.plot(*zip(*line), label=name, ms=5, lw=1.8, **style)
