"""
Products, fits and predictions on the CPU and on a GPU, beside the bandwidth of their memory.

    python -m benchmarks devices   # rows of the GPU only where there is one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel, fit_exact_gp, settings

from .datasets import friedman
from .processes import model_of
from .report import Options, Row, Table, grid, measured, medians, timed

M, POINTS, DRAWS, COLUMNS = 100, 10_000, 16, (1, 16, 64)
READ = 2**28  # numbers read to measure the bandwidth, a GiB: more than any cache holds
KERNELS: dict[str, Callable[[Tensor, Tensor], Kernel]] = {
    "forest": lambda x, y: RandomForestKernel(x, y, M, random_state=0),
    "fast cluster": lambda x, y: FastClusterKernel(x, M, random_state=0),
    "Mondrian": lambda x, y: MondrianKernel(x, M, lifetime=0.1, random_state=0),
}


def devices(options: Options) -> Iterator[Table]:
    """Measure one product of 1 to 64 columns, a fit, 10,000 means and standard deviations, and 16 joint samples."""
    num_rows = options.pick(100_000, 2_000)
    x, y = (values.float() for values in friedman(num_rows + POINTS))
    names = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)

    def figures(name: str, device: str) -> Row:
        model = model_of(x[:num_rows], y[:num_rows], KERNELS[name](x[:num_rows], y[:num_rows])).to(device)
        products = _products(model.covar_module, model.train_inputs[0], device, options)
        return products | _jobs(model, x[num_rows:].to(device))

    title = f"{num_rows:,} rows of 10 columns, {M} partitions, float32: a product, a fit, {POINTS:,} new points"
    yield from measured(options, "devices", title, grid(kernel=KERNELS, device=names), figures)


def _products(kernel: Kernel, x: Tensor, device: str, options: Options) -> Row:
    """Return milliseconds, and their ratio to those of reading ids and vectors once."""
    covariance, read = kernel(x).evaluate_kernel().detach(), torch.empty(options.pick(READ, 2**20), device=device)
    values = {columns: torch.randn(len(x), columns, device=device) for columns in COLUMNS}
    calls = {columns: partial(_waited, covariance.matmul, values[columns]) for columns in COLUMNS}
    with torch.no_grad():
        times = medians(calls | {0: partial(_waited, read.sum)}, options.pick(9, 1))
    reading = {columns: times[0] / len(read) * len(x) * (M + 2 * columns) for columns in COLUMNS}
    found: Row = {f"{columns} col., ms": 1000 * times[columns] for columns in COLUMNS}
    return found | {f"{columns} col. / read": times[columns] / reading[columns] for columns in COLUMNS}


def _jobs(model: Any, points: Tensor) -> Row:
    def draws() -> Tensor:
        return model(points[:1_000]).sample(torch.Size([DRAWS]))

    _, fit = timed(partial(_waited, fit_exact_gp, model, model.likelihood))
    model.eval()
    with torch.no_grad(), settings.iterative():
        calls = {"means": lambda: model(points).mean, "deviations": lambda: model(points).variance, "samples": draws}
        return {"fit, s": fit} | {f"{name}, s": timed(partial(_waited, call))[1] for name, call in calls.items()}


def _waited(call: Callable[..., Any], *arguments: Any) -> None:
    call(*arguments)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
