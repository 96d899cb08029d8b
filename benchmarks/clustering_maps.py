"""Kernels of clusterings on real data: how alike places of California are to two of them, and how well they predict."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from gpytorch_partition import ClusteringKernel, FastClusterKernel, PartitionKernel, RandomForestKernel
from gpytorch_partition.estimators import PartitionGPRegressor

from .clusterings import KEEPING, SOURCES
from .regression_sets import read_data, split_of
from .report import Options, Row, Table

SETS = ("autompg", "housing", "concrete", "cpu", "california")
# In standard deviations: of two columns clusters are small, of many columns distances are large.
NARROW, WIDE = {"eps": (0.05, 0.5), "cut_distance": (0.05, 0.5)}, {"eps": (0.5, 3.0), "cut_distance": (0.5, 3.0)}
SIZES = {"threshold": [0.1], "scale": [0.2]}
PLACES = ("isolation (16 centers)", "fast cluster", *SOURCES)


def clustering_maps(options: Options) -> Iterator[Table]:
    """RMSE and negative log predictive density of each set, and maps of similarities."""
    most, partitions = options.pick(500, 300, 100), options.pick(50, 30, 3)
    names = options.pick(SETS, SETS[:2], SETS[:1]) if options.data else ("diabetes",)
    splits = {name: split_of(read_data(options, name), 0, most) for name in names}
    rows: list[Row] = []
    for kernel in ("forest", *PLACES):
        row: Row = {"kernel": kernel}
        for name, split in splits.items():
            rmse, density = _scores(kernel, split, partitions)
            row |= {f"{name}: RMSE": rmse, f"{name}: NLPD": density}
        rows.append(row)
        yield Table("clustering_maps", "", rows, complete=False)
    title = (
        f"GPs of {partitions} clusterings, by a random half of the columns, of at most {most:,} training rows: "
        "standardized RMSE and negative log predictive density (nats), one split each"
    )
    yield Table("clustering_maps", title, rows, picture=_picture(options, partitions))


def _scores(kernel: str, split: Any, partitions: int) -> tuple[float, float]:
    model = PartitionGPRegressor(lambda x, y: _kernel(kernel, x, y, partitions), random_state=0)
    mean, deviation = model.fit(split.x, split.y).predict(split.test_x, return_std=True)
    errors = split.test_y - mean
    density = 0.5 * (errors**2 / deviation**2 + np.log(2 * np.pi * deviation**2))
    return float(np.sqrt((errors**2).mean())), float(density.mean())


def _kernel(name: str, x: Tensor, y: Tensor | None, partitions: int) -> PartitionKernel:
    if name == "forest":
        return RandomForestKernel(x, y, partitions, random_state=0)
    if name == "fast cluster":
        return FastClusterKernel(x, partitions, random_state=0)
    if name not in SOURCES:
        return FastClusterKernel(x, partitions, num_centers=16, columns="all", random_state=0)
    source, is_map = SOURCES[name], x.shape[1] == 2
    parameters = source.clusterer.get_params()
    drawn = {key: values for key, values in SIZES.items() if is_map and key in parameters}
    drawn |= {key: (NARROW if is_map else WIDE).get(key, values) for key, values in source.drawn.items()}
    rows = min(300 if name in KEEPING else 1_000, len(x) // 2)
    columns = None if is_map else 0.5
    return ClusteringKernel(
        x, clone(source.clusterer), partitions, param_distributions=drawn, rows=rows, columns=columns, random_state=0
    )


def _picture(options: Options, partitions: int) -> Any:
    """A map for each kernel: how alike each place is to Los Angeles and to Sacramento (or two rows of diabetes)."""
    if find_spec("matplotlib") is None:
        print('[no picture: matplotlib is missing, pip install "gpytorch_partition[plot]"]', file=sys.stderr)
        return None
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    data = read_data(options, "california") if options.data else read_data(options, "diabetes")
    shown = slice(0, 2) if options.data else slice(2, 4)
    X = data.X[np.random.default_rng(0).permutation(len(data.X))[:3_000], shown]
    mean, scale = X.mean(0), X.std(0)
    x = torch.from_numpy((X - mean) / scale)
    places = np.array([[-118.25, 34.05], [-121.5, 38.6]]) if options.data else X[:2]
    crosses = "Los Angeles,\nSacramento" if options.data else "two rows"
    columns = (
        ("longitude, degrees", "latitude, degrees")
        if options.data
        else ("body mass index, scaled", "blood pressure, scaled")
    )
    points = torch.from_numpy((places - mean) / scale)
    names = ["the places" if options.data else "the rows", *PLACES]
    figure = Figure(figsize=(11, 8.6), layout="constrained", dpi=120)
    panels = figure.subplots(3, 4, sharex=True, sharey=True).ravel()
    for panel, name in zip(panels, names):
        panel.set_title(name, loc="left", fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
        if name == names[0]:
            panel.scatter(*X.T, s=2, color="#6E6E6E", lw=0)
        else:
            alike = _kernel(name, x, None, partitions)(points, x).to_dense().amax(0)
            order = alike.argsort()
            dots = panel.scatter(*X[order].T, s=3, c=alike[order], cmap="viridis", vmin=0, vmax=1, lw=0)
        panel.xaxis.set_major_locator(MaxNLocator(3))
        panel.plot(*places.T, "+", color="#D55E00", ms=9, mew=1.6, label=crosses)
    panels[0].legend(loc="lower left", fontsize=8, frameon=False, handletextpad=0)
    figure.supxlabel(columns[0], fontsize=10)
    figure.supylabel(columns[1], fontsize=10)
    figure.colorbar(dots, ax=panels, shrink=0.5, label="similarity to the cross that is more alike")
    return figure
