"""Three tasks at 20,000 rows: training and predictions beside those of one task, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import gpytorch
import torch
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.kernels import MultitaskKernel
from gpytorch.likelihoods import MultitaskGaussianLikelihood

from gpytorch_partition import FastClusterKernel, RandomForestKernel

from .measure import in_own_process, peak_gib, seconds
from .problems import friedman
from .report import Bar, Options, Row, Table

STEPS, POINTS = 20, 200
KERNELS = {
    "FastClusterKernel (m = 100, h = 8)": lambda x, y: FastClusterKernel(x, 100, height=8, random_state=0),
    "RandomForestKernel (m = 100)": lambda x, y: RandomForestKernel(x, y, num_trees=100, random_state=0),
}


def tasks(options: Options) -> Iterator[Table]:
    """Seconds of training and of predictions, by number of tasks."""
    num_rows = options.pick(20_000, 5_000, 500)
    rows = [in_own_process(_job, name, num_rows, num_tasks) for name in KERNELS for num_tasks in (1, 3)]
    title = f"MultitaskKernel, {num_rows:,} rows on every task, {STEPS} Adam steps, GPyTorch's default settings"
    yield Table("tasks", title, rows)


class _Model(gpytorch.models.ExactGP):
    def __init__(self, x: torch.Tensor, y: torch.Tensor, kernel: gpytorch.kernels.Kernel) -> None:
        super().__init__(x, y, MultitaskGaussianLikelihood(y.shape[-1]))
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), y.shape[-1])
        self.covar_module = MultitaskKernel(kernel, y.shape[-1])

    def forward(self, x: torch.Tensor) -> MultitaskMultivariateNormal:
        return MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


def _problem(num_rows: int, num_tasks: int) -> tuple[torch.Tensor, ...]:
    """Friedman's function as the first task, and mixtures of it with a column as the others; and test points."""
    x, y = friedman(num_rows + POINTS)
    targets = torch.stack([y, 0.5 * y + x[:, 5], x[:, 6] - y], -1)[:, :num_tasks]
    return x[:num_rows], targets[:num_rows], x[num_rows:], targets[num_rows:]


def _job(name: str, num_rows: int, num_tasks: int) -> Row:
    torch.manual_seed(0)
    x, y, points, targets = _problem(num_rows, num_tasks)
    model = _Model(x, y, KERNELS[name](x, y))
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        (-objective(model(x), y)).backward()
        optimizer.step()

    training = sum(seconds(step) for _ in range(STEPS))
    model.eval()
    with torch.no_grad():
        predicting = seconds(lambda: model.likelihood(model(points)).variance)
        error = (model(points).mean - targets).square().mean().sqrt()
    total = training + predicting
    return {
        "kernel": name,
        "tasks": num_tasks,
        "training, seconds": training,
        f"{POINTS} means and variances of each task, seconds": predicting,
        "bar": Bar(f"seconds: {name}, {num_tasks} tasks", total, at_most=60.0),
        "RMSE": float(error),
        "peak GiB": peak_gib(),
    }
