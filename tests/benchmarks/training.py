"""How training grows with the number of rows: one marginal likelihood with its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from .measure import counted_solves, growth, seconds
from .problems import fast_cluster_model, friedman, likelihood_and_gradient
from .report import Bar, Options, Row, Table

LARGEST_EXPONENT = 1.4


def training(options: Options) -> Iterator[Table]:
    """Seconds per likelihood and gradient with the tolerances of `settings.iterative()`."""
    sizes = options.pick([10_000, 30_000, 100_000, 300_000], [10_000, 30_000], [1_000, 3_000])
    rows: list[Row] = []
    for num_rows in sizes:
        rows.append(_measured(num_rows, options.pick(3, 2, 1)))
        times = [row["seconds each"] for row in rows]
    exponent = growth(sizes, times)
    rows[-1] |= {"exponent": exponent, "bar": Bar("growth of training", exponent, at_most=LARGEST_EXPONENT)}
    title = "Training: one likelihood with gradient, FastClusterKernel (m = 100, h = 8), 10 columns, noise 0.1"
    yield Table("training", title, rows)


def _measured(num_rows: int, repetitions: int) -> Row:
    model = fast_cluster_model(*friedman(num_rows))
    first = seconds(lambda: likelihood_and_gradient(model))
    with counted_solves() as iterations:
        times = [seconds(lambda: likelihood_and_gradient(model)) for _ in range(repetitions)]
    return {
        "N": num_rows,
        "seconds for the first (labels, index, preconditioner)": first,
        "seconds each": median(times),
        "iterations": max(iterations),
    }
