"""The look of pictures: panels with a title on the left, a light grid and no box; they need matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from gpytorch_partition.explain.plots_of_predictions import COLORS as PALETTE
from gpytorch_partition.explain.plots_of_predictions import GRAY

# The package's palette of six, and more; markers tell lines apart in print.
COLORS = (*PALETTE[:6], "#000000", "#882255", "#8C6D31", GRAY, "#B8A800")
MARKERS = "osD^vPXdph*"
_DURATIONS = {0.1: "0.1 s", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36000: "10 h"}

Line = list[tuple[float, float]]


def panels(number: int, height: float, width: float, most: int | None = None, **options: Any) -> tuple[Any, list[Any]]:
    """Return a figure and so many panels of these inches, at most so many in a row."""
    from matplotlib.figure import Figure

    across = min(number, most or number)
    down = ceil(number / across)
    figure = Figure(figsize=(width * across + 1, height * down), layout="constrained", dpi=150)
    drawn = list(figure.subplots(down, across, squeeze=False, **options).ravel())
    for panel in drawn[number:]:
        panel.set_axis_off()
    return figure, drawn[:number]


def finish(panel: Any, title: str, legend: bool = False, **settings: Any) -> None:
    """Set title, grid and properties, and plain numbers on logarithmic axes."""
    panel.set(**settings)
    panel.set_title(title, loc="left", fontsize=10)
    panel.grid(color="#E4E4E4", lw=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    for axis in (panel.xaxis, panel.yaxis):
        if axis.get_scale() == "log":
            plain_ticks(axis)
    if legend:
        panel.legend(frameon=False, fontsize=9)


def plain_ticks(axis: Any) -> None:
    """Write numbers such as 0.1 and 20 rather than powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def styles(names: Any) -> dict[str, dict[str, str]]:
    """Return a color and a marker for each name."""
    return {name: {"color": color, "marker": marker} for name, color, marker in zip(names, COLORS, MARKERS)}


def legend_below(figure: Any, panel: Any, columns: int) -> None:
    options = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
    figure.legend(*panel.get_legend_handles_labels(), **options)


def totals(ours: Mapping[str, Line], others: Mapping[str, Line], title: str) -> Any:
    """Return a figure of seconds over numbers of rows: solid lines for ours, dashed ones for others."""
    figure, (panel,) = panels(1, 5.6, 9)
    looks = styles([*ours, *others])
    for name, line in {**ours, **others}.items():
        solid = {"ls": "-", "lw": 2} if name in ours else {"ls": "--", "lw": 1.5, "markerfacecolor": "white"}
        panel.plot(*zip(*line), label=name, ms=6, **looks[name], **solid)
    finish(panel, title, xscale="log", yscale="log", xlabel="training rows")
    low, high = panel.get_ylim()
    ticks = [value for value in _DURATIONS if low <= value <= high]
    panel.set_yticks(ticks, [_DURATIONS[value] for value in ticks])
    panel.tick_params(which="minor", left=False)
    ends = sorted(panel.lines, key=lambda line: (line.get_xdata()[-1], line.get_ydata()[-1]), reverse=True)
    figure.legend(handles=ends, loc="outside right upper", frameon=False, fontsize=9, handlelength=3.2)
    return figure
