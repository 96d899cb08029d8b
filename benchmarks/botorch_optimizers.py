"""
Bayesian optimization of mixed problems: a search among cells on a forest kernel beside BoTorch's on a Matern kernel.

Runs are in processes of their own, as many at a time as there are cores: BoTorch changes settings of GPyTorch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from itertools import product
from multiprocessing import get_context
from statistics import median
from typing import Any

from .botorch_pictures import regrets
from .methods import attempted
from .report import Options, Row, Table, again

PROBLEMS = ("Ackley", "LABS", "pressure vessel", "Rosenbrock", "Hartmann", "Levy", "Styblinski-Tang")
METHODS = ("forest, cells", "Matern, alternating", "random search")
SEARCHES = ("cells", "lattice", "random points")
NUM_FIRST = 10  # random points that all methods begin with
MOST_SECONDS = 40.0  # of a run


def botorch_optimizers(options: Options) -> Iterator[Table]:
    """Regret against seconds, and the acquisition values that searches find on the same models."""
    if find_spec("botorch") is None:
        print('[no botorch_optimizers: pip install "gpytorch_partition[botorch]"]', file=sys.stderr)
        return
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        yield from _runs(options, pool)
        yield from _searches(options, pool)


def _runs(options: Options, pool: ProcessPoolExecutor) -> Iterator[Table]:
    num_seeds, num_points, every = options.pick((3, 20, 4), (1, 8, 4), (1, 1, 1))
    title = (
        f"Bayesian optimization, {NUM_FIRST} random points and {num_points} more, or {MOST_SECONDS:g} seconds: regret "
        "and seconds of the processor after so many"
    )
    jobs = [
        {"problem": problem, "method": method, "seed": seed}
        for problem, seed, method in product(PROBLEMS, range(num_seeds), METHODS)
    ]
    rest = {"num_first": NUM_FIRST, "num_points": num_points, "every": every, "most": MOST_SECONDS}
    rows: list[Row] = []
    for row in _each(options, pool, "botorch_runs", jobs, _run, rest):
        rows.append(row)
        yield Table("botorch_runs", title, rows, complete=len(rows) == len(jobs))
    done = [row for row in rows if "error" not in row]
    summary = [_summary(problem, [row for row in done if row["problem"] == problem]) for problem in PROBLEMS]
    picture = regrets({problem: _lines(done, problem, num_points, every) for problem in PROBLEMS}, instant=METHODS[-1])
    yield Table("botorch_optimizers", f"{title}: medians of {num_seeds} runs", summary, picture=picture)


def _searches(options: Options, pool: ProcessPoolExecutor) -> Iterator[Table]:
    num_seeds, num_points, num_samples, num_restarts = options.pick((3, 30, 1024, 10), (1, 30, 256, 4), (1, 10, 16, 1))
    jobs = [{"problem": problem, "seed": seed} for problem, seed in product(PROBLEMS, range(num_seeds))]
    rest = {"num_points": num_points, "num_samples": num_samples, "num_restarts": num_restarts}
    rows = list(_each(options, pool, "botorch_searches", jobs, _search, rest))
    title = f"Log expected improvement found on the same models, forest kernels of {num_points} points"
    yield Table("botorch_searches", title, rows)


def _each(
    options: Options, pool: ProcessPoolExecutor, name: str, jobs: list[Row], work: Callable[..., Row], rest: Row
) -> Iterator[Row]:
    """The rows of all jobs, in order; those of an earlier run are taken over."""
    finished = options.finished(name)
    known = [again(finished, job) for job in jobs]
    futures = [None if row else pool.submit(work, **job, **rest) for job, row in zip(jobs, known)]
    for job, row, future in zip(jobs, known, futures):
        yield row or attempted(job, partial(_result, future))


def _result(future: Any) -> Row:
    return future.result()


def _run(**arguments: Any) -> Row:
    from .botorch_runs import regrets

    return regrets(arguments.pop("problem"), **arguments)


def _search(**arguments: Any) -> Row:
    from .botorch_runs import acquisitions

    return acquisitions(arguments.pop("problem"), **arguments)


def _summary(problem: str, rows: list[Row]) -> Row:
    """Median regrets and seconds of the methods, and which has the least regret."""
    found = {method: [row for row in rows if row["method"] == method] for method in METHODS}
    regrets = {method: median(row["regret"] for row in each) for method, each in found.items() if each}
    seconds = {method: median(row["seconds"] / row["points"] for row in each) for method, each in found.items() if each}
    return {
        "problem": problem,
        **{f"regret: {method}": regret for method, regret in regrets.items()},
        "least": min(regrets, key=lambda method: regrets[method]),
        **{f"seconds a point: {method}": value for method, value in seconds.items() if method != METHODS[-1]},
    }


def _lines(rows: list[Row], problem: str, num_points: int, every: int) -> dict[str, list[tuple[float, float]]]:
    """For each method median seconds and median regret, after every few points that all its runs have."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for method, number in product(METHODS, range(0, num_points + 1, every)):
        runs = [row for row in rows if (row["problem"], row["method"]) == (problem, method)]
        if runs and all(f"regret, {number}" in row for row in runs):
            point = tuple(median(row[f"{what}, {number}"] for row in runs) for what in ("seconds", "regret"))
            lines.setdefault(method, []).append(point)
    return lines
