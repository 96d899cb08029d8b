"""Pictures of the Mondrian kernel beside other features and the forest; they need matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .drawing import finish as _finish
from .drawing import if_possible as _if_possible
from .drawing import panels as _panels
from .report import Row

MONDRIAN, BINNING, FOURIER = "Mondrian kernel", "random binning", "random Fourier features"
EXACT, FOREST = "exact Laplace kernel", "Mondrian forest"

# Okabe & Ito's colors, told apart with any color vision; markers tell lines apart in print.
_STYLES = {
    MONDRIAN: {"color": "#0072B2", "marker": "o"},
    BINNING: {"color": "#009E73", "marker": "s"},
    FOURIER: {"color": "#D55E00", "marker": "D"},
    FOREST: {"color": "#D55E00", "marker": "D"},
}
_GRAY = "#6E6E6E"
# How far below the largest log likelihood a panel reaches: shorter lifetimes are millions below.
_NATS = 6_000


@_if_possible
def approximation(rows: list[Row], what: str, title: str) -> Any:
    """Mean errors over numbers of features, with standard deviations; the exact kernel as a horizontal line."""
    figure, (panel,) = _panels(1, 7.6)
    for method in dict.fromkeys(row["features"] for row in rows):
        line = [row for row in rows if row["features"] == method]
        if line[0]["M"] is None:
            panel.axhline(
                line[0]["mean error"], color="black", lw=1.2, ls=":", label=f"{method}: {line[0]['mean error']:.2f}"
            )
            continue
        m, mean, spread = (np.array([row[name] for row in line]) for name in ("M", "mean error", "standard deviation"))
        panel.plot(m, mean, label=method, ms=5, lw=1.8, **_STYLES[method])
        panel.fill_between(m, mean - spread, mean + spread, color=_STYLES[method]["color"], alpha=0.15, lw=0)
    panel.set(xlabel="nonzero features per point, M", ylabel=what, yscale="log")
    _plain_ticks(panel.yaxis)
    _finish(panel, title)
    panel.legend(frameon=False, fontsize=9)
    return figure


@_if_possible
def recovery(lifetimes: np.ndarray, likelihoods: np.ndarray, errors: np.ndarray, truth: float) -> Any:
    """Validation errors and likelihoods over lifetimes, and where they are best."""
    figure, panels = _panels(2, 10.5)
    values = (errors, likelihoods)
    best = (int(np.argmin(errors)), int(np.argmax(likelihoods)))
    words = (("validation error (%)", "least"), ("log marginal likelihood", "largest"))
    for panel, line, place, (what, extreme) in zip(panels, values, best, words):
        panel.axvline(truth, color=_GRAY, lw=1.2, ls="--", label=f"true lifetime {truth:g}")
        panel.plot(lifetimes, line, color=_STYLES[MONDRIAN]["color"], marker=".", lw=1.5)
        panel.plot(
            lifetimes[place], line[place], "o", color="#D55E00", ms=8, label=f"{extreme} at {lifetimes[place]:.3g}"
        )
        panel.set(xscale="log", xlabel="lifetime")
        _plain_ticks(panel.xaxis)
        _finish(panel, what)
        panel.legend(frameon=False, fontsize=9)
    panels[1].set_ylim(likelihoods.max() - _NATS, likelihoods.max() + 0.1 * _NATS)
    return figure


@_if_possible
def trees_and_widths(
    rows: list[Row], lines: Mapping[int, dict[str, np.ndarray]], lifetimes: np.ndarray, truth: float
) -> Any:
    """Lifetimes found over numbers of trees, and the errors on the way to them, with a ring at one cell per row."""
    figure, (found, errors) = _panels(2, 11.5)
    found.axhline(truth, color=_GRAY, lw=1.2, ls="--", label=f"true lifetime {truth:g}")
    ways = {
        "lifetime by likelihood": ("true noise", "#D55E00", "o"),
        "by likelihood, most likely noise": ("most likely noise at each lifetime", "#0072B2", "s"),
    }
    for column, (words, color, marker) in ways.items():
        found.plot([row["trees"] for row in rows], [row[column] for row in rows], marker, color=color, alpha=0.6, ms=7)
        found.plot([], [], marker, color=color, label=words)
    found.set(xscale="log", yscale="log", xlabel="trees")
    _plain_ticks(found.xaxis)
    _plain_ticks(found.yaxis)
    _finish(found, "lifetime of the largest likelihood")
    found.legend(frameon=False, fontsize=9)
    shades = ("#56B4E9", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#000000")
    for (num_trees, line), color in zip(lines.items(), shades):
        errors.plot(lifetimes, line["given"], color=color, lw=1.5, label=f"{num_trees} trees")
        errors.plot(lifetimes, line["chosen"], color=color, lw=1.0, ls=":")
        threshold = np.exp(np.interp(0, np.log(line["cells"]), np.log(lifetimes)))
        at = np.interp(threshold, lifetimes, line["given"])
        errors.plot(threshold, at, "o", mfc="none", color=color, ms=8)
    errors.plot([], [], "o", mfc="none", color=_GRAY, label="as many cells as rows")
    errors.plot([], [], ":", color=_GRAY, label="most likely noise")
    errors.set(xscale="log", xlabel="lifetime")
    _plain_ticks(errors.xaxis)
    _finish(errors, "validation error (%)")
    errors.legend(frameon=False, fontsize=9)
    return figure


@_if_possible
def classification_errors(
    widths: Mapping[str, tuple[np.ndarray, np.ndarray]], arrivals: Mapping[str, list[tuple[int, float, float]]]
) -> Any:
    """Held-out errors over lifetimes, and test errors over rows that arrive."""
    figure, (by_width, by_rows) = _panels(2, 11.5)
    for (name, (lifetimes, errors)), color in zip(widths.items(), ("#0072B2", "#D55E00")):
        best = int(np.argmin(errors))
        by_width.plot(lifetimes, errors, ".-", color=color, lw=1.5, label=f"{name}, least at {lifetimes[best]:.3g}")
        by_width.plot(lifetimes[best], errors[best], "o", color=color, ms=8)
        numbers, going_on, anew = zip(*arrivals[name])
        by_rows.plot(numbers, going_on, "o-", color=color, lw=1.5, ms=4, label=f"{name}, one pass over new rows")
        by_rows.plot(numbers, anew, "s:", color=color, lw=1.2, ms=4, label=f"{name}, fitted anew")
    by_width.set(xscale="log", xlabel="lifetime", ylim=(0, None))
    by_rows.set(xscale="log", xlabel="rows so far", ylim=(0, None))
    for panel, title in ((by_width, "error of held-out rows (%)"), (by_rows, "test error as rows arrive (%)")):
        _plain_ticks(panel.xaxis)
        _finish(panel, title)
        panel.legend(frameon=False, fontsize=9)
    return figure


@_if_possible
def searches(trials: Mapping[tuple[str, str], list[tuple[float, float, float]]], name: str, num_features: int) -> Any:
    """The least validation error so far over seconds: one panel for each way to find weights."""
    figure, panels = _panels(2, 10.5, sharey=True)
    words = {"exact": "exact weights", "descent": "stochastic gradient descent"}
    for panel, learner in zip(panels, words):
        for (method, own), line in trials.items():
            if own == learner:
                times, _, errors = (np.array(values) for values in zip(*sorted(line)))
                panel.step(
                    times, np.minimum.accumulate(errors), where="post", label=method, ms=4, lw=1.8, **_STYLES[method]
                )
        panel.set(xscale="log", xlabel="seconds")
        _plain_ticks(panel.xaxis)
        _finish(panel, f"{name}, M = {num_features}: {words[learner]}")
    panels[0].legend(frameon=False, fontsize=9, loc="lower left")  # where no line is
    panels[0].set_ylabel("least validation error so far (%)")
    panels[0].set_ylim(bottom=0)
    return figure


@_if_possible
def against_forest(rows: list[Row], name: str, num_trees: int) -> Any:
    """Training and test errors of kernel and forest over lifetimes."""
    figure, (panel,) = _panels(1, 7.6)
    lifetimes = [row["lifetime"] for row in rows]
    for model, short in ((MONDRIAN, "kernel"), (FOREST, "forest")):
        for part, style in (("test", "-"), ("training", "--")):
            errors = [row[f"{part} error of the {short} (%)"] for row in rows]
            panel.plot(lifetimes, errors, style, label=f"{model}, {part}", ms=5, lw=1.8, **_STYLES[model])
    panel.set(xscale="log", xlabel="lifetime", ylabel="error (%)", ylim=(0, None))
    _finish(panel, f"{name}, {num_trees} trees")
    panel.legend(frameon=False, fontsize=9)
    return figure


@_if_possible
def histograms(weights: Mapping[str, np.ndarray], title: str) -> Any:
    """Weights of several models, a panel each, with the same range."""
    figure, panels = _panels(len(weights), 4.2 * len(weights), sharex=True, sharey=True)
    reach = max(float(np.quantile(np.abs(values), 0.99)) for values in weights.values())
    for panel, (model, values) in zip(panels, weights.items()):
        share = np.full(len(values), 100 / len(values))
        color = next(style["color"] for name, style in _STYLES.items() if model.startswith(name))
        panel.hist(values, bins=np.linspace(-reach, reach, 61), weights=share, color=color)
        panel.set_xlabel("weight of a cell, as a deviation\nfrom the mean target")
        _finish(panel, model)
    panels[0].set_ylabel("share of the cells (%)")
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    return figure


def _plain_ticks(axis: Any) -> None:
    """Numbers such as 0.1 and 20 rather than powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
