"""Seconds and memory of products, labels, training and whole jobs, up to a million rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gpytorch
import numpy as np
import scipy.sparse
import torch
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.kernels import MultitaskKernel
from gpytorch.likelihoods import MultitaskGaussianLikelihood
from joblib.externals.loky import get_reusable_executor
from torch import Tensor

from gpytorch_partition import (
    FastClusterKernel,
    MondrianKernel,
    PartitionKernel,
    RandomForestKernel,
    fit_exact_gp,
    lifetime_sweep,
    settings,
)
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.operators import PartitionLinearOperator
from gpytorch_partition.partitions.fast_cluster import FastClusterPartition
from gpytorch_partition.partitions.forest import ForestPartition
from gpytorch_partition.partitions.grown_forest import grow_forest
from gpytorch_partition.partitions.mondrian.mondrian_partition import MondrianPartition

from .datasets import friedman
from .processes import adam, fast_cluster_model, flat_operator, likelihood_and_gradient, random_clusters
from .report import Options, Row, Table, grid, growth, held_gib, measured, medians, peak_gib, seconds, timed

M, NUM_CLUSTERS = 100, 256
POINTS, STEPS = 10_000, 20


def product(options: Options) -> Iterator[Table]:
    """Compare a product with the covariance with sparse features times their transpose, F (F^T V)."""
    num_rows, m = options.pick(200_000, 2_000), 200
    rows = random_clusters(num_rows, m, NUM_CLUSTERS)
    starts = np.arange(0, rows.codes.numel() + 1, m, dtype=np.int32)

    def compared(name: str, columns: int) -> Row:
        dtype = getattr(torch, name)
        values = torch.randn(num_rows, columns, dtype=dtype, generator=torch.Generator().manual_seed(columns))
        entries = np.full(rows.codes.numel(), m**-0.5, name), rows.codes.numpy().ravel(), starts
        features = scipy.sparse.csr_array(entries, shape=(num_rows, rows.num_clusters))
        transpose, right = features.T.tocsr(), values.numpy()
        covariance = flat_operator(rows, dtype)
        calls = {"ours": partial(covariance.matmul, values), "scipy": lambda: features @ (transpose @ right)}
        torch.testing.assert_close(calls["ours"](), torch.from_numpy(calls["scipy"]()), rtol=1e-3, atol=1e-3)
        times = medians(calls, options.pick(9, 1))
        milliseconds = {f"{way}, ms": 1000 * time for way, time in times.items()}
        return {**milliseconds, "scipy / ours": times["scipy"] / times["ours"]}

    jobs = grid(dtype=("float32", "float64"), columns=(1, 4, 16))
    title = f"Product K V, N = {num_rows:,}, m = {m}, {NUM_CLUSTERS} clusters a partition, beside scipy.sparse CSR"
    yield from measured(options, "product", title, jobs, compared)


def scaling(options: Options) -> Iterator[Table]:
    """Measure how one product grows with the rows, and the bytes that are held for a row and partition."""
    sizes = options.pick([10_000, 100_000, 1_000_000], [1_000, 4_000])
    jobs = grid(kernel=("random clusters", "random clusters, float64", "forest, default trees"))
    title = f"Growth of one product K V of 1 and 16 columns from N = {sizes[0]:,} to {sizes[-1]:,}, m = {M}"
    grown = partial(options.apart, _grown, sizes, options.pick(9, 1))
    yield from measured(options, "scaling", title, jobs, grown)


def _grown(sizes: list[int], repetitions: int, name: str) -> Row:
    times: list[dict[int, float]] = []
    for num_rows in sizes:
        covariance = _covariance(name, num_rows)
        values = torch.randn(num_rows, 16, dtype=covariance.dtype)
        calls = {columns: partial(covariance.matmul, values[:, :columns].contiguous()) for columns in (1, 16)}
        times.append(medians(calls, repetitions))
    exponents = {f"exponent, {c} col.": growth(sizes, [time[c] for time in times]) for c in (1, 16)}
    last = {f"ms, {columns} col.": 1000 * time for columns, time in times[-1].items()}
    return {**exponents, **last, "bytes": _bytes(covariance.left) / (sizes[-1] * M), "peak GiB": peak_gib()}


def _covariance(name: str, num_rows: int) -> PartitionLinearOperator:
    if name == "forest, default trees":
        x, y = friedman(num_rows)
        return RandomForestKernel(x, y, M, random_state=0)(x).evaluate_kernel().detach()
    dtype = torch.float64 if name.endswith("float64") else torch.float32
    return flat_operator(random_clusters(num_rows, M, NUM_CLUSTERS), dtype)


def _bytes(owner: Any) -> int:
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in _tensors(owner)}
    return sum(storage.nbytes() for storage in storages.values())


def _tensors(value: Any) -> Iterator[Tensor]:
    if torch.is_tensor(value):
        yield value
    elif isinstance(value, dict | tuple | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)
    elif type(value).__module__.startswith("gpytorch_partition"):
        yield from _tensors(vars(value))


_SOURCES: dict[str, Callable[[Tensor, Tensor, int], Any]] = {
    "extra-trees (defaults)": lambda x, y, n: ForestPartition(grow_forest(x, y, num_trees=M, random_state=0, n_jobs=n)),
    "fast cluster (h = 8)": lambda x, y, n: FastClusterPartition(x, M, height=8, random_state=0),
    "Mondrian trees": lambda x, y, n: MondrianPartition(x, M, random_state=0),
}


def labelling(options: Options) -> Iterator[Table]:
    """Measure the seconds to build partitions, and to label the rows that they are built on."""
    num_rows = options.pick(1_000_000, 2_000)
    title = f"Labelling {num_rows:,} x 10 rows with {M} partitions (seconds)"
    jobs = grid(partitions=_SOURCES)
    yield from measured(options, "labelling", title, jobs, partial(options.apart, _labelled, num_rows))


def _labelled(num_rows: int, source: str) -> Row:
    x, y = friedman(num_rows)
    partition, building = timed(lambda: _SOURCES[source](x, y, 1))
    return {"building": building, "labelling": seconds(lambda: partition.incidences(x, x)), "peak GiB": peak_gib()}


def threads(options: Options) -> Iterator[Table]:
    """Measure building, labelling and products with one thread, two, and all of them (5.3 of the forest kernel)."""
    num_rows, most = options.pick(200_000, 2_000), torch.get_num_threads()
    title = f"{num_rows:,} x 10 rows, {M} partitions: seconds by the number of threads"
    jobs = grid(partitions=_SOURCES, threads=sorted({1, min(2, most), most}))
    yield from measured(options, "threads", title, jobs, partial(options.apart, _threaded, num_rows))


def _threaded(num_rows: int, source: str, number: int) -> Row:
    torch.set_num_threads(number)
    x, y = friedman(num_rows)
    _SOURCES[source](x[:1_000], y[:1_000], number)  # starts joblib's processes
    partition, building = timed(lambda: _SOURCES[source](x, y, number))
    covariance, labelling = timed(lambda: PartitionKernel(partition)(x).evaluate_kernel())
    row = {"building": building, "labelling": labelling}
    calls = {columns: partial(covariance.matmul, torch.randn(num_rows, columns)) for columns in (1, 16)}
    row |= {f"product, {columns} col.": time for columns, time in medians(calls, 9).items()}
    get_reusable_executor().shutdown()  # joblib's processes, for which the end of this one would wait five minutes
    return row


def training(options: Options) -> Iterator[Table]:
    """Measure how one marginal likelihood with its gradient grows with the rows."""
    sizes = options.pick([10_000, 30_000, 100_000, 300_000], [2_100, 2_500])

    def title(rows: list[Row]) -> str:
        exponent = growth([row["N"] for row in rows], [row["seconds"] for row in rows]) if len(rows) > 1 else 1
        return f"One likelihood with gradient, FastClusterKernel (m = 100, h = 8), noise 0.1: N^{exponent:.2f}"

    def taken(num_rows: int) -> Row:
        model = fast_cluster_model(*friedman(num_rows))
        return {"seconds": medians({"": partial(likelihood_and_gradient, model)}, options.pick(3, 1))[""]}

    yield from measured(options, "training", title, grid(N=sizes), taken)


def one_pass(options: Options) -> Iterator[Table]:
    """Compare a fit in one pass with Adam: seconds, and the likelihoods reached."""
    sizes, steps = options.pick([10_000, 30_000], [2_100]), options.pick(100, 2)
    title = f"fit_exact_gp against {steps} Adam steps (learning rate 0.1), FastClusterKernel (m = 100, h = 8)"
    jobs = grid(N=sizes)
    yield from measured(options, "one_pass", title, jobs, partial(options.apart, _against_adam, steps))


def _against_adam(steps: int, num_rows: int) -> Row:
    x, y = friedman(num_rows)
    fitted, trained = fast_cluster_model(x, y), fast_cluster_model(x, y)
    for model in (fitted, trained):
        model.covar_module(x).evaluate_kernel() @ y  # labels are common to both
    fit = seconds(lambda: fit_exact_gp(fitted, fitted.likelihood))
    with settings.iterative():
        other = seconds(lambda: adam(trained, steps))
    likelihoods = {
        f"log likelihood per row, {name}": _likelihood(each) for name, each in (("fit", fitted), ("Adam", trained))
    }
    return {"fit, seconds": fit, "Adam, seconds": other, "Adam / fit": other / fit, **likelihoods}


def _likelihood(model: PartitionGP) -> float:
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return fit_exact_gp(model, model.likelihood).log_marginal_likelihood / len(model.train_targets)


def whole_jobs(options: Options) -> Iterator[Table]:
    """Measure whole jobs with a fast cluster kernel and with Mondrian trees, each in a process of its own."""
    small, large = options.pick(100_000, 300), options.pick(1_000_000, 500)
    sizes = {"fit in one pass": large, "Adam": small, "one likelihood with gradient": large}
    sizes |= {"Mondrian trees": large, "sweep over lifetimes": options.pick(100_000, 200)}
    jobs = [{"job": job, "N": size} for job, size in sizes.items()]
    title = f"Whole jobs of 10 columns, {M} partitions ({POINTS:,} means; {STEPS} Adam steps)"
    yield from measured(options, "whole_jobs", title, jobs, partial(options.apart, _whole))


def _whole(job: str, num_rows: int) -> Row:
    before = held_gib()
    parts = _JOBS[job](num_rows)
    times = {name: value for name, value in parts.items() if isinstance(value, float)}
    told = ", ".join(f"{name} {value:.1f}" if name in times else f"{value} {name}" for name, value in parts.items())
    return {"seconds": sum(times.values()), "GiB beyond imports": peak_gib() - before, "of which": told}


def _fit_job(num_rows: int) -> Row:
    model, points = fast_cluster_model(*friedman(num_rows)), torch.randn(POINTS, 10)
    labels = seconds(lambda: model.covar_module(model.train_inputs[0]).evaluate_kernel())
    fit = seconds(lambda: fit_exact_gp(model, model.likelihood))
    model.eval()
    with torch.no_grad(), settings.iterative():
        return {"labels": labels, "fit": fit, "means and deviations": seconds(lambda: _moments(model, points))}


def _moments(model: PartitionGP, points: Tensor) -> tuple[Tensor, Tensor]:
    posterior = model(points)
    return posterior.mean, posterior.stddev


def _adam_job(num_rows: int) -> Row:
    model, points = fast_cluster_model(*friedman(num_rows)), torch.randn(POINTS, 10)
    with settings.iterative():
        steps = seconds(lambda: adam(model, STEPS))
        model.eval()
        with torch.no_grad():
            means = seconds(lambda: model(points).mean)
            return {"steps": steps, "means": means, "100 variances": seconds(lambda: model(points[:100]).variance)}


def _likelihood_job(num_rows: int) -> Row:
    return {"likelihood": seconds(lambda: likelihood_and_gradient(fast_cluster_model(*friedman(num_rows))))}


def _smooth(num_rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_rows, 10, generator=generator)
    y = (2 * x[:, 0]).sin() + x[:, 1] * x[:, 2].abs() + 0.3 * torch.randn(num_rows, generator=generator)
    return x, (y - y.mean()) / y.std()


def _trees_job(num_rows: int) -> Row:
    x, _ = _smooth(num_rows)
    kernel = MondrianKernel(x, M, lifetime=0.1, random_state=0)
    rows, taken = timed(lambda: kernel(x).evaluate_kernel().left)
    return {"trees of lifetime .1": taken, "cells": rows.num_clusters}


def _sweep_job(num_rows: int) -> Row:
    x, y = _smooth(num_rows)
    kernel = MondrianKernel(x, M, max_lifetime=1.0, random_state=0)
    sweep, taken = timed(lambda: lifetime_sweep(kernel, x, y, outputscale=1.0, noise=0.1))
    exact = int((sweep.standard_error == 0).sum())
    return {"sweep": taken, f"of {len(sweep.lifetimes)} likelihoods up to lifetime 1 exact": exact}


_JOBS: dict[str, Callable[[int], Row]] = {
    "fit in one pass": _fit_job,
    "Adam": _adam_job,
    "one likelihood with gradient": _likelihood_job,
    "Mondrian trees": _trees_job,
    "sweep over lifetimes": _sweep_job,
}


_TASK_KERNELS = {
    "FastClusterKernel (m = 100, h = 8)": lambda x, y: FastClusterKernel(x, 100, height=8, random_state=0),
    "RandomForestKernel (m = 100)": lambda x, y: RandomForestKernel(x, y, num_trees=100, random_state=0),
}


def multitask(options: Options) -> Iterator[Table]:
    """Measure training and predictions of three tasks beside those of one."""
    num_rows = options.pick(20_000, 300)
    jobs = grid(kernel=_TASK_KERNELS, tasks=(1, 3))
    title = f"MultitaskKernel, {num_rows:,} rows on every task, {STEPS} Adam steps, 200 points"
    yield from measured(options, "multitask", title, jobs, partial(options.apart, _several_tasks, num_rows))


class _Multitask(gpytorch.models.ExactGP):
    def __init__(self, x: Tensor, y: Tensor, kernel: gpytorch.kernels.Kernel) -> None:
        super().__init__(x, y, MultitaskGaussianLikelihood(y.shape[-1]))
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), y.shape[-1])
        self.covar_module = MultitaskKernel(kernel, y.shape[-1])

    def forward(self, x: Tensor) -> MultitaskMultivariateNormal:
        return MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


def _several_tasks(num_rows: int, name: str, num_tasks: int) -> Row:
    """Friedman's function is the first task; the others are mixtures of it with a column."""
    torch.manual_seed(0)
    x, y = friedman(num_rows + 200)
    targets = torch.stack([y, 0.5 * y + x[:, 5], x[:, 6] - y], -1)[:, :num_tasks]
    model = _Multitask(x[:num_rows], targets[:num_rows], _TASK_KERNELS[name](x[:num_rows], y[:num_rows]))
    training = seconds(lambda: adam(model, STEPS))
    model.eval()
    with torch.no_grad():
        predicting = seconds(lambda: model.likelihood(model(x[num_rows:])).variance)
        error = (model(x[num_rows:]).mean - targets[num_rows:]).square().mean().sqrt()
    return {"training, s": training, "means and variances, s": predicting, "RMSE": float(error), "peak GiB": peak_gib()}
