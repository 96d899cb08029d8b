"""
Plots by matplotlib (`pip install "gpytorch_partition[plot]"`), here those of models.

Each is drawn on `ax`, a matplotlib `Axes` (default: new ones), which is returned.
"""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.descriptions import counted
from gpytorch_partition.explain.plots_of_predictions import (
    COLORS,
    GRAY,
    axes,
    legend_above,
    limits_without_outliers,
    name,
    plot_calibration,
    plot_comparison,
    plot_coverage,
    plot_predictions,
    plot_residuals,
    plot_truth,
    set_title,
)

__all__ = [
    "plot_calibration",
    "plot_cells",
    "plot_comparison",
    "plot_coverage",
    "plot_importance",
    "plot_kernel_slice",
    "plot_lifetimes",
    "plot_partial_dependence",
    "plot_predictions",
    "plot_residuals",
    "plot_truth",
]

_FEW_VALUES = 5  # of a column, which are drawn as categories are
_MOST_TICKS = 400  # rows whose values are marked below a curve
_LEGIBLE = 45  # characters of names side by side, on axes of the usual width
_FEW_NAMES = 12  # which are drawn in their usual size
_LONGEST_NAME = 28  # characters
_GRID = 250  # points along each side of a map
_SLICE = 400  # points of a curve
_MARGIN = 0.05  # of the range of the rows, beyond them
_UNLIKELY = 1e-4  # posterior probability, up to which lifetimes are not shown


def plot_importance(importance: Any, *, ax: Any = None, most: int = 15) -> Any:
    """
    Draw each column's share of the explained variance as a bar, divided by parts of the kernel; permutations are dots.

    `importance(...).plot()` draws it.

    :param importance: An :class:`~gpytorch_partition.explain.Importance`.
    :param most: Number of columns shown, the most important ones. (Default: 15.)

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

    `partial_dependence(...).plot()` draws it. Categories, and up to five values, are points. Ticks are values of rows.

    :param found: A :class:`~gpytorch_partition.explain.PartialDependence`.
    :param level: Probability inside the pointwise intervals. (Default: 0.9.)
    :param target: Name of the targets, with their unit. (Default: None, their name in `fit`.)

    Example:
        >>> from matplotlib.figure import Figure
        >>> from gpytorch_partition.estimators import PartitionGPRegressor
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> model = PartitionGPRegressor("mondrian", 10, random_state=0).fit(X, X[:, 0])
        >>> plot_partial_dependence(model.partial_dependence(X, 0), ax=Figure().subplots()).get_xlabel()
        'x0'
    """
    grid = _as_dates(found.grid)
    is_number, is_date = grid.dtype.kind in "iuf", grid.dtype.kind == "M"
    has_order = is_number or is_date
    ax = axes(ax, 5.6 if has_order else max(5.6, 0.3 * len(grid)))
    ends = (None, None) if found.std is None else found.interval(level)
    label = f"{100 * level:g} % interval of the mean"
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
    share = 100 * sum(known) / counts.total()
    return f"\n({len(known):,} of {len(counts):,} categories{which}: {share:.0f} % of the rows)"


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


