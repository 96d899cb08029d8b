"""Kernel principal components (Davies & Ghahramani 2014, figures 2 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import process_time
from typing import NamedTuple

import numpy as np
import torch
from sklearn.decomposition import PCA, KernelPCA
from sklearn.metrics import r2_score
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor

from gpytorch_partition.estimators import PartitionKernelPCA

from .measure import growth
from .paper_methods import CLUSTERS, KERNELS, NUM_PARTITIONS, OURS, PRINTED, Build
from .paper_pictures import planes
from .pictures import totals
from .predictors import Split
from .problems import friedman
from .regression_sets import read_data, split_of
from .report import Options, Row, Table, again

LINEAR_PCA = "PCA"
ARPACK, DENSE = "RBF, scikit-learn (Arnoldi)", "RBF, scikit-learn (dense)"

# How the dense ones grow with the number of rows, and the most rows that they are given.
_EXPECTED = {ARPACK: 2.0, DENSE: 3.0}
_MOST_DENSE = 10_000

_NEIGHBOURS = 10
_HELD_OUT, _LEFT_OUT = "R^2 of held-out rows", "R^2 of training rows, each left out"


Run = Callable[[np.ndarray, np.ndarray], object]  # of rows and targets


class Plane(NamedTuple):
    """Training rows and held-out ones on two components."""

    rows: np.ndarray
    points: np.ndarray


def components(options: Options) -> Iterator[Table]:
    """Figure 2."""
    name, num_partitions = "bodyfat" if options.data else "diabetes", options.pick(NUM_PARTITIONS, 50, 5)
    data = read_data(options, name)
    splits = [split_of(data, number, options.pick(None, 200, 60)) for number in range(options.pick(10, 2, 1))]
    methods = _projections(num_partitions)
    found = {method: [project(split) for split in splits] for method, project in methods.items()}
    rows = [{"components": method} | _told(lines, splits) for method, lines in found.items()]
    picture = planes({method: lines[0] for method, lines in found.items()}, splits[0])
    title = f"Figure 2: two components of {name}, {len(splits)} splits, {num_partitions} partitions. {_worth(rows)}"
    yield Table("paper_figure_2", title, rows, picture=picture)


def _projections(num_partitions: int) -> dict[str, Callable[[Split], Plane]]:
    ours = {name: partial(_partition_plane, build=build, m=num_partitions) for name, build in KERNELS.items()}
    return {LINEAR_PCA: _linear_plane, **ours}


def _linear_plane(split: Split) -> Plane:
    found = PCA(2).fit(split.x)
    return Plane(found.transform(split.x), found.transform(split.test_x))


def _partition_plane(split: Split, *, build: Build, m: int) -> Plane:
    kernel = build(torch.from_numpy(split.x), torch.from_numpy(split.y), m, 0)
    found = PartitionKernelPCA(2, kernel=kernel, random_state=0).fit(split.x)
    return Plane(found.transform(split.x), found.transform(split.test_x))


def _told(planes: list[Plane], splits: list[Split]) -> Row:
    """How well the nearest training rows in the plane tell the target of others."""
    row: Row = {}
    for column, score in ((_HELD_OUT, _held_out), (_LEFT_OUT, _left_out)):
        values = [score(plane, split) for plane, split in zip(planes, splits)]
        row |= {
            column: float(np.mean(values)),
            f"{column}: error": float(np.std(values) / max(len(values) - 1, 1) ** 0.5),
        }
    return row


def _held_out(plane: Plane, split: Split) -> float:
    nearest = KNeighborsRegressor(_NEIGHBOURS).fit(plane.rows, split.y)
    return float(r2_score(split.test_y, nearest.predict(plane.points)))


def _left_out(plane: Plane, split: Split) -> float:
    predicted = cross_val_predict(KNeighborsRegressor(_NEIGHBOURS), plane.rows, split.y, cv=LeaveOneOut())
    return float(r2_score(split.y, predicted))


def _worth(rows: list[Row]) -> str:
    told = {row["components"]: (row[_HELD_OUT], row[_LEFT_OUT]) for row in rows}
    held = told[PRINTED][0] > max(told[LINEAR_PCA][0], told[CLUSTERS][0])
    words = ", ".join(f"{name} {held_out:.2f} ({left_out:.2f})" for name, (held_out, left_out) in told.items())
    return (
        "The paper's finding, the forest kernel reduces dimensions in a supervised way, "
        f"{'holds' if held else 'fails'}: the share of the target's variance that the {_NEIGHBOURS} nearest training "
        f"rows in the plane explain, of held-out rows (in brackets: of training rows, each left out), is {words}. "
        "Where the second exceeds the first, the plane flatters the rows whose targets the forest has seen."
    )


def scaling(options: Options) -> Iterator[Table]:
    """Figure 6."""
    sizes = options.pick([300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000], [1_000, 3_000], [300, 600])
    num_partitions, limit = options.pick(100, 100, 5), options.pick(400.0, 20.0, 20.0)
    finished, rows = options.finished("paper_figure_6"), []
    for method, run in _runs(num_partitions).items():
        for row in _line(method, run, sizes, limit, finished):
            rows.append(row)
            yield Table("paper_figure_6", "Figure 6", rows, complete=False)
    lines = {method: _points(rows, method) for method in _runs(num_partitions)}
    ours = {method: lines[method] for method in (OURS, CLUSTERS)}
    picture = totals(
        ours, {method: lines[method] for method in (ARPACK, DENSE)}, "Two kernel principal components, processor time"
    )
    title = f"Figure 6: processor seconds of two kernel principal components, {num_partitions} partitions, 10 columns"
    yield Table("paper_figure_6", f"{title}. {_exponents(lines)}", rows, picture=picture)


def _runs(num_partitions: int) -> dict[str, Run]:
    dense = {ARPACK: "arpack", DENSE: "dense"}
    ours = {name: partial(_components_of, build=KERNELS[name], m=num_partitions) for name in (CLUSTERS, OURS)}
    others = {
        name: lambda x, y, solver=solver: KernelPCA(2, kernel="rbf", eigen_solver=solver).fit_transform(x)
        for name, solver in dense.items()
    }
    return {**ours, **others}


def _components_of(x: np.ndarray, y: np.ndarray, *, build: Build, m: int) -> np.ndarray:
    """Partitions, labels and components."""
    kernel = build(torch.from_numpy(x), torch.from_numpy(y), m, 0)
    return PartitionKernelPCA(2, kernel=kernel, random_state=0).fit_transform(x)


def _line(method: str, run: Run, sizes: list[int], limit: float, finished: list[Row]) -> Iterator[Row]:
    """Up to the number of rows at which a run is expected to take too long, or a dense matrix too much memory."""
    run(*_data(200))  # what is loaded once is not measured here
    last_size, last, exponent = sizes[0], 0.0, _EXPECTED.get(method, 1.2)
    for size in sizes:
        is_too_large = method in _EXPECTED and size > _MOST_DENSE
        if is_too_large or last * (size / last_size) ** exponent > limit:
            return
        job = {"kernel": method, "N": size}
        row = again(finished, job) or job | {"seconds": _processor_seconds(run, size)}
        last_size, last = size, row["seconds"]
        yield row


def _processor_seconds(run: Run, num_rows: int) -> float:
    """Of all threads together: what a core takes that does nothing else."""
    x, y = _data(num_rows)
    start = process_time()
    run(x, y)
    return process_time() - start


def _data(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = friedman(num_rows, torch.float64)
    return x.numpy(), y.numpy()


def _points(rows: list[Row], method: str) -> list[tuple[int, float]]:
    return [(row["N"], row["seconds"]) for row in rows if row["kernel"] == method]


def _exponents(lines: dict[str, list[tuple[int, float]]]) -> str:
    found = {method: growth(*(list(column) for column in zip(*line[-3:]))) for method, line in lines.items()}
    words = ", ".join(f"{method} N^{found[method]:.2f} (up to {lines[method][-1][0]:,} rows)" for method in lines)
    held = found[CLUSTERS] < 1.15 and found[OURS] < 1.65
    return (
        "The paper's finding, fast cluster grows as N, the forest as N^1.5 and dense RBF components as N^3, "
        f"{'holds' if held else 'holds in part'}: over the three largest sizes of each, {words}."
    )
