"""Pictures of the tutorial on kernels and ensembles; they need matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from gpytorch_partition.estimators.lago import ALPHAS

from .drawing import finish, if_possible
from .report import Row

# Okabe & Ito's colors, told apart with any color vision; markers and dashes tell lines apart in print.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MORE_COLORS = ("#882255", "#8C6D31")
_MARKERS = "osD^vPX"


@if_possible
def components(x: np.ndarray, scores: Mapping[str, np.ndarray]) -> Any:
    """The rows, and their first two components by each kernel, colored by the distance from the origin."""
    figure, panels = _grid(1 + len(scores), 4, 3.2)
    radii = np.linalg.norm(x, axis=1)
    for panel, (name, values) in zip(panels, {"original data": x, **scores}.items()):
        dots = panel.scatter(*values[:, :2].T, c=radii, cmap="viridis", s=14, lw=0)
        labels = ("x1", "x2") if name == "original data" else ("first component", "second component")
        panel.set_xlabel(labels[0], fontsize=9)
        panel.set_ylabel(labels[1], fontsize=9)
        finish(panel, name)
        panel.title.set_fontsize(9.5)
    figure.colorbar(dots, ax=panels, label="distance from the origin", shrink=0.8)
    return figure


@if_possible
def maps(
    errors: Mapping[str, np.ndarray], axes: Mapping[str, tuple[tuple[str, Sequence], tuple[str, Sequence]]], name: str
) -> Any:
    """Test errors over two parameters for each learner, on one scale of colors."""
    from matplotlib.colors import LogNorm

    figure, panels = _grid(len(errors), 3, 4.6)
    low, high = min(grid.min() for grid in errors.values()), max(grid.max() for grid in errors.values())
    for panel, (learner, grid) in zip(panels, errors.items()):
        (down, down_values), (across, across_values) = axes[learner]
        image = panel.imshow(grid, cmap="viridis_r", norm=LogNorm(low, high), aspect="auto", origin="lower")
        for (i, j), value in np.ndenumerate(grid):
            dark = np.log(value / low) > 0.5 * np.log(high / low)
            panel.text(j, i, f"{value:.1f}", ha="center", va="center", fontsize=7, color="white" if dark else "black")
        panel.set_xticks(range(len(across_values)), [f"{value:g}" for value in across_values], rotation=45)
        panel.set_yticks(range(len(down_values)), [f"{value:g}" for value in down_values])
        panel.set(xlabel=across, ylabel=down)
        panel.set_title(learner, loc="left", fontsize=11)
    ticks = [value for value in (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40) if low <= value <= high]
    bar = figure.colorbar(image, ax=panels, label=f"test error (%), {name}", shrink=0.8)
    bar.set_ticks(ticks, labels=[str(value) for value in ticks])
    bar.minorticks_off()
    return figure


@if_possible
def criterion(sizes: np.ndarray, values: np.ndarray, num_true: np.ndarray) -> Any:
    """The AIC of every subset over its size, marked by how many true columns it has."""
    figure, (panel,) = _grid(1, 1, 4.4, width=9.2)
    words = {3: "all three true columns", 2: "two of them", 1: "one", 0: "none"}
    shift = np.random.default_rng(0).uniform(-0.18, 0.18, len(sizes))
    for (number, label), color, marker in zip(words.items(), _COLORS, "ox+^"):
        some = num_true == number
        face = {"facecolors": "none"} if marker in "o^" else {}
        style = {"marker": marker, "label": label, **_edge(color, face)}
        panel.scatter(sizes[some] + shift[some], values[some], s=22, lw=1, **style)
    best = int(np.argmin(values))
    low, high = values.min(), values.max()
    panel.annotate(
        f"least: {sizes[best]} columns",
        (sizes[best] + shift[best], low),
        (0.2, low - 0.03 * (high - low)),
        fontsize=9,
        arrowprops={"arrowstyle": "-", "lw": 0.8},
    )
    panel.set(xlabel="columns of the subset", ylabel="AIC", ylim=(low - 0.08 * (high - low), None))
    finish(panel, "All 1,024 subsets of the toy problem")
    legend = {"bbox_to_anchor": (1, 1), "loc": "upper left", "title": "subsets with"}
    panel.legend(frameon=False, fontsize=9, title_fontsize=9, **legend)
    panel.set_xticks(range(0, int(sizes.max()) + 1))
    return figure


def _edge(color: str, face: dict[str, str]) -> dict[str, str]:
    """Hollow markers have an edge only."""
    return {"edgecolors": color, **face} if face else {"color": color}


@if_possible
def importances(shares: Mapping[tuple[str, int], np.ndarray], true: np.ndarray) -> Any:
    """A bar for each column: rows of panels by kind of vote, columns by number of universes."""
    kinds = list(dict.fromkeys(kind for kind, _ in shares))
    numbers = list(dict.fromkeys(number for _, number in shares))
    figure, panels = _grid(len(kinds) * len(numbers), len(numbers), 2.9, sharey=True)
    for panel, ((kind, number), values) in zip(panels, shares.items()):
        colors = [_COLORS[0] if column in true else "#BDBDBD" for column in range(len(values))]
        panel.bar(range(1, len(values) + 1), values, color=colors)
        panel.set(xticks=range(1, len(values) + 1), ylim=(0, 1.05))
        finish(panel, f"B = {number}")
        if number == numbers[0]:
            panel.set_ylabel(_wrapped(f"share of the votes,\n{kind}"), fontsize=8)
    for panel in panels[-len(numbers) :]:
        panel.set_xlabel("column (blue: true)")
    return figure


def _wrapped(text: str) -> str:
    return text.replace(": ", ":\n").replace("this package's", "\nthis package's")


@if_possible
def rates(rows: list[Row], group: str, method: str, value: str) -> Any:
    """A dot for each method on each problem."""
    groups = list(dict.fromkeys(row[group] for row in rows))
    methods = list(dict.fromkeys(row[method] for row in rows))
    figure, (panel,) = _grid(1, 1, 3.6, width=10)
    for name, color, marker in zip(methods, _COLORS, _MARKERS):
        line = {row[group]: row[value] for row in rows if row[method] == name}
        panel.plot([line[key] for key in groups], range(len(groups)), marker, color=color, ms=8, alpha=0.85, label=name)
    panel.set_yticks(range(len(groups)), groups)
    panel.set(xlabel=value, xlim=(-3, 103), ylim=(len(groups) - 0.5, -0.5))
    finish(panel, "Selections of columns")
    panel.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


@if_possible
def hits(curves: Mapping[str, Mapping[str, np.ndarray]]) -> Any:
    """Shares of the rare rows found over rows looked at, up to five times as many as are rare: a panel a problem."""
    figure, panels = _grid(len(curves), 3, 3.3)
    for panel, (name, lines) in zip(panels, curves.items()):
        number = round(next(iter(lines.values()))[-1])
        most = min(5 * number, len(next(iter(lines.values()))))
        panel.plot([0, number, most], [0, 100, 100], color="#BDBDBD", lw=1, label="perfect")
        for (method, curve), color in zip(lines.items(), (*_COLORS, *_MORE_COLORS)):
            style = "-" if "LAGO" in method else "-." if "partition" in method else "--"
            panel.plot(
                range(most + 1), 100 * np.append(0, curve[:most]) / number, style, color=color, lw=1.5, label=method
            )
        panel.set(ylim=(0, 103), xlim=(0, most))
        finish(panel, name)
        panel.title.set_fontsize(9.5)
    for panel in panels[:: min(3, len(panels))]:
        panel.set_ylabel("rare rows found (%)")
    for panel in panels[-min(3, len(panels)) :]:
        panel.set_xlabel("rows looked at (test half)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return figure


@if_possible
def precisions(grids: Mapping[str, np.ndarray], numbers: Sequence[int]) -> Any:
    """Cross-validated average precision over alpha, a line for each K, a panel for each problem."""
    from matplotlib import colormaps

    figure, panels = _grid(len(grids), 3, 3.1)
    shades = colormaps["viridis"](np.linspace(0, 0.9, len(numbers)))
    for panel, (name, grid) in zip(panels, grids.items()):
        for number, line, shade in zip(numbers, grid, shades):
            panel.plot(ALPHAS, line, color=shade, lw=1.4, label=f"K = {number}")
        panel.set(xscale="log", ylim=(0, None))
        panel.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
        finish(panel, name)
        panel.title.set_fontsize(9.5)
    for panel in panels[:: min(3, len(panels))]:
        panel.set_ylabel("average precision")
    for panel in panels[-min(3, len(panels)) :]:
        panel.set_xlabel("alpha")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=8, frameon=False, fontsize=9)
    return figure


def _grid(number: int, most: int, height: float, width: float | None = None, **options: Any) -> tuple[Any, list[Any]]:
    """So many panels, at most so many in a row."""
    from matplotlib.figure import Figure

    across = min(number, most)
    down = ceil(number / across)
    figure = Figure(figsize=(width or 1.05 * height * across + 1, height * down), layout="constrained", dpi=150)
    panels = list(figure.subplots(down, across, squeeze=False, **options).ravel())
    for panel in panels[number:]:
        panel.set_axis_off()
    return figure, panels[:number]
