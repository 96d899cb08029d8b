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


def critical_differences(
    ranks: Mapping[str, float], critical: float, gaps: Mapping[str, Mapping[str, float]], own: str
) -> Any:
    """
    Mean ranks with the difference that is significant (left), and how much worse than ours the others are (right).

    :param ranks: The mean rank of each method; less is better.
    :param critical: The difference that is significant.
    :param gaps: For each set, how much larger the negative log density of each other method is than ours.
    :param own: Our method.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.2), layout="constrained", dpi=150)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
    styles = dict(zip([method for method in ranks if method != own], _OTHERS + _OURS[1:]))
    _draw_ranks(left, ranks, critical, {own: _OURS[0]} | styles)
    _draw_gaps(right, gaps, own, styles)
    for panel in (left, right):
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(left=False)
    return figure


def _draw_ranks(panel: Any, ranks: Mapping[str, float], critical: float, styles: Mapping[str, tuple[str, str]]) -> None:
    order = sorted(ranks, key=lambda method: -ranks[method])
    best = ranks[order[-1]]
    panel.axvspan(best, best + critical, color="#EFEFEF", lw=0)
    for height, method in enumerate(order):
        color, marker = styles[method]
        panel.plot(ranks[method], height, marker, color=color, ms=9)
    panel.set_yticks(range(len(order)), order)
    panel.set_xlabel("mean rank of the negative log density\n(gray: not significantly different from the best)")
    panel.set_title("Ranks", loc="left", fontsize=11)
    panel.grid(axis="x", color="#E4E4E4", lw=0.8)
    panel.set_axisbelow(True)


def _draw_gaps(
    panel: Any, gaps: Mapping[str, Mapping[str, float]], own: str, styles: Mapping[str, tuple[str, str]]
) -> None:
    names = list(gaps)[::-1]
    panel.axvline(0, color=_OURS[0][0], lw=1.5)
    for height, name in enumerate(names):
        for method, gap in gaps[name].items():
            color, marker = styles[method]
            panel.plot(gap, height, marker, color=color, ms=6, alpha=0.85)
    panel.set_yticks(range(len(names)), names)
    panel.set_xscale("symlog", linthresh=0.1, linscale=1)
    panel.set_xlabel(f"nats worse (right) or better (left)\nthan the {own}")
    panel.set_title("Negative log density on each set", loc="left", fontsize=11)
    panel.grid(axis="x", color="#E4E4E4", lw=0.8)
    panel.set_axisbelow(True)
