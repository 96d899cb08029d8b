"""What columns do: importance and partial dependence."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpytorch_partition.plots.style import COLORS, GRAY, NOTE, axes, legend_above, name, set_title

_FEW_VALUES = 5  # of a column, which are drawn as categories are
_MOST_TICKS = 400  # rows whose values are marked below a curve


def plot_importance(importance: Any, *, ax: Any = None, most: int = 15) -> Any:
    """
    The share of the explained variance of each column, a bar divided by parts of the kernel; permutations as dots.

    :param importance: What `importance()` of a regressor returned.
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :param most: Columns shown, those with the largest shares. (Default: 15.)
    :return: The axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from gpytorch_partition.estimators.importance import Importance
        >>> found = Importance(("a", "b"), np.array([0.3, 0.7]), np.array([[0.3, 0.7]]), ("forest",))
        >>> [text.get_text() for text in plot_importance(found, ax=Figure().subplots()).get_yticklabels()]
        ['b', 'a']
    """
    order = importance.order()[:most]
    ax = axes(ax, 7.4, 1.8 + 0.28 * len(order))
    places = np.arange(len(order))
    ends = {1: np.zeros(len(order)), -1: np.zeros(len(order))}  # of the bars so far, to the right and to the left
    for number, (part, shares) in enumerate(zip(importance.parts, importance.by_part)):
        for side, end in ends.items():
            widths = np.where(np.sign(shares[order]) == side, shares[order], 0)
            color = COLORS[number % len(COLORS)]
            ax.barh(places, widths, left=end, color=color, height=0.7, label=name(part) if side == 1 else None)
            end += widths
    ax.axvline(0, color=GRAY, linewidth=1)
    ax.set_yticks(places, [name(importance.columns[number]) for number in order])
    ax.invert_yaxis()
    ax.set_xlabel("share of the explained variance")
    is_sum = len(importance.parts) > 1
    if importance.permutation is not None:
        _add_permutations(ax, importance, order, places)
    else:
        set_title(ax, "Importance of columns", above=0)
    if is_sum:
        place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "frameon": False}
        ax.legend(fontsize=9, title="part of the kernel", title_fontsize=9, alignment="left", **place)
    left_out = len(importance.columns) - len(order)
    if left_out:
        ax.text(0.98, 1.01, f"{left_out} more columns", ha="right", transform=ax.transAxes, **NOTE)
    ax.grid(alpha=0.25, axis="x")
    ax.set_axisbelow(True)
    return ax


def _add_permutations(ax: Any, importance: Any, order: np.ndarray, places: np.ndarray) -> None:
    """Falls of R squared on an axis above, whose zero is that of the bars."""
    above = ax.twiny()
    values, errors = importance.permutation[order], importance.permutation_std[order]
    above.errorbar(values, places, xerr=errors, fmt="o", color="black", markersize=4, elinewidth=1)
    low, high = ax.get_xlim()
    most = max(float((values + errors).max()), 1e-12)
    least = min(float((values - errors).min()), 0.0)
    scale = max(most / high, least / low if low < 0 else 0.0) * 1.05
    if least < 0 <= low:
        ax.set_xlim(0.05 * -high, high)
        low = -0.05 * high
        scale = max(scale, least / low)
    above.set_xlim(scale * low, scale * high)
    above.set_xlabel("dots: fall of R² where the column is permuted")
    ax.set_title("Importance of columns", loc="left", fontsize=11, fontweight="bold", pad=10)


def plot_partial_dependence(found: Any, *, ax: Any = None, level: float = 0.9, target: str = "target") -> Any:
    """
    The average prediction against one column, with intervals of that average; a point each for categories and for up
    to five values. Ticks below the curve are the values of the rows.

    :param found: What `partial_dependence` of a regressor returned.
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :param level: Probability inside the pointwise intervals. (Default: 0.9.)
    :param target: What the targets are, with their unit. (Default: `"target"`.)
    :return: The axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from gpytorch_partition.estimators.partial_dependence import PartialDependence
        >>> found = PartialDependence("age", np.arange(3.0), np.arange(3.0), np.ones(3), np.arange(3.0))
        >>> plot_partial_dependence(found, ax=Figure().subplots()).get_xlabel()
        'age'
    """
    ax, (low, high) = axes(ax), found.interval(level)
    label = f"{100 * level:g} % interval of the mean"
    is_number, is_date = found.grid.dtype.kind in "iuf", found.grid.dtype.kind == "M"
    if (is_number or is_date) and len(found.grid) > _FEW_VALUES:
        ax.fill_between(found.grid, low, high, color=COLORS[0], alpha=0.2, linewidth=0, label=label)
        ax.plot(found.grid, found.mean, color=COLORS[0], linewidth=1.8, label="mean over the rows")
        _mark_values(ax, found)
        if is_date:
            _shorten_dates(ax)
    else:
        places = np.arange(len(found.grid))
        ax.errorbar(places, found.mean, found.mean - low, fmt="o", color=COLORS[0], capsize=3, label=label)
        names = [f"{value:.3g}" if is_number else name(value) for value in found.grid]
        ax.set_xticks(places, names, rotation=45 if len(places) > 6 else 0)
        ax.margins(x=0.2 if len(places) < 4 else 0.05)
    set_title(ax, f"Partial dependence on {name(found.column)}")
    legend_above(ax)
    ax.set(xlabel=name(found.column), ylabel=f"mean prediction of {name(target)}")
    ax.grid(alpha=0.25)
    return ax


def _shorten_dates(ax: Any) -> None:
    """Ticks of dates that say what changes only, so that they do not run into each other."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _mark_values(ax: Any, found: Any) -> None:
    """Ticks where rows have their values, within the grid."""
    values = np.sort(found.values[(found.values >= found.grid.min()) & (found.values <= found.grid.max())])
    values = values[:: -(-len(values) // _MOST_TICKS)] if len(values) else values
    ax.plot(values, np.full(len(values), 0.012), "|", color=GRAY, markersize=7, transform=ax.get_xaxis_transform())
