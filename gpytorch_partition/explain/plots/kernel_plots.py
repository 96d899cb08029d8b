"""What kernels and partitions look like: slices, cells, levels of trees, Mondrian samples, lifetimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.explain.plots.plot_style import COLORS, GRAY, axes, legend_above, name, set_title

_GRID = 250  # points along each side of a map
_SLICE = 400  # points of a curve
_MARGIN = 0.05  # of the range of the rows, beyond them
_UNLIKELY = 1e-4  # posterior probability of a lifetime that needs not be shown
_MARGIN_OF_LIFETIMES = 1.5  # factor


@torch.no_grad()
def plot_kernel_slice(
    kernel: Any, x: Tensor, column: int = 0, *, points: Tensor | None = None, ax: Any = None, label: str | None = None
) -> Any:
    """
    The covariance of some points with those that differ from them in one column only.

    Look at it to see how far points are alike in that column, and whether the kernel sees the column at all.

    :param kernel: Any kernel without a batch shape. Of a regressor: `model.model_.covar_module`.
    :param x: `N x D` rows, whose range is drawn; of a regressor: `model.model_.train_inputs[0]`.
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
    The cells of one partition in the plane of two columns, with the rows as dots; other columns are at their medians.

    Look at it to see whether clusters have the size and the shape that you meant.

    Costs labels of 62,500 points for all partitions of the source.

    :param source: A partition, or a partition kernel.
    :param x: `N x D` rows.
    :param number: Which of the partitions. (Default: 0, the first one.)
    :param columns: The two columns. (Default: the first two.)
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :param labels: Names of the two columns for the axes. (Default: their numbers.)
    :return: The axes.
    :raises ValueError: If there is no such column or partition, or the source is another.

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
    ax.set_title(f"{cells.max() + 1} cells of {type(partition).__name__}", loc="left", fontsize=11, fontweight="bold")
    _name_axes(ax, columns, labels)
    return ax


@torch.no_grad()
def plot_mondrian(
    source: Any, x: Tensor, tree: int = 0, *, columns: tuple[int, int] = (0, 1), ax: Any = None, labels: Any = None
) -> Any:
    """
    One tree of a Mondrian process with the times of its cuts, up to its lifetime.

    Look at it to see what the cells of each lifetime are, before one is chosen.

    Of one column, cuts are lines that begin at their time; of several, walls of cells in the plane of two columns,
    the earlier the thicker, with other columns at their medians. Costs labels of 62,500 points for one tree.

    :param source: A `MondrianKernel` or `MondrianPartition`.
    :param x: `N x D` rows.
    :param tree: Which of the trees. (Default: 0, the first one.)
    :param columns: The two columns that are drawn. (Default: the first two.)
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :param labels: Names of the columns for the axes. (Default: their numbers.)
    :return: The axes.
    :raises ValueError: If there is no such tree or column, or the source is another.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from gpytorch_partition import MondrianKernel
        >>> x = torch.rand(50, 1, generator=torch.Generator().manual_seed(0))
        >>> kernel = MondrianKernel(x, 5, lifetime=4.0, random_state=0)
        >>> plot_mondrian(kernel, x, ax=Figure().subplots()).get_ylabel()
        'time of the cut (1 / unit of x)'
    """
    partition = getattr(source, "partition", source)
    if not hasattr(partition, "tree"):
        raise ValueError(f"expected a MondrianKernel or MondrianPartition, got {_named(source)}")
    partition = partition.tree(tree)
    if x.shape[1] == 1:
        return _mondrian_line(partition, x, axes(ax), (labels or ["x"])[0])
    _check_columns(columns, x)
    ax, (grid, extent) = axes(ax, width=6.2), _plane(x, columns)
    numbers = torch.arange(_GRID * _GRID).view(_GRID, _GRID)
    walls = [_wall_times(partition, grid, numbers[:-1], numbers[1:])]
    walls.append(_wall_times(partition, grid, numbers[:, :-1], numbers[:, 1:]))
    _draw_walls(ax, walls, extent, partition.lifetime)
    _draw_rows(ax, x, columns)
    ax.set(xlim=extent[:2], ylim=extent[2:])
    ax.set_title(f"A Mondrian sample of lifetime {partition.lifetime:.3g}", loc="left", fontsize=11, fontweight="bold")
    _name_axes(ax, columns, labels)
    return ax


