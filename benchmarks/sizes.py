"""
Whole jobs from a thousand rows to ten million, each in a process of its own, beside what else there is.

Small sizes come first, and each row is written when it is there: a run that is stopped leaves what it has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import product
from math import inf
from typing import Any

from gpytorch_partition.models import FeatureSpaceGP

from .competitors import SVGP, ExactRBF, ScikitLearnForest, SparseRidge
from .measure import growth, held_gib, in_own_process, in_this_process, peak_gib, seconds, timed
from .methods import Method, PartitionKernelGP, Prediction, attempted, measured, scores
from .pictures import totals
from .problems import equal_clusters_kernel, friedman_chunk
from .report import Bar, Options, Row, Table, again

POINTS, CHUNK = 10_000, 2**18
FAST_CLUSTER, FOREST = (PartitionKernelGP(kernel, 1).name for kernel in ("fast cluster", "forest"))
STREAM = "FeatureSpaceGP, rows in chunks"
MOST_SECONDS_OF_A_STEP, MOST_ROWS_OF_EXACT_RBF = 30.0, 10_000

LARGEST_EXPONENTS = {"feature_space": 1.1, "krylov": 1.4}


def sizes(options: Options) -> Iterator[Table]:
    """Seconds, memory and quality: of rows that are generated in chunks, of all methods, and how they grow."""
    run = options.pick(in_own_process, in_own_process, in_this_process)
    streamed: list[Row] = []
    yield from _streamed(options, run, streamed)
    points, (rbf_steps, svgp_steps), rows = _points(options), _steps(options), []
    title = (
        f"Whole jobs, 10 columns, {points:,} points predicted (exact RBF: {rbf_steps:,} Adam steps; SVGP: "
        f"{svgp_steps:,} steps of 1,024 rows; scipy.sparse: hyperparameters not fitted)"
    )
    finished = options.finished("sizes")
    for method, num_rows in _plan(options):
        job = {"method": method.name, "N": num_rows, "m": method.num_partitions}
        rows.append(again(finished, job) or attempted(job, partial(run, measured, method, num_rows, points)))
        yield Table("sizes", title, rows, complete=False)
    first, last = _ends(options)
    _judge(rows, *_partitions(options), last)
    yield Table("sizes", title, rows, picture=_picture(streamed + rows, _partitions(options)[0], points))
    yield Table("sizes_growth", f"Exponents of seconds from N = {first:,} to {last:,}", _exponents(rows, first, last))


def _points(options: Options) -> int:
    return options.pick(POINTS, 1_000, 50)


def _steps(options: Options) -> tuple[int, int]:
    """Of the exact RBF GPs and of the variational one."""
    return options.pick((30, 2_000), (3, 30), (2, 2))


def _partitions(options: Options) -> tuple[int, int]:
    """The fewer, and the forest kernel's default."""
    return options.pick((100, 200), (100, 200), (5, 10))


def _sizes(options: Options) -> list[int]:
    return options.pick([1_000, 10_000, 100_000, 1_000_000], [1_000, 5_000], [300, 2_100])


def _ends(options: Options) -> tuple[int, int]:
    """Between which sizes growth is measured."""
    return options.pick(10_000, 1_000, 300), _sizes(options)[-1]


def _plan(options: Options) -> Iterator[tuple[Method, int]]:
    """All jobs, small sizes first, and the forest kernel, which takes longest, last of a size."""
    (rbf_steps, svgp_steps), (num_trees, num_inducing) = _steps(options), options.pick((100, 512), (100, 512), (5, 20))
    for num_rows in _sizes(options):
        for kernel, m in product(("fast cluster", "Mondrian"), _partitions(options)):
            yield PartitionKernelGP(kernel, m), num_rows
        yield SparseRidge(_partitions(options)[0]), num_rows
        yield SVGP(num_inducing, svgp_steps, batch=1_024), num_rows
        yield ScikitLearnForest(num_trees), num_rows
        yield ScikitLearnForest(num_trees, n_jobs=-1), num_rows
        if num_rows <= MOST_ROWS_OF_EXACT_RBF:
            for solver in ("CG", "Cholesky"):
                yield ExactRBF(solver, rbf_steps, MOST_SECONDS_OF_A_STEP), num_rows
        for m in _partitions(options):
            yield PartitionKernelGP("forest", m), num_rows


def _judge(rows: list[Row], fewer: int, default: int, largest: int) -> None:
    """Write bars into rows of the largest size; a job that failed misses them."""
    cluster, forest = _found(rows, FAST_CLUSTER, largest, fewer), _found(rows, FOREST, largest, default)
    cluster |= _bars(FAST_CLUSTER, cluster, 5.0)
    others = [row for row in rows if row["method"].startswith("scikit-learn") and row["N"] == largest]
    for column, other in zip(("bar for the time", "bar for the time, all cores"), others, strict=True):
        ratio = forest.get("seconds, total", inf) / other.get("seconds, training", 1e-9)
        forest[column] = Bar(f"seconds, {FOREST} / fit of {other['method']}", ratio, at_most=2.0)


