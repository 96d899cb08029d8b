"""How training grows with the number of rows: one marginal likelihood with its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpytorch_partition import settings
from gpytorch_partition.models import PartitionGP

from .measure import counted_solves, growth, medians, seconds
from .problems import fast_cluster_model, friedman, likelihood_and_gradient
from .report import Bar, Options, Row, Table

LARGEST_EXPONENT = 1.4


def training(options: Options) -> Iterator[Table]:
    """Seconds per likelihood and gradient with the tolerances of `settings.iterative()`."""
    sizes = options.pick([10_000, 30_000, 100_000, 300_000], [10_000, 30_000], [2_500, 5_000])
    rows: list[Row] = []
    for num_rows in sizes:
        rows.append(_measured(num_rows, options.pick(3, 2, 1)))
    exponent = growth(sizes, [row["seconds each"] for row in rows])
    rows[-1] |= {"exponent": exponent, "bar": Bar("growth of training", exponent, at_most=LARGEST_EXPONENT)}
    title = "Training: one likelihood with gradient, FastClusterKernel (m = 100, h = 8), 10 columns, noise 0.1"
    yield Table("training", title, rows)


def _measured(num_rows: int, repetitions: int) -> Row:
    model = fast_cluster_model(*friedman(num_rows))
    first = seconds(lambda: likelihood_and_gradient(model))
    steps = {name: partial(_step, model, name) for name in ("nystrom", "none")}
    with counted_solves() as iterations:
        times = medians(steps, repetitions)
    return {
        "N": num_rows,
        "seconds for the first (labels, index, preconditioner)": first,
        "seconds each": times["nystrom"],
        "iterations": iterations[0],
        "seconds each without preconditioner": times["none"],
        "iterations without": iterations[1],
    }


def _step(model: PartitionGP, preconditioner: str) -> None:
    with settings.preconditioner(preconditioner):
        likelihood_and_gradient(model)
