"""Pictures of the random forest kernel's paper, made again; they need matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .drawing import finish, if_possible, panels
from .paper_methods import ARD, CLUSTERS, LINEAR, NOISELESS, OURS, PRINTED, RBF
from .report import Row

# Okabe & Ito's colors, told apart with any color vision; markers tell methods apart in print.
STYLES: dict[str, dict[str, Any]] = {
    LINEAR: {"color": "#6E6E6E", "marker": "v"},
    RBF: {"color": "#E69F00", "marker": "^"},
    ARD: {"color": "#D55E00", "marker": "s"},
    NOISELESS: {"color": "#CC79A7", "marker": "x"},
    PRINTED: {"color": "#56B4E9", "marker": "D"},
    OURS: {"color": "#0072B2", "marker": "o"},
    CLUSTERS: {"color": "#009E73", "marker": "P"},
}


@if_possible
def over_sets(scores: Mapping[str, Mapping[tuple[str, str], np.ndarray]], scale: str) -> Any:
    """A panel for each score (on such a scale): its mean over splits and two standard errors, a line for each set."""
    figure, drawn = panels(len(scores), 5.2 * len(scores) + 2.2, 4.6, sharey=True)
    for panel, (title, values) in zip(drawn, scores.items()):
        names, methods = (list(dict.fromkeys(column)) for column in zip(*values))
        for place, method in enumerate(methods):
            _row_of_points(panel, [values[name, method] for name in names], 0.11 * (place - 3), method)
        panel.set_yticks(range(len(names)), names)
        panel.set_xscale(scale, **({"linthresh": 1} if scale == "symlog" else {}))
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        finish(panel, title)
    drawn[0].invert_yaxis()
    figure.legend(*drawn[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    return figure


def _row_of_points(panel: Any, values: list[np.ndarray], shift: float, method: str) -> None:
    means = [float(of_set.mean()) for of_set in values]
    reach = [2 * float(of_set.std()) / max(len(of_set) - 1, 1) ** 0.5 for of_set in values]
    places = [place + shift for place in range(len(values))]
    panel.errorbar(means, places, xerr=reach, ls="", ms=6, lw=1.2, label=method, **STYLES[method])


@if_possible
def over_numbers(rows: list[Row], scores: Mapping[str, str]) -> Any:
    """A panel for each score (column and title) over numbers of partitions, with two standard errors."""
    figure, drawn = panels(len(scores), 5.4 * len(scores))
    for panel, (column, title) in zip(drawn, scores.items()):
        for method in dict.fromkeys(row["kernel"] for row in rows):
            line = [row for row in rows if row["kernel"] == method]
            m, mean, error = (np.array([row[key] for row in line]) for key in ("m", column, f"{column}: error"))
            panel.errorbar(m, mean, yerr=2 * error, label=method, ms=5, lw=1.6, elinewidth=0.8, **STYLES[method])
        _scale_numbers(panel, sorted({row["m"] for row in rows}), column.startswith("log density"))
        finish(panel, title)
    drawn[0].legend(frameon=False, fontsize=9)
    return figure


def _scale_numbers(panel: Any, numbers: list[int], is_symmetric: bool) -> None:
    """Numbers of partitions below, and on the left a scale that is linear between -1 and 1 for densities."""
    from matplotlib.ticker import FixedLocator

    panel.set(xscale="log", xlabel="partitions, m")
    panel.set_xticks(numbers, numbers)
    panel.tick_params(axis="x", which="minor", bottom=False)
    if is_symmetric:
        panel.set_yscale("symlog", linthresh=1)
        panel.yaxis.set_major_locator(FixedLocator([-10, -5, -2, *np.arange(-5, 5) / 5]))
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:.2g}")


@if_possible
def posteriors(
    x: np.ndarray, y: np.ndarray, grid: np.ndarray, found: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> Any:
    """Means and 95 % bands of the function, a panel for each kernel, below them their standard deviations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4 * len(found), 5.6), layout="constrained", dpi=150)
    drawn = figure.subplots(2, len(found), sharex=True, sharey="row", squeeze=False, height_ratios=(2.4, 1))
    for (upper, lower), (method, (mean, std)) in zip(drawn.T, found.items()):
        _band(upper, grid, mean, std, STYLES[method]["color"])
        upper.plot(x, y, "o", color="black", ms=3.2, label="data")
        lower.plot(grid, std, color=STYLES[method]["color"], lw=1.1, drawstyle="steps-mid")
        lower.set_xlabel("x")
        finish(upper, method)
        finish(lower, "standard deviation")
    drawn[1, 0].set_ylim(0, 1.05 * max(std.max() for _, std in found.values()))
    drawn[0, 0].legend(frameon=False, fontsize=9)
    return figure


def _band(panel: Any, grid: np.ndarray, mean: np.ndarray, std: np.ndarray, color: str) -> None:
    panel.fill_between(grid, mean - 2 * std, mean + 2 * std, color=color, alpha=0.25, lw=0, step="mid")
    panel.plot(grid, mean, color=color, lw=1.3, drawstyle="steps-mid", label="mean and 95 % band")


@if_possible
def planes(found: Mapping[str, Any], split: Any) -> Any:
    """Training rows (points) and held-out ones (rings) on two components, colored by their targets."""
    figure, drawn = panels(len(found), 3.7 * len(found) + 0.8, 3.9)
    span = dict(zip(("vmin", "vmax"), np.quantile(split.y, [0.02, 0.98]))) | {"cmap": "viridis"}
    for panel, (method, plane) in zip(drawn, found.items()):
        shade = panel.scatter(*plane.rows.T, c=split.y, s=12, lw=0, **span)
        panel.scatter(*plane.points.T, c=split.test_y, s=46, marker="D", edgecolors="black", linewidths=1.1, **span)
        panel.set(xlabel="first component", xticks=[], yticks=[])
        finish(panel, method)
    drawn[0].set_ylabel("second component")
    figure.colorbar(shade, ax=drawn[-1], label="standardized target", extend="both")
    figure.suptitle("Small points: training rows. Diamonds: held-out rows.", fontsize=9, x=0.01, ha="left")
    return figure