@torch.no_grad()
def plot_kernel_slice(
    kernel: Any, x: Tensor, column: int = 0, *, points: Tensor | None = None, ax: Any = None, label: str | None = None
) -> Any:
    """
    Draw the covariance of some points with points that differ from them in one column only; return the axes.

    Use it to see over what distance points are similar in that column, and whether the kernel depends on it.

    :param kernel: Any kernel without a batch shape. For a regressor: `model.model_.covar_module`.
    :param x: `N x D` rows, whose range is drawn. For a regressor: `model.model_.train_inputs[0]`.
    :param column: Number of the column that varies. (Default: 0.)
    :param points: `P x D` points. (Default: three rows, at the quartiles of the column.)
    :param label: Name of the column for the axis. (Default: its number.)
    :raises ValueError: If there is no such column.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from matplotlib.figure import Figure
        >>> len(plot_kernel_slice(RBFKernel(), torch.rand(20, 2), ax=Figure().subplots()).get_lines()) >= 3
        True
    """
    if not isinstance(column, int) or not 0 <= column < x.shape[1]:
        raise ValueError(f"expected column as a number below {x.shape[1]}, the number of columns of x, got {column!r}")
    ax, values = axes(ax), x[:, column][~x[:, column].isnan()]
    if points is None:
        order = x[:, column].argsort()
        points = x[order[[len(x) // 4, len(x) // 2, 3 * len(x) // 4]]]
    grid = torch.linspace(*limits_without_outliers(values.numpy(), _MARGIN), _SLICE).to(x)
    for number, point in enumerate(points):
        others = point.repeat(_SLICE, 1)
        others[:, column] = grid
        curve = kernel(point.expand_as(others), others, diag=True)
        color, place = COLORS[number % len(COLORS)], float(point[column])
        ax.plot(grid, curve, color=color, linewidth=1.6, label=f"x = {place:.3g}")
        ax.axvline(place, color=color, linewidth=1, linestyle=":")
    set_title(ax, "Covariance of a point with others")
    legend_above(ax, min(len(points), 4))
    ax.set(xlabel=name(label or f"column {column}"), ylabel="k(x, x')", ylim=(min(0, ax.get_ylim()[0]), None))
    ax.grid(alpha=0.25)
    return ax


@torch.no_grad()
def plot_cells(
    source: Any, x: Tensor, number: int = 0, *, columns: tuple[int, int] = (0, 1), ax: Any = None, labels: Any = None
) -> Any:
    """
    Draw the cells of one partition in the plane of two columns, with the rows as dots; return the axes.

    Use it to check the size and shape of clusters; other columns are at medians. For the cells of a Mondrian tree at
    any lifetime, give `kernel.partition.tree(number).cut(lifetime)`. Costs labels of 62,500 points for all partitions.

    :param source: A partition, or a partition kernel.
    :param x: `N x D` rows.
    :param number: Number of the partition. (Default: 0.)
    :param columns: The two columns. (Default: the first two.)
    :param labels: Names of the two columns for the axes. (Default: their numbers.)
    :raises ValueError: If there is no such column or partition, or the source is no partition or kernel of one.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from gpytorch_partition import MondrianKernel
        >>> x = torch.rand(20, 2)
        >>> plot_cells(MondrianKernel(x, 5, random_state=0), x, 3, ax=Figure().subplots(), labels="ab").get_xlabel()
        'a'
    """
    if len(columns) != 2 or not all(0 <= column < x.shape[1] for column in columns) or columns[0] == columns[1]:
        raise ValueError(f"expected the numbers of two different columns of {x.shape[1]}, got {columns!r}")
    partition = getattr(source, "partition", source)
    if not hasattr(source, "cluster_ids") and not hasattr(source, "labels"):
        remedy = "of a sum, or of kernel='auto', give one of the kernels inside, which kernel.modules() lists"
        got = type(source).__name__ + ("" if hasattr(source, "partition") else f": {remedy}")
        raise ValueError(f"expected a partition, or a partition kernel, got {got}")
    ax, (grid, extent) = axes(ax), _plane(x, columns)
    found = (source.cluster_ids if hasattr(source, "cluster_ids") else source.labels)(grid)
    if not -found.shape[-1] <= number < found.shape[-1]:
        raise ValueError(f"expected a number below {found.shape[-1]}, the number of partitions, got {number!r}")
    cells = found[:, number].unique(return_inverse=True)[1].reshape(_GRID, _GRID).numpy()
    _draw_cells(ax, cells, extent)
    rows = x[:: -(-len(x) // 500)]
    ax.autoscale(False)
    ax.plot(rows[:, columns[0]], rows[:, columns[1]], "o", color="black", markersize=2.2, alpha=0.6)
    set_title(ax, f"{cells.max() + 1} cells of {type(partition).__name__}", above=0)
    first, second = [f"column {column}" for column in columns] if labels is None else map(name, labels)
    ax.set(xlabel=first, ylabel=second)
    return ax


def plot_lifetimes(sweep: Any, *, prior: Any = None, ax: Any = None) -> Any:
    """
    Draw the posterior density over lifetimes of a sweep (per unit of the logarithm), and the log marginal likelihood.

    A sweep's `plot` draws it. Use it to see how certain the width is, and whether the longest lifetime is long enough.
    It shows the lifetimes of posterior probability above 1e-4, and one more on each side.

    :param sweep: The result of :func:`gpytorch_partition.lifetime_sweep`.
    :param prior: Prior of the lifetime, as in its `posterior`. (Default: uniform in the logarithm.)
    :return: The axes of the posterior.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from gpytorch_partition import MondrianKernel, lifetime_sweep
        >>> x = torch.rand(50, 1, generator=torch.Generator().manual_seed(0))
        >>> sweep = lifetime_sweep(MondrianKernel(x, 10, max_lifetime=9.0, random_state=0), x, (6 * x[:, 0]).sin())
        >>> plot_lifetimes(sweep, ax=Figure().subplots()).get_xscale()
        'log'
    """
    ax = axes(ax)
    posterior, lifetimes = sweep.posterior(prior).numpy(), sweep.lifetimes.numpy()
    edges = np.where(sweep.edges > 0, sweep.edges, 0.5 * lifetimes.min())  # for a logarithmic axis
    density = posterior / np.diff(np.log(edges))
    ax.stairs(density, edges, fill=True, color=COLORS[0], alpha=0.45, label="posterior density")
    ax.set(xscale="log", xlabel="lifetime (1 / unit of x)", ylabel="posterior density (1 / e-fold)", ylim=(0, None))
    ax.axvline(sweep.best_lifetime, color=GRAY, linewidth=1, linestyle=":", label=f"best: {sweep.best_lifetime:.3g}")
    other = ax.twinx()
    values, errors = sweep.log_marginal_likelihood.numpy(), sweep.standard_error.numpy()
    likely = np.flatnonzero(posterior > _UNLIKELY)
    shown = slice(max(likely[0] - 1, 0), likely[-1] + 2)
    lifetimes, values, errors = lifetimes[shown], values[shown], errors[shown]
    ax.set_xlim(edges[:-1][shown].min(), edges[1:][shown].max())
    _name_powers(ax)
    (line,) = other.plot(lifetimes, values, ".-", color=COLORS[1], linewidth=1.6, label="log likelihood")
    other.fill_between(lifetimes, values - 2 * errors, values + 2 * errors, color=COLORS[1], alpha=0.2, linewidth=0)
    other.set_ylabel("log marginal likelihood (nats)")
    set_title(ax, "Posterior over lifetimes")
    legend_above(ax, 3, [*ax.get_legend_handles_labels()[0], line])
    return ax


def _name_powers(ax: Any) -> None:
    """Write plain numbers on a logarithmic axis, at 1, 2 and 5 of each power of ten, or evenly on a short one."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    low, high = ax.get_xlim()
    ticks = LogLocator(subs=(1, 2, 5) if high < 1e3 * low else (1,))
    ax.xaxis.set_major_locator(MaxNLocator(5) if high < 5 * low else ticks)
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _plane(x: Tensor, columns: tuple[int, int]) -> tuple[Tensor, tuple[float, ...]]:
    """Return points of a regular grid in the plane of two columns (the second one slowest), and its ends."""
    ends, sides = [], []
    for column in columns:
        low, high = limits_without_outliers(x[:, column].numpy(), _MARGIN)
        low, high = (low, high) if low < high else (low - 1.0, high + 1.0)
        ends += [low, high]
        sides.append(torch.linspace(low, high, _GRID, dtype=x.dtype))
    grid = x.median(0).values.repeat(_GRID * _GRID, 1)
    grid[:, columns[0]] = sides[0].repeat(_GRID)
    grid[:, columns[1]] = sides[1].repeat_interleave(_GRID)
    return grid, tuple(ends)


def _draw_cells(ax: Any, cells: np.ndarray, extent: tuple[float, ...]) -> None:
    from matplotlib.colors import to_rgb

    palette = np.array([to_rgb(color) for color in COLORS])
    order = np.random.RandomState(0).permutation(cells.max() + 1)
    image = 1 - 0.35 * (1 - palette[order[cells] % len(palette)])
    border = np.zeros(cells.shape, dtype=bool)
    border[:, 1:] |= cells[:, 1:] != cells[:, :-1]
    border[1:] |= cells[1:] != cells[:-1]
    image[border] = 0.35
    ax.imshow(image, extent=extent, origin="lower", aspect="auto", interpolation="nearest")