def _bars(what: str, row: Row, most_minutes: float) -> Row:
    minutes, peak = row.get("seconds, total", inf) / 60, row.get("GiB beyond the data", inf)
    return {
        "bar for the time": Bar(f"minutes, {what}, N = {row['N']:,}", minutes, at_most=most_minutes),
        "bar for the memory": Bar(f"GiB beyond the data, {what}, N = {row['N']:,}", peak, at_most=8.0),
    }


def _found(rows: list[Row], method: str, num_rows: int, num_partitions: int) -> Row:
    asked = (method, num_rows, num_partitions)
    return next(row for row in rows if (row["method"], row["N"], row["m"]) == asked)


def _exponents(rows: list[Row], first: int, last: int) -> list[Row]:
    ours = [row for row in rows if row["method"].startswith("GP, ") and row["N"] == last]
    return [_exponent(_found(rows, row["method"], first, row["m"]), row) for row in ours]


def _exponent(small: Row, large: Row) -> Row:
    """How one kernel grows; the bar is the feature space's if that was the way to train at both ends."""
    ends, ways = (small, large), [row.get("fitted by", "failed") for row in (small, large)]
    parts = ("training", "total")
    grown = dict.fromkeys(parts, inf)
    if "failed" not in ways:
        grown = {part: growth([row["N"] for row in ends], [row[f"seconds, {part}"] for row in ends]) for part in parts}
    limit = LARGEST_EXPONENTS["feature_space" if set(ways) == {"feature_space"} else "krylov"]
    return {
        "method": large["method"],
        "m": large["m"],
        **{f"exponent of {part}": exponent for part, exponent in grown.items()},
        "fitted by": " and ".join(dict.fromkeys(ways)),
        "bar for training": Bar(f"growth of training, {large['method']}", grown["training"], at_most=limit),
    }


def _streamed(options: Options, run: Callable[..., Row], rows: list[Row]) -> Iterator[Table]:
    """Rows that are generated, counted and forgotten."""
    m, num_clusters = options.pick((50, 64), (50, 64), (5, 8))
    title = f"FeatureSpaceGP, rows generated in chunks and forgotten, m = {m}, {num_clusters} clusters a partition"
    finished = options.finished("sizes_streamed")
    for num_rows in options.pick([10_000, 100_000, 1_000_000, 10_000_000], [10_000, 100_000], [2_500, 3_000]):
        job = {"method": STREAM, "N": num_rows, "m": m}
        measure = partial(run, _counted, num_rows, m, num_clusters, _points(options))
        rows.append(again(finished, job) or attempted(job, measure))
        yield Table("sizes_streamed", title, rows, complete=False)
    ends = rows[-2:]
    exponent = inf
    if not any("error" in row for row in ends):
        exponent = growth([row["N"] for row in ends], [row["seconds, counting"] + row["seconds, fit"] for row in ends])
    rows[-1] |= _bars(STREAM, rows[-1], 10.0)
    rows[-1] |= {
        "exponent of counting and fit": exponent,
        "bar for the exponent": Bar(f"growth, {STREAM}", exponent, at_most=LARGEST_EXPONENTS["feature_space"]),
    }
    yield Table("sizes_streamed", title, rows)


def _counted(num_rows: int, num_partitions: int, num_clusters: int, num_points: int) -> Row:
    x, _ = friedman_chunk(0, min(num_rows, CHUNK))
    points, targets = friedman_chunk(-1, num_points)
    before = held_gib()
    model = FeatureSpaceGP(equal_clusters_kernel(x, num_partitions, num_clusters))
    chunks = [(i, min(CHUNK, num_rows - first)) for i, first in enumerate(range(0, num_rows, CHUNK))]
    count = seconds(lambda: model.add_chunks((friedman_chunk(*each) for each in chunks), len(chunks)))
    values, fit = timed(model.fit)
    (mean, variance), predict = timed(partial(model.predict, points))
    return {
        "seconds, counting": count,
        "seconds, fit": fit,
        "seconds, prediction": predict,
        "seconds, total": count + fit + predict,
        "GiB beyond the data": peak_gib() - before,
        **scores(targets, Prediction(mean, (variance + values.noise).sqrt())),
    }


def _picture(rows: list[Row], num_partitions: int, points: int) -> Any:
    """Total seconds of what ran with the fewer partitions; nothing without matplotlib."""
    if find_spec("matplotlib") is None:
        print('[no sizes.png: matplotlib is missing, pip install "gpytorch_partition[plot]"]', file=sys.stderr)
        return None
    ours: dict[str, list[tuple[int, float]]] = {}
    others: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if "error" not in row and (row["m"] or 0) <= num_partitions:
            lines = ours if row["method"].startswith(("GP, ", STREAM)) else others
            name = f"{row['method']}, m = {row['m']}" if row["m"] else row["method"]
            lines.setdefault(name, []).append((row["N"], row["seconds, total"]))
    return totals(ours, others, f"Time to train and to predict {points:,} points, 10 columns")
