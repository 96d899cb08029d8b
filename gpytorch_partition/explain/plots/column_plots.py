"""Plots of the columns of a model: their importance, and partial dependence on one of them."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import Any

import numpy as np

from gpytorch_partition.descriptions import counted
from gpytorch_partition.explain.plots.plot_style import (
    COLORS,
    GRAY,
    axes,
    legend_above,
    name,
    percent,
    set_title,
)

_FEW_VALUES = 5  # of a column, which are drawn as categories are
_MOST_TICKS = 400  # rows whose values are marked below a curve
_LEGIBLE = 45  # characters of names side by side, on axes of the usual width
_FEW_NAMES = 12  # which are drawn in their usual size
_LONGEST_NAME = 28  # characters


def plot_importance(importance: Any, *, ax: Any = None, most: int = 15) -> Any:
    """
    Draw each column's share of the explained variance as a bar, divided by parts of the kernel; permutations are dots.

    `importance(...).plot()` draws it.

    :param importance: An :class:`~gpytorch_partition.explain.Importance`.
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :param most: Number of columns shown, the most important ones. (Default: 15.)
    :return: The axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from gpytorch_partition.explain import Importance
        >>> found = Importance(("a", "b"), np.array([0.3, 0.7]), np.array([[0.3, 0.7]]), ("forest",))
        >>> [text.get_text() for text in plot_importance(found, ax=Figure().subplots()).get_yticklabels()]
        ['b', 'a']
    """
    order = importance.foremost(most)
    ax, places = axes(ax, 7.4, 1.8 + 0.28 * len(order)), np.arange(len(order))
    ends = {1: np.zeros(len(order)), -1: np.zeros(len(order))}  # of the bars so far, to the right and to the left
    for number, (part, shares) in enumerate(zip(importance.parts, importance.by_part[:, order])):
        for side, end in ends.items():
            widths = np.where(np.sign(shares) == side, shares, 0)
            label = name(part) if side == 1 else None
            ax.barh(places, widths, left=end, color=COLORS[number % len(COLORS)], height=0.7, label=label)
            end += widths
    ax.axvline(0, color=GRAY, linewidth=1)
    ax.set_yticks(places, [name(importance.columns[number]) for number in order])
    ax.invert_yaxis()
    left_out = len(importance.columns) - len(order)
    ax.set_xlabel("share of the explained variance" + f" ({counted(left_out, 'column')} not drawn)" * (left_out > 0))
    if importance.permutation is not None:
        _add_permutations(ax, importance, order, places)
    set_title(ax, "Importance of columns", above=0)
    if len(importance.parts) > 1:
        place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "frameon": False}
        ax.legend(fontsize=9, title="part of the kernel", title_fontsize=9, alignment="left", **place)
    ax.grid(alpha=0.25, axis="x")
    ax.set_axisbelow(True)
    return ax


def _add_permutations(ax: Any, importance: Any, order: np.ndarray, places: np.ndarray) -> None:
    """Add falls of R squared on an axis above, whose zero is that of the bars."""
    above = ax.twiny()
    values, errors = importance.permutation[order], importance.permutation_std[order]
    above.errorbar(values, places, xerr=errors, fmt="o", color="black", markersize=4, elinewidth=1)
    low, high = ax.get_xlim()
    most = max(float((values + errors).max()), 1e-12)
    least = min(float((values - errors).min()), 0.0)
    scale = 1.05 * max(most / high, -least / high)  # values below 0 take half of the axes at most
    low = min(low, 1.05 * least / scale)
    ax.set_xlim(low, high)
    above.set_xlim(scale * low, scale * high)
    above.set_xlabel(f"dots: {importance.measure.replace('R squared', 'R²')} where the column is permuted")


def plot_partial_dependence(found: Any, *, ax: Any = None, level: float = 0.9, target: str | None = None) -> Any:
    """
    Draw the average prediction against one column, with intervals of that average.

    `partial_dependence(...).plot()` draws it. Categories, and up to five values, are points. Ticks below a curve are
    the values of the rows. A note reports categories that are not drawn.

    :param found: A :class:`~gpytorch_partition.explain.PartialDependence`.
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :param level: Probability inside the pointwise intervals. (Default: 0.9.)
    :param target: Name of the targets, with their unit. (Default: None, their name in `fit`.)
    :return: The axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from gpytorch_partition.explain import PartialDependence
        >>> found = PartialDependence("age", np.arange(3.0), np.arange(3.0), np.ones(3), np.arange(3.0))
        >>> plot_partial_dependence(found, ax=Figure().subplots()).get_xlabel()
        'age'
    """
    grid = _as_dates(found.grid)
    is_number, is_date = grid.dtype.kind in "iuf", grid.dtype.kind == "M"
    has_order = is_number or is_date
    ax = axes(ax, 5.6 if has_order else max(5.6, 0.3 * len(grid)))
    ends, label = (
        (None, None) if found.std is None else found.interval(level),
        f"{100 * level:g} % interval of the mean",
    )
    if has_order and len(grid) > _FEW_VALUES:
        _draw_curve(ax, grid, found, ends, label)
    else:
        places = grid if is_date else np.arange(len(grid))
        half, label = (None, "mean over the rows") if found.std is None else (found.mean - ends[0], label)
        ax.errorbar(places, found.mean, half, fmt="o", color=COLORS[0], capsize=3, label=label)
        ax.margins(x=0.2 if len(places) < 4 else 0.05)
        if not is_date:
            _name_places(ax, [f"{value:.3g}" if is_number else str(value) for value in grid])
    if is_date:
        _shorten_dates(ax)
    set_title(ax, f"Partial dependence on {name(found.column)}")
    legend_above(ax)
    shown = name(found.target if target is None else target)
    ax.set_xlabel(name(found.column) + ("" if has_order else _left_out(found)))
    ax.set_ylabel(f"mean {shown}" if found.std is None else f"mean prediction of {shown}")
    ax.grid(alpha=0.25)
    return ax


def _draw_curve(ax: Any, grid: np.ndarray, found: Any, ends: Any, label: str) -> None:
    if found.std is not None:
        ax.fill_between(grid, *ends, color=COLORS[0], alpha=0.2, label=label, linewidth=0)
    ax.plot(grid, found.mean, color=COLORS[0], linewidth=1.8, label="mean over the rows")
    values = np.sort(_as_dates(found.values))
    values = values[(values >= grid.min()) & (values <= grid.max())]
    values = values[:: -(-len(values) // _MOST_TICKS)] if len(values) else values
    ticks = {"color": GRAY, "markersize": 7, "transform": ax.get_xaxis_transform()}
    ax.plot(values, np.full(len(values), 0.012), "|", **ticks)


def _left_out(found: Any) -> str:
    drawn, counts = set(found.grid.tolist()), Counter(found.values.tolist())
    others = max((count for value, count in counts.items() if value not in drawn), default=0)
    if not others:
        return ""
    known = [counts[value] for value in drawn if value in counts]
    which = ", the most frequent" if min(known, default=0) >= others else ""
    share = percent(sum(known) / counts.total())
    return f"\n({len(known):,} of {len(counts):,} categories{which}: {share} of the rows)"


def _as_dates(values: np.ndarray) -> np.ndarray:
    """Return objects that are dates as times on their own clock, without time zone; others as they are."""
    if values.dtype.kind != "O" or not len(values) or not all(isinstance(value, date) for value in values):
        return values
    clocks = [value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value for value in values]
    return np.array([np.datetime64(clock) for clock in clocks], dtype="datetime64[us]")


def _name_places(ax: Any, names: list[str]) -> None:
    names = [each if len(each) <= _LONGEST_NAME else f"{each[:18]}…{each[-(_LONGEST_NAME - 19) :]}" for each in names]
    is_slanted = sum(map(len, names)) > _LEGIBLE
    slant = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if is_slanted else {}
    size = None if len(names) <= _FEW_NAMES else 8
    ax.set_xticks(np.arange(len(names)), list(map(name, names)), fontsize=size, **slant)


def _shorten_dates(ax: Any) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=8)  # with fewer than three ticks it takes the next smaller unit
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
