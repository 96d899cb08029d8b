"""
Bayesian optimization of mixed problems: a search among cells on a forest kernel beside BoTorch's on a Matern kernel.

Each run is in a process of its own (at the smallest size, in this one): BoTorch changes settings of GPyTorch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

from .plots import finish, panels, styles
from .report import Options, Row, Table, grid, measured

PROBLEMS = ("Ackley", "LABS", "pressure vessel", "Rosenbrock", "Hartmann", "Levy", "Styblinski-Tang")
RANDOM = "random search"
METHODS = ("forest, cells", "Matern, alternating", RANDOM)


def botorch_optimizers(options: Options) -> Iterator[Table]:
    """Measure regret against seconds, and the acquisition values that searches find on the same models."""
    if find_spec("botorch") is None:
        print('[no botorch_optimizers: pip install "gpytorch_partition[botorch]"]', file=sys.stderr)
        return
    (num_points, every), seeds = options.pick((20, 4), (1, 1)), range(options.pick(3, 1))
    jobs = grid(problem=PROBLEMS, seed=seeds)
    title = f"Bayesian optimization, 10 random points and {num_points} more, or 40 seconds: regret and CPU seconds"
    runs = [{**job, "method": method} for job in jobs for method in METHODS]
    rows = yield from measured(options, "botorch_runs", title, runs, partial(options.apart, _run, num_points, every))
    rows = [row for row in rows if "error" not in row]
    medians = [_summary(name, [row for row in rows if row["problem"] == name]) for name in PROBLEMS]
    draw = partial(_draw, rows, range(0, num_points + 1, every))
    yield Table("botorch_optimizers", f"{title}: medians of {len(seeds)} runs", medians, draw=draw)
    sizes = options.pick((30, 1024, 10), (10, 16, 1))
    title = f"Log expected improvement found on the same models, forest kernels of {sizes[0]} points"
    yield from measured(options, "botorch_searches", title, jobs, partial(options.apart, _search, *sizes))


def _run(*arguments: Any) -> Row:
    from .botorch_runs import regrets

    return regrets(*arguments)


def _search(*arguments: Any) -> Row:
    from .botorch_runs import acquisitions

    return acquisitions(*arguments)


def _summary(problem: str, rows: list[Row]) -> Row:
    row: Row = {"problem": problem}
    for method in METHODS:
        if own := [each for each in rows if each["method"] == method]:
            row[f"regret: {method}"] = median(each["regret"] for each in own)
            row[f"seconds a point: {method}"] = median(each["seconds"] / each["points"] for each in own)
    return row


def _draw(rows: list[Row], numbers: range) -> Any:
    figure, drawn = panels(len(PROBLEMS) + 1, 3.0, 2.9, most=4)
    for panel, problem in zip(drawn, PROBLEMS):
        for method, look in styles(METHODS).items():
            own = [row for row in rows if (row["problem"], row["method"]) == (problem, method)]
            done = [number for number in numbers if own and all(f"regret, {number}" in row for row in own)]
            times, line = (
                [median(row[f"{what}, {number}"] for row in own) for number in done] for what in ("seconds", "regret")
            )
            if method == RANDOM:
                panel.axhline(line[-1], color=look["color"], ls=":", lw=1.5, label=f"{method}, all points")
            else:
                panel.plot(times, line, label=method, ms=5, lw=1.8, **look)
        finish(panel, problem, xlabel="seconds", ylim=(0, None))
    drawn[-1].set_axis_off()
    drawn[-1].legend(*drawn[0].get_legend_handles_labels(), loc="center", frameon=False, title="median regret")
    return figure
