"""Plots of kernels and partitions: slices, cells and lifetimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.explain.plots.plot_style import COLORS, GRAY, axes, legend_above, name, set_title

_GRID = 250  # points along each side of a map
_SLICE = 400  # points of a curve
_MARGIN = 0.05  # of the range of the rows, beyond them
_UNLIKELY = 1e-4  # posterior probability, up to which lifetimes are not shown


@torch.no_grad()
def plot_kernel_slice(
    kernel: Any, x: Tensor, column: int = 0, *, points: Tensor | None = None, ax: Any = None, label: str | None = None
) -> Any:
    """
    Draw the covariance of some points with points that differ from them in one column only.

    Use it to see over what distance points are similar in that column, and whether the kernel depends on it.

    :param kernel: Any kernel without a batch shape. For a regressor: `model.model_.covar_module`.
    :param x: `N x D` rows, whose range is drawn. For a regressor: `model.model_.train_inputs[0]`.
    :param column: Number of the column that varies. (Default: 0.)
    :param points: `P x D` points. (Default: three rows, at the quartiles of the column.)
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :param label: Name of the column for the axis. (Default: its number.)
    :return: The axes.
    :raises ValueError: If there is no such column.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from gpytorch.kernels import RBFKernel
        >>> ax = plot_kernel_slice(RBFKernel(), torch.rand(20, 2), ax=Figure().subplots())
        >>> len(ax.lines)  # a curve and a mark for each point
        6
    """
    if not isinstance(column, int) or not 0 <= column < x.shape[1]:
        raise ValueError(f"expected column as a number below {x.shape[1]}, that of columns of x, got {column!r}")
    ax, values = axes(ax), x[:, column][~x[:, column].isnan()]
    if points is None:
        order = x[:, column].argsort()
        points = x[order[[len(x) // 4, len(x) // 2, 3 * len(x) // 4]]]
    margin = _MARGIN * (values.max() - values.min())
    grid = torch.linspace(float(values.min() - margin), float(values.max() + margin), _SLICE).to(x)
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
    Draw the cells of one partition in the plane of two columns, with the rows as dots; other columns are at medians.

    Use it to check the size and shape of clusters. For the cells of a Mondrian tree at any lifetime, give
    `kernel.partition.tree(number).cut(lifetime)`.

    Costs labels of 62,500 points for all partitions of the source.

    :param source: A partition, or a partition kernel.
    :param x: `N x D` rows.
    :param number: Number of the partition. (Default: 0.)
    :param columns: The two columns. (Default: the first two.)
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :param labels: Names of the two columns for the axes. (Default: their numbers.)
    :return: The axes.
    :raises ValueError: If there is no such column or partition, or the source is no partition or kernel of one.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from gpytorch_partition import FastClusterKernel
        >>> x = torch.rand(50, 2, generator=torch.Generator().manual_seed(0))
        >>> kernel = FastClusterKernel(x, 10, random_state=0)
        >>> plot_cells(kernel, x, ax=Figure().subplots()).get_ylabel()
        'column 1'
    """
    _check_columns(columns, x)
    partition = getattr(source, "partition", source)
    if not hasattr(source, "cluster_ids") and not hasattr(source, "labels"):
        raise ValueError(f"expected a partition, or a partition kernel, got {_named(source)}")
    ax, (grid, extent) = axes(ax), _plane(x, columns)
    found = (source.cluster_ids if hasattr(source, "cluster_ids") else source.labels)(grid)
    if not -found.shape[-1] <= number < found.shape[-1]:
        raise ValueError(f"expected a number below {found.shape[-1]}, that of partitions, got {number!r}")
    cells = found[:, number].unique(return_inverse=True)[1].reshape(_GRID, _GRID).numpy()
    _draw_cells(ax, cells, extent)
    _draw_rows(ax, x, columns)
    set_title(ax, f"{cells.max() + 1} cells of {type(partition).__name__}", above=0)
    _name_axes(ax, columns, labels)
    return ax


def plot_lifetimes(sweep: Any, *, prior: Any = None, ax: Any = None) -> Any:
    """
    Draw the posterior density over lifetimes of a sweep (per unit of the logarithm), and the log marginal likelihood.

    A sweep's `plot` draws it. Use it to see how certain the width is, and whether the longest lifetime is long enough.
    It shows the lifetimes of posterior probability above 1e-4, and one more on each side.

    :param sweep: The result of :func:`gpytorch_partition.lifetime_sweep`.
    :param prior: Prior of the lifetime, as in its `posterior`. (Default: uniform in the logarithm.)
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :return: The axes, those of the posterior.
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
    (line,) = other.plot(lifetimes, values, ".-", color=COLORS[1], linewidth=1.6, label="log likelihood")
    other.fill_between(lifetimes, values - 2 * errors, values + 2 * errors, color=COLORS[1], alpha=0.2, linewidth=0)
    other.set_ylabel("log marginal likelihood (nats)")
    set_title(ax, "Posterior over lifetimes")
    legend_above(ax, 3, [*ax.get_legend_handles_labels()[0], line])
    return ax


def _named(source: Any) -> str:
    """Return the class of an object, and for kernels of others advice to give an inner one."""
    inside = ": of a sum, or of kernel='auto', give one of the kernels inside, which kernel.modules() lists"
    return type(source).__name__ + ("" if hasattr(source, "partition") else inside)


def _check_columns(columns: tuple[int, int], x: Tensor) -> None:
    if len(columns) != 2 or not all(0 <= column < x.shape[1] for column in columns) or columns[0] == columns[1]:
        raise ValueError(f"expected the numbers of two different columns of {x.shape[1]}, got {columns!r}")


def _plane(x: Tensor, columns: tuple[int, int]) -> tuple[Tensor, tuple[float, ...]]:
    """Return points of a regular grid in the plane of two columns (the second one slowest), and its ends."""
    ends, sides = [], []
    for column in columns:
        low, high = float(x[:, column].min()), float(x[:, column].max())
        margin = _MARGIN * (high - low) or 1.0
        ends += [low - margin, high + margin]
        sides.append(torch.linspace(low - margin, high + margin, _GRID, dtype=x.dtype))
    grid = x.median(0).values.repeat(_GRID * _GRID, 1)
    grid[:, columns[0]] = sides[0].repeat(_GRID)
    grid[:, columns[1]] = sides[1].repeat_interleave(_GRID)
    return grid, tuple(ends)


def _draw_cells(ax: Any, cells: np.ndarray, extent: tuple[float, ...]) -> None:
    """Draw cells in light colors, neighbors mostly in different colors, with their borders."""
    from matplotlib.colors import to_rgb

    palette = np.array([to_rgb(color) for color in COLORS])
    order = np.random.RandomState(0).permutation(cells.max() + 1)
    image = 1 - 0.35 * (1 - palette[order[cells] % len(palette)])
    border = np.zeros(cells.shape, dtype=bool)
    border[:, 1:] |= cells[:, 1:] != cells[:, :-1]
    border[1:] |= cells[1:] != cells[:-1]
    image[border] = 0.35
    ax.imshow(image, extent=extent, origin="lower", aspect="auto", interpolation="nearest")


def _draw_rows(ax: Any, x: Tensor, columns: tuple[int, int]) -> None:
    rows = x[:: -(-len(x) // 500)]
    ax.plot(rows[:, columns[0]], rows[:, columns[1]], "o", color="black", markersize=2.2, alpha=0.6)


def _name_axes(ax: Any, columns: tuple[int, int], labels: Any) -> None:
    first, second = [f"column {column}" for column in columns] if labels is None else map(name, labels)
    ax.set(xlabel=first, ylabel=second)
