"""Fitting in one pass against Adam, and whole jobs with a million rows and with ten, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import gpytorch
import torch
from torch import Tensor

from gpytorch_partition import FastClusterKernel, fit_exact_gp, settings
from gpytorch_partition.models import FeatureSpaceGP, PartitionGP

from .measure import in_own_process, peak_gib, seconds
from .problems import fast_cluster_model, friedman
from .report import Bar, Options, Row, Table

STEPS, POINTS, CHUNK = 100, 10_000, 2**18
LEAST_RATIO = 20.0


def one_pass(options: Options) -> Iterator[Table]:
    """Seconds of a fit and of Adam, and the likelihoods reached; then minutes and memory of whole jobs."""
    sizes = options.pick([10_000, 30_000], [3_000], [2_100])
    steps = options.pick(STEPS, 20, 2)
    rows = [in_own_process(_against_adam, num_rows, steps) for num_rows in sizes]
    title = (
        f"fit_exact_gp against {steps} Adam steps (learning rate 0.1), FastClusterKernel (m = 100, h = 8), 10 columns"
    )
    yield Table("one_pass", title, rows)
    million, ten = options.pick((1_000_000, 10_000_000), (30_000, 100_000), (2_500, 3_000))
    jobs = [in_own_process(_whole_job, million), in_own_process(_counted_job, ten)]
    yield Table("one_pass_jobs", f"Whole jobs: a fit, and {POINTS:,} means and standard deviations", jobs)


def _against_adam(num_rows: int, steps: int) -> Row:
    x, y = friedman(num_rows)
    fitted, trained = fast_cluster_model(x, y), fast_cluster_model(x, y)
    fitted.covar_module(x).evaluate_kernel() @ y  # labels are common to both
    fit_seconds = seconds(lambda: fit_exact_gp(fitted, fitted.likelihood))
    trained.covar_module(x).evaluate_kernel() @ y
    adam_seconds = seconds(lambda: _adam(trained, y, steps))
    return {
        "N": num_rows,
        "fit, seconds": fit_seconds,
        "Adam, seconds": adam_seconds,
        "log likelihood per row, fit": _likelihood(fitted),
        "log likelihood per row, Adam": _likelihood(trained),
        "Adam / fit": adam_seconds / fit_seconds,
        "bar": Bar("100 Adam steps / fit_exact_gp", adam_seconds / fit_seconds, at_least=LEAST_RATIO),
    }


def _adam(model: PartitionGP, y: Tensor, steps: int) -> None:
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    with settings.iterative():
        for _ in range(steps):
            optimizer.zero_grad()
            (-objective(model(*model.train_inputs), y)).backward()
            optimizer.step()


def _likelihood(model: PartitionGP) -> float:
    """By one Lanczos run at the values reached, with the same probe vectors for all."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    fit = fit_exact_gp(model, model.likelihood)
    return fit.log_marginal_likelihood / len(model.train_targets)


def _whole_job(num_rows: int) -> Row:
    x, y = friedman(num_rows)
    points = torch.randn(POINTS, x.shape[1], generator=torch.Generator().manual_seed(0))
    before, start = peak_gib(), perf_counter()
    model = fast_cluster_model(x, y)
    parts = {"labels": seconds(lambda: model.covar_module(x).evaluate_kernel())}
    fits = []
    parts["fit"] = seconds(lambda: fits.append(fit_exact_gp(model, model.likelihood)))
    model.eval()
    with torch.no_grad(), settings.iterative():
        posterior = model(points)
        parts["means"] = seconds(lambda: posterior.mean)
        parts["standard deviations"] = seconds(lambda: posterior.stddev)
    return _job(f"PartitionGP ({fits[0].method}), m = 100, h = 8", num_rows, start, before, parts, 5.0, 8.0)


def _counted_job(num_rows: int) -> Row:
    """Rows generated chunk by chunk, counted and forgotten."""
    x, y = _chunk(0, min(num_rows, CHUNK))
    points, before, start = _chunk(-1, POINTS)[0], peak_gib(), perf_counter()
    model = FeatureSpaceGP(FastClusterKernel(x, 50, height=8, random_state=0))
    chunks = [(i, min(CHUNK, num_rows - first)) for i, first in enumerate(range(0, num_rows, CHUNK))]
    parts = {"counting": seconds(lambda: model.add_chunks((_chunk(*each) for each in chunks), len(chunks)))}
    parts["fit"] = seconds(model.fit)
    parts["means and standard deviations"] = seconds(lambda: model.predict(points))
    return _job("FeatureSpaceGP, m = 50, h = 8", num_rows, start, before, parts, 10.0, 8.0)


def _chunk(number: int, num_rows: int) -> tuple[Tensor, Tensor]:
    """Standardized rows and targets of Friedman's first function, a chunk of an endless stream."""
    generator = torch.Generator().manual_seed(1_000 + number)
    x = torch.rand(num_rows, 10, generator=generator)
    y = 10 * (torch.pi * x[:, 0] * x[:, 1]).sin() + 20 * (x[:, 2] - 0.5).square() + 10 * x[:, 3] + 5 * x[:, 4]
    y = y + torch.randn(num_rows, generator=generator)
    return (x - 0.5) * 12**0.5, (y - 14.4) / 5


def _job(
    what: str, num_rows: int, start: float, before: float, parts: Row, most_minutes: float, most_gib: float
) -> Row:
    minutes, peak = (perf_counter() - start) / 60, peak_gib() - before
    return {
        "model": what,
        "N": num_rows,
        "minutes": minutes,
        "bar for the minutes": Bar(f"minutes, {what}", minutes, at_most=most_minutes),
        "GiB beyond the data": peak,
        "bar for the memory": Bar(f"GiB beyond the data, {what}", peak, at_most=most_gib),
        "seconds": ", ".join(f"{name} {value:.1f}" for name, value in parts.items()),
    }
