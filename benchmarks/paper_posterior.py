"""The posterior on one-dimensional data (Davies & Ghahramani 2014, figure 1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood

from gpytorch_partition import fit_exact_gp, settings
from gpytorch_partition.models import PartitionGP

from .paper_methods import CLUSTERS, KERNELS, NUM_PARTITIONS, PRINTED, Build
from .paper_pictures import posteriors
from .report import Options, Row, Table

# How far apart the pairs of points are whose covariance is compared along the line.
_LAG = 0.1
_NOISE = 0.15


def posterior(options: Options) -> Iterator[Table]:
    """Figure 1."""
    num_partitions, num_points = options.pick(NUM_PARTITIONS, 50, 10), options.pick(20_001, 2_001, 201)
    x, y = _toy()
    grid, rows, found = np.linspace(-0.1, 1.1, num_points), [], {}
    for method, build in KERNELS.items():
        mean, std, lagged, noise = _posterior(build, x, y, grid, num_partitions)
        found[method] = (mean, std)
        rows.append({"kernel": method} | _looks(mean, std, lagged) | {f"fitted noise, std (true: {_NOISE})": noise})
    picture = posteriors(x, y, grid, found)
    title = f"Figure 1: posterior of {len(x)} rows on a line, {num_partitions} partitions, {num_points:,} points."
    yield Table("paper_figure_1", f"{title} {_finding(rows)}", rows, picture=picture)


def _toy() -> tuple[np.ndarray, np.ndarray]:
    """A wave, a step, and a gap without rows."""
    random = np.random.default_rng(0)
    x = np.sort(np.concatenate([random.uniform(0, 0.55, 35), random.uniform(0.75, 1, 25)]))
    return x, np.sin(9 * x) + (x > 0.35) + _NOISE * random.standard_normal(len(x))


def _posterior(
    build: Build, x: np.ndarray, y: np.ndarray, grid: np.ndarray, num_partitions: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Means and standard deviations on the grid, prior correlations of points that are a lag apart, and the noise."""
    rows, targets, points = torch.from_numpy(x)[:, None], torch.from_numpy(y), torch.from_numpy(grid)[:, None]
    kernel = build(rows, targets, num_partitions, 0)
    model = PartitionGP(rows, targets, GaussianLikelihood(), kernel)
    fit_exact_gp(model, model.likelihood)
    model.eval()
    inside = points[(grid >= 0) & (grid <= 1 - _LAG)]
    with torch.no_grad(), settings.iterative():
        function = model(points)
        lagged = torch.cat([kernel(some, some + _LAG).diagonal(dim1=-1, dim2=-2) for some in inside.split(500)])
        noise = model.likelihood.noise.sqrt().item()
        return function.mean.numpy(), function.stddev.numpy(), lagged.numpy(), noise


def _looks(mean: np.ndarray, std: np.ndarray, lagged: np.ndarray) -> Row:
    return {
        "values that the mean takes": len(np.unique(mean.round(9))),
        "largest step of the standard deviation": float(np.abs(np.diff(std)).max() / np.ptp(std)),
        "correlation at a lag of .1, least": float(lagged.min()),
        "correlation at a lag of .1, largest": float(lagged.max()),
    }


def _finding(rows: list[Row]) -> str:
    by_kernel = {row["kernel"]: row for row in rows}
    steps = {name: by_kernel[name]["largest step of the standard deviation"] for name in (PRINTED, CLUSTERS)}
    return (
        "The paper's findings: means are piecewise constant, which holds (they take few values, see the table), the "
        "prior is not stationary, which holds (the correlation of points .1 apart varies), and variances of the fast "
        f"cluster kernel are smoother, which {'holds' if steps[CLUSTERS] < steps[PRINTED] else 'fails'} (the largest "
        f"step of a standard deviation is {steps[CLUSTERS]:.2f} of its range, the forest's as printed "
        f"{steps[PRINTED]:.2f})."
    )
