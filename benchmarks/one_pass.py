"""Fitting in one pass against Adam, and a whole job with a million rows, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import torch

from gpytorch_partition import fit_exact_gp, settings
from gpytorch_partition.models import PartitionGP

from .measure import held_gib, in_own_process, peak_gib, seconds
from .problems import adam, fast_cluster_model, friedman
from .report import Bar, Options, Row, Table

STEPS, POINTS = 100, 10_000
LEAST_RATIO = 20.0


def one_pass(options: Options) -> Iterator[Table]:
    """Seconds of a fit and of Adam, and the likelihoods reached; then minutes and memory of a whole job."""
    sizes = options.pick([10_000, 30_000], [3_000], [2_100])
    steps = options.pick(STEPS, 20, 2)
    rows = [in_own_process(_against_adam, num_rows, steps) for num_rows in sizes]
    title = (
        f"fit_exact_gp against {steps} Adam steps (learning rate 0.1), FastClusterKernel (m = 100, h = 8), 10 columns"
    )
    yield Table("one_pass", title, rows)
    job = in_own_process(_whole_job, options.pick(1_000_000, 30_000, 2_500))
    yield Table("one_pass_jobs", f"A whole job: a fit, and {POINTS:,} means and standard deviations", [job])


def _against_adam(num_rows: int, steps: int) -> Row:
    x, y = friedman(num_rows)
    fitted, trained = fast_cluster_model(x, y), fast_cluster_model(x, y)
    fitted.covar_module(x).evaluate_kernel() @ y  # labels are common to both
    fit_seconds = seconds(lambda: fit_exact_gp(fitted, fitted.likelihood))
    trained.covar_module(x).evaluate_kernel() @ y
    with settings.iterative():
        adam_seconds = seconds(lambda: adam(trained, steps))
    return {
        "N": num_rows,
        "fit, seconds": fit_seconds,
        "Adam, seconds": adam_seconds,
        "log likelihood per row, fit": _likelihood(fitted),
        "log likelihood per row, Adam": _likelihood(trained),
        "Adam / fit": adam_seconds / fit_seconds,
        "bar": Bar("100 Adam steps / fit_exact_gp", adam_seconds / fit_seconds, at_least=LEAST_RATIO),
    }


def _likelihood(model: PartitionGP) -> float:
    """By one Lanczos run at the values reached, with the same probe vectors for all."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    fit = fit_exact_gp(model, model.likelihood)
    return fit.log_marginal_likelihood / len(model.train_targets)


def _whole_job(num_rows: int) -> Row:
    x, y = friedman(num_rows)
    points = torch.randn(POINTS, x.shape[1], generator=torch.Generator().manual_seed(0))
    before, start = held_gib(), perf_counter()
    model = fast_cluster_model(x, y)
    parts = {"labels": seconds(lambda: model.covar_module(x).evaluate_kernel())}
    fits = []
    parts["fit"] = seconds(lambda: fits.append(fit_exact_gp(model, model.likelihood)))
    model.eval()
    with torch.no_grad(), settings.iterative():
        posterior = model(points)
        parts["means"] = seconds(lambda: posterior.mean)
        parts["standard deviations"] = seconds(lambda: posterior.stddev)
    minutes, peak, what = (perf_counter() - start) / 60, peak_gib() - before, f"PartitionGP ({fits[0].method})"
    return {
        "model": f"{what}, m = 100, h = 8",
        "N": num_rows,
        "minutes": minutes,
        "bar for the minutes": Bar(f"minutes, {what}", minutes, at_most=5.0),
        "GiB beyond the data": peak,
        "bar for the memory": Bar(f"GiB beyond the data, {what}", peak, at_most=8.0),
        "seconds": ", ".join(f"{name} {value:.1f}" for name, value in parts.items()),
    }
