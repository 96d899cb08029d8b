"""How long Mondrian trees of many rows take, and the sweep over all their lifetimes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gpytorch_partition import MondrianKernel, lifetime_sweep
from gpytorch_partition.lifetimes.sweep import LifetimeSweep

from .measure import in_own_process, peak_gib, timed
from .report import Bar, Options, Row, Table

NUM_TREES = 100
NUM_COLUMNS = 10
LIFETIME = 0.1
LONGEST = 1.0
NUM_LIFETIMES = 30
NOISE = 0.1


def mondrian_speed(options: Options) -> Iterator[Table]:
    """Minutes to lead rows down the trees, and to sweep over the lifetimes."""
    many, few = options.pick(1_000_000, 50_000, 2_000), options.pick(100_000, 10_000, 200)
    rows = [in_own_process(_grown, many), in_own_process(_swept, few)]
    yield Table("mondrian_speed", f"Mondrian kernel, {NUM_TREES} trees, {NUM_COLUMNS} standard normal columns", rows)


def _grown(num_rows: int) -> Row:
    x, _ = _problem(num_rows)
    kernel = MondrianKernel(x, NUM_TREES, lifetime=LIFETIME, random_state=0)
    rows, taken = timed(lambda: kernel(x).evaluate_kernel().left)
    return _row(f"trees of {num_rows:,} rows, lifetime {LIFETIME:g}", taken, 3.0, f"{rows.num_clusters:,} cells")


def _swept(num_rows: int) -> Row:
    x, y = _problem(num_rows)
    kernel = MondrianKernel(x, NUM_TREES, max_lifetime=LONGEST, random_state=0)
    sweep, taken = timed(lambda: lifetime_sweep(kernel, x, y, outputscale=1.0, noise=NOISE))
    what = f"sweep over {NUM_LIFETIMES} lifetimes up to {LONGEST:g}, {num_rows:,} rows"
    return _row(what, taken, 10.0, _described(sweep))


def _described(sweep: LifetimeSweep) -> str:
    exact = int((sweep.standard_error == 0).sum())
    return f"best lifetime {sweep.best_lifetime:.3g}; {exact} of {len(sweep.lifetimes)} likelihoods exact"


def _row(what: str, taken: float, most_minutes: float, found: str) -> Row:
    bar = Bar(f"minutes: {what}", taken / 60, at_most=most_minutes)
    return {"what": what, "minutes": taken / 60, "bar": bar, "peak GiB": peak_gib(), "found": found}


def _problem(num_rows: int) -> tuple[Tensor, Tensor]:
    """A smooth function of three columns, with noise; standardized."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_rows, NUM_COLUMNS, generator=generator)
    y = (2 * x[:, 0]).sin() + x[:, 1] * x[:, 2].abs() + 0.3 * torch.randn(num_rows, generator=generator)
    return x, (y - y.mean()) / y.std()
