"""Whole jobs, each in a process of its own: training and predicting with 100,000 rows, a likelihood with 1,000,000."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import gpytorch
import torch

from gpytorch_partition import settings

from .measure import in_own_process, peak_gib, seconds
from .problems import fast_cluster_model, friedman, likelihood_and_gradient
from .report import Bar, Options, Row, Table

STEPS, MEANS, VARIANCES = 20, 10_000, 100


def issue_bars(options: Options) -> Iterator[Table]:
    """Minutes and peak memory."""
    small = options.pick(100_000, 10_000, 1_000)
    large = options.pick(1_000_000, 50_000, 2_000)
    task = f"{STEPS} Adam steps, {MEANS:,} means, {VARIANCES} variances, N = {small:,}"
    rows = [
        in_own_process(_measured, _train_and_predict, small, task, 15.0, 6.0),
        in_own_process(_measured, _one_likelihood, large, f"one likelihood with gradient, N = {large:,}", 5.0, 12.0),
    ]
    yield Table("issue_bars", "Whole jobs, FastClusterKernel (m = 100, h = 8), 10 columns", rows)


def _measured(job: Callable[[int], Row], num_rows: int, task: str, most_minutes: float, most_memory: float) -> Row:
    parts = job(num_rows)
    minutes, peak = sum(parts.values()) / 60, peak_gib()
    return {
        "job": task,
        "minutes": minutes,
        "bar for the minutes": Bar(f"minutes: {task}", minutes, at_most=most_minutes),
        "peak GiB": peak,
        "bar for the memory": Bar(f"peak GiB: {task}", peak, at_most=most_memory),
        "seconds": ", ".join(f"{name} {value:.1f}" for name, value in parts.items()),
    }


def _train_and_predict(num_rows: int) -> Row:
    x, y = friedman(num_rows)
    points = torch.randn(MEANS, x.shape[1], generator=torch.Generator().manual_seed(0))
    model = fast_cluster_model(x, y)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        (-objective(model(x), y)).backward()
        optimizer.step()

    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    with settings.iterative():
        parts = {"first step": seconds(step), "other steps": sum(seconds(step) for _ in range(STEPS - 1))}
        model.eval()
        with torch.no_grad():
            parts["means"] = seconds(lambda: model(points).mean)
            parts["variances"] = seconds(lambda: model(points[:VARIANCES]).variance)
    return parts


def _one_likelihood(num_rows: int) -> Row:
    model = fast_cluster_model(*friedman(num_rows))
    return {"likelihood and gradient": seconds(lambda: likelihood_and_gradient(model))}