def _mondrian_line(partition: Any, x: Tensor, ax: Any, label: str) -> Any:
    low, high = float(x.min()), float(x.max())
    margin = _MARGIN * (high - low)
    grid = torch.linspace(low - margin, high + margin, 8 * _GRID, dtype=x.dtype)
    numbers = torch.arange(len(grid))
    first = _wall_times(partition, grid.unsqueeze(-1), numbers[:-1], numbers[1:])
    places = np.flatnonzero(np.isfinite(first))
    middles = (0.5 * (grid[1:] + grid[:-1])).numpy()[places]
    ax.vlines(middles, first[places], partition.lifetime, color=COLORS[0], linewidth=1.4)
    ax.plot(middles, first[places], "o", color=COLORS[0], markersize=3.5, label=f"{len(places)} cuts")
    rows = x[:: -(-len(x) // 400), 0].numpy()
    place = np.full(len(rows), 0.012)
    ax.plot(rows, place, "|", color=GRAY, markersize=7, transform=ax.get_xaxis_transform(), label="rows")
    set_title(ax, "A Mondrian sample")
    legend_above(ax)
    ax.set(xlabel=name(label), ylabel="time of the cut (1 / unit of x)", ylim=(0, 1.02 * partition.lifetime))
    return ax


def _wall_times(partition: Any, grid: Tensor, first: Tensor, second: Tensor) -> np.ndarray:
    """The times (of the shape of `first`) at which neighbors are separated; infinite where they are not."""
    return partition.separation_times(grid, first.flatten(), second.flatten())[0].view(first.shape).numpy()


def _draw_walls(ax: Any, walls: list[np.ndarray], extent: tuple[float, ...], lifetime: float) -> None:
    """Walls as short segments, colored by the time of their cut, and the bar of colors."""
    from matplotlib.collections import LineCollection

    left, right, low, high = extent
    steps = ((right - left) / (_GRID - 1), (high - low) / (_GRID - 1))
    segments, times = [], []
    for axis, first in enumerate(walls):
        rows, columns = np.nonzero(np.isfinite(first))
        x, y = left + columns * steps[0], low + rows * steps[1]
        across = np.array([0.5 * steps[0], 0.0]) if axis == 0 else np.array([0.0, 0.5 * steps[1]])
        middle = np.stack([x, y], -1) + (np.array([0, 0.5 * steps[1]]) if axis == 0 else np.array([0.5 * steps[0], 0]))
        segments.append(np.stack([middle - across, middle + across], 1))
        times.append(first[rows, columns])
    time = np.concatenate(times)
    lines = LineCollection(
        list(np.concatenate(segments)),
        array=time,
        cmap="viridis",
        linewidths=3.2 - 2.4 * time / lifetime,
        capstyle="projecting",
    )
    lines.set_clim(0, lifetime)
    ax.add_collection(lines)
    ax.figure.colorbar(lines, ax=ax, label="time of the cut (1 / unit of x)")


def plot_level_weights(kernel: Any, *, ax: Any = None) -> Any:
    """
    The weight of each height at which trees are compared, of a kernel with `heights="learned"`.

    Look at it after a fit, to see at which depths the trees matter.

    :param kernel: A `RandomForestKernel`.
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :return: The axes.
    :raises ValueError: If the kernel has no such weights.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from gpytorch_partition import RandomForestKernel
        >>> x = torch.linspace(0, 1, 100).unsqueeze(-1)
        >>> kernel = RandomForestKernel(x, x[:, 0], 5, "learned", random_state=0)
        >>> plot_level_weights(kernel, ax=Figure().subplots()).get_xlabel()
        'height of the cut (splits below the root)'
    """
    weights = getattr(kernel, "level_weights", None)
    if weights is None:
        raise ValueError(
            f'expected a RandomForestKernel with heights="learned", which has level_weights, got {_named(kernel)}'
        )
    ax, values = axes(ax), weights.detach().numpy()
    ax.bar(np.arange(len(values)), values, color=COLORS[0], width=0.8, label="learned")
    ax.axhline(1 / len(values), color=GRAY, linewidth=1, linestyle="--", label='all the same (heights="all")')
    set_title(ax, "Weights of the trees' levels")
    legend_above(ax)
    ax.set(xlabel="height of the cut (splits below the root)", ylabel="weight")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(alpha=0.25, axis="y")
    ax.set_axisbelow(True)
    return ax


def plot_lifetimes(sweep: Any, *, prior: Any = None, ax: Any = None) -> Any:
    """
    The posterior density over lifetimes of a sweep (per unit of the logarithm), and the log marginal likelihood that it
    comes from, around the lifetimes that have a posterior probability.

    Look at it after a sweep (its `plot` draws it), to see how sure the width is, and whether the longest lifetime is
    long enough.

    :param sweep: What :func:`gpytorch_partition.lifetime_sweep` returned.
    :param prior: Prior of the lifetime, as in its `posterior`. (Default: uniform in the logarithm.)
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :return: The axes, those of the posterior.
    """
    ax = axes(ax)
    posterior, lifetimes = sweep.posterior(prior).numpy(), sweep.lifetimes.numpy()
    edges = _positive(sweep.edges.numpy(), lifetimes)
    density = posterior / np.diff(np.log(edges))
    ax.stairs(density, edges, fill=True, color=COLORS[0], alpha=0.45, label="posterior density")
    ax.set(xscale="log", xlabel="lifetime (1 / unit of x)", ylabel="posterior density (1 / e-fold)", ylim=(0, None))
    ax.axvline(sweep.best_lifetime, color=GRAY, linewidth=1, linestyle=":", label=f"best: {sweep.best_lifetime:.3g}")
    other = ax.twinx()
    values, errors = sweep.log_marginal_likelihood.numpy(), sweep.standard_error.numpy()
    shown = _around(lifetimes, posterior)
    lifetimes, values, errors = lifetimes[shown], values[shown], errors[shown]
    ax.set_xlim(edges[:-1][shown].min(), edges[1:][shown].max())
    (line,) = other.plot(lifetimes, values, ".-", color=COLORS[1], linewidth=1.6, label="log likelihood")
    other.fill_between(lifetimes, values - 2 * errors, values + 2 * errors, color=COLORS[1], alpha=0.2, linewidth=0)
    other.set_ylabel("log marginal likelihood (nats)")
    handles, _ = ax.get_legend_handles_labels()
    set_title(ax, "Posterior over lifetimes")
    legend_above(ax, 3, [*handles, line])
    return ax


def _around(lifetimes: np.ndarray, posterior: np.ndarray) -> np.ndarray:
    """
    Which lifetimes are shown: up to half as long again, or as short, as those with a posterior probability, and at
    least one on each side of these, without which one lifetime would have no line.
    """
    likely = np.flatnonzero(posterior > _UNLIKELY)
    first, last = lifetimes[likely[0]], lifetimes[likely[-1]]
    shown = (lifetimes >= first / _MARGIN_OF_LIFETIMES) & (lifetimes <= last * _MARGIN_OF_LIFETIMES)
    shown[max(likely[0] - 1, 0) : likely[-1] + 2] = True
    return shown


def _positive(edges: np.ndarray, lifetimes: np.ndarray) -> np.ndarray:
    """Edges for a logarithmic axis: one of 0 becomes half of the shortest lifetime."""
    return np.where(edges > 0, edges, 0.5 * lifetimes.min())


def _named(source: Any) -> str:
    """What was given instead of a kernel with a partition, and where that may be."""
    told = type(source).__name__
    inside = ": of a sum, or of kernel='auto', give one of the kernels inside, which kernel.modules() lists"
    return told if hasattr(source, "partition") else told + inside


def _check_columns(columns: tuple[int, int], x: Tensor) -> None:
    if len(columns) != 2 or not all(0 <= column < x.shape[1] for column in columns) or columns[0] == columns[1]:
        raise ValueError(f"expected the numbers of two different columns of {x.shape[1]}, got {columns!r}")


def _plane(x: Tensor, columns: tuple[int, int]) -> tuple[Tensor, tuple[float, ...]]:
    """Points of a regular grid in the plane of two columns (the second one slowest), and its ends."""
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
    """Cells in light colors, neighbors mostly in different ones, with their borders."""
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
