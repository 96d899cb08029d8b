"""Pictures of what was measured; they need matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Okabe & Ito's colors, told apart with any color vision, and a gray; markers tell lines apart in print.
_OURS = list(zip(("#0072B2", "#D55E00", "#009E73", "#CC79A7"), "osD^"))
_OTHERS = list(zip(("#E69F00", "#56B4E9", "#6E6E6E", "#000000", "#B8A800", "#7A3B00"), "osDv^P"))
_GRAY = "#6E6E6E"
_DURATIONS = {0.1: "0.1 s", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36000: "10 h"}

Line = list[tuple[int, float]]  # sizes and seconds


def totals(ours: Mapping[str, Line], others: Mapping[str, Line], title: str) -> Any:
    """
    Seconds over numbers of rows, both logarithmic: solid lines for ours (up to 4), dashed ones for others (up to 6).

    The legend lists the methods from top to bottom as their lines end.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.6), layout="constrained", dpi=150)
    panel = figure.subplots()
    for (name, line), (color, marker) in zip(ours.items(), _OURS):
        panel.plot(*zip(*line), "-", marker=marker, color=color, label=name, ms=6, lw=2)
    for (name, line), (color, marker) in zip(others.items(), _OTHERS):
        panel.plot(*zip(*line), "--", marker=marker, color=color, label=name, ms=6, lw=1.5, markerfacecolor="white")
    panel.set(xscale="log", yscale="log", xlabel="training rows")
    _label_durations(panel)
    panel.set_title(title, loc="left", fontsize=11)
    panel.grid(color="#E4E4E4", lw=0.8)
    panel.spines[["top", "right"]].set_visible(False)
    handles = sorted(panel.lines, key=_height_at_the_end, reverse=True)
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=9, handlelength=3.2)
    return figure


def _label_durations(panel: Any) -> None:
    """Seconds, minutes and hours, between the shortest and the longest line."""
    low, high = panel.get_ylim()
    ticks = [value for value in _DURATIONS if low <= value <= high]
    panel.set_yticks(ticks, [_DURATIONS[value] for value in ticks])
    panel.tick_params(which="minor", left=False)
    panel.tick_params(color=_GRAY)


def _height_at_the_end(line: Any) -> tuple[float, float]:
    """Longer lines first, then higher ones."""
    return line.get_xdata()[-1], line.get_ydata()[-1]
