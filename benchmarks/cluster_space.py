"""Lanczos and conjugate gradients with vectors of cluster effects against vectors of rows: CPU seconds and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from time import process_time

import torch
from torch import Tensor

from gpytorch_partition import FastClusterKernel, RandomForestKernel, fit_exact_gp, settings
from gpytorch_partition.inference.cluster_space.spectrum import space_measures, space_width
from gpytorch_partition.inference.evidence.krylov import CHECKPOINTS, krylov_measures
from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralLikelihood, SpectralMeasure
from gpytorch_partition.inference.feature_space.feature_space import measure_of
from gpytorch_partition.kernels import PartitionKernel
from gpytorch_partition.models import ClusterSpaceGP, FeatureSpaceGP, local_rows

from .measure import Result, in_own_process, in_this_process
from .problems import friedman_chunk, model_of
from .report import Bar, Options, Row, Table

MOST_SHARE, TREES = 0.6, 50
NOISE, STEPS, PROBES = 0.1, 40, 4
MOST_EXACT = 5_000  # clusters for which the feature space is decomposed for comparison


def cluster_space(options: Options) -> Iterator[Table]:
    """One-pass fits both ways, where clusters become more than rows, and predictions both ways."""
    run = options.pick(in_own_process, in_own_process, in_this_process)
    num_rows = options.pick(50_000, 5_000, 500)
    leaves = options.pick([400, 100, 50, 20, 10, 5, 2], [100, 10, 2], [50, 2])
    kernels = ["fast cluster", *(f"forest, {size} rows a leaf or more" for size in leaves)]
    title = f"fit_exact_gp in cluster space against Lanczos among rows, N = {num_rows:,}, m = {TREES}, 10 columns"
    yield Table("cluster_space", title, [run(_fits, num_rows, kernel) for kernel in kernels])
    title = f"log |K + {NOISE} I| by {STEPS} steps and {PROBES} probes, fast clusters, N = {num_rows:,}, m = {TREES}"
    yield Table("cluster_space_determinant", title, run(_determinants, num_rows))
    num_points = options.pick(1_000, 200, 20)
    ways = [(kernel, dtype) for kernel in kernels[:2] for dtype in (torch.float32, torch.float64)]
    title = (
        f"Predictions of {num_points:,} points by a ClusterSpaceGP and by a PartitionGP, N = {num_rows:,}, CPU seconds"
    )
    yield Table("cluster_space_predictions", title, [run(_predictions, num_rows, num_points, *way) for way in ways])


def _kernel(name: str, x: Tensor, y: Tensor) -> PartitionKernel:
    if name == "fast cluster":
        return FastClusterKernel(x, TREES, height=8, random_state=0)
    leaf = int(name.split()[1])
    return RandomForestKernel(x, y, TREES, min_samples_leaf=leaf, random_state=0)


def _fits(num_rows: int, name: str) -> Row:
    x, y = friedman_chunk(7, num_rows)
    kernel = _kernel(name, x, y)
    covariance = kernel(x).evaluate_kernel()
    among_rows, in_space = (_fit(kernel, x, y, method) for method in ("krylov", "cluster_space"))
    share, width = in_space["CPU seconds"] / among_rows["CPU seconds"], space_width(covariance.cluster_operator)
    row = {"kernel": name, "q": width, "q / N": width / num_rows}
    row |= {f"{part}, rows": value for part, value in among_rows.items()}
    row |= {f"{part}, clusters": value for part, value in in_space.items()}
    if covariance.left.num_clusters <= MOST_EXACT:
        row["log likelihood, exact"] = _fit(kernel, x, y, "feature_space")["log likelihood"]
    row["clusters / rows"] = share
    if name == "fast cluster":
        errors = in_space["standard error"] / among_rows["standard error"]
        row["bar for the time"] = Bar("CPU seconds, fit in cluster space / among rows", share, at_most=MOST_SHARE)
        row["bar for the error"] = Bar("standard error, in cluster space / among rows", errors, at_most=1.0)
    return row


def _fit(kernel: PartitionKernel, x: Tensor, y: Tensor, method: str) -> Row:
    model = model_of(x, y, kernel)
    model.covar_module(x).evaluate_kernel() @ y  # labels and sorted rows are common to both
    fit, seconds = _cpu(partial(fit_exact_gp, model, model.likelihood, method=method))
    return {
        "CPU seconds": seconds,
        "steps": fit.num_iterations,
        "log likelihood": fit.log_marginal_likelihood,
        "standard error": fit.standard_error,
    }


def _determinants(num_rows: int) -> list[Row]:
    x, y = friedman_chunk(7, num_rows)
    kernel, y = _kernel("fast cluster", x, y), y.double().unsqueeze(-1)
    covariance = kernel(x).evaluate_kernel()
    covariance @ y
    rows, looks = local_rows(kernel, x, y.squeeze(-1)), CHECKPOINTS.index(STEPS) + 1
    ways: dict[str, Callable[[], Iterable[SpectralMeasure]]] = {
        "rows": lambda: islice(krylov_measures(covariance, y, PROBES, 0), looks),
        "clusters": lambda: islice(space_measures(rows, covariance.cluster_operator, PROBES, 0), looks),
        "exact": lambda: [measure_of(covariance, y)],
    }
    return [{"vectors of": way, **_determinant(measures)} for way, measures in ways.items()]


def _determinant(measures: Callable[[], Iterable[SpectralMeasure]]) -> Row:
    found, seconds = _cpu(lambda: SpectralLikelihood(list(measures())[-1]))
    return {
        "log determinant": found.log_determinant(1.0, NOISE),
        "standard error": 2 * found.standard_error(1.0, NOISE),
        "not resolved, at most": 2 * found.bias(1.0, NOISE),
        "CPU seconds": seconds,
    }


def _predictions(num_rows: int, num_points: int, name: str, dtype: torch.dtype) -> Row:
    """At the same values, a feature space's, which are the reference as well."""
    x, y = (values.to(dtype) for values in friedman_chunk(7, num_rows))
    points = friedman_chunk(-1, num_points)[0].to(dtype)
    kernel = _kernel(name, x, y)
    exact = FeatureSpaceGP(kernel)
    exact.add_rows(x, y)
    values = exact.fit()
    model = ClusterSpaceGP(kernel, local_rows(kernel, x, y))
    model.rows.gram(torch.zeros(model.rows.num_clusters, 1, dtype=torch.float64))  # sorts the rows
    model.values, rows_model = values, model_of(x, y, kernel).eval()
    rows_model.initialize(**{"likelihood.noise": values.noise, "covar_module.outputscale": values.outputscale})
    rows_model.initialize(**{"mean_module.constant": values.mean})
    row: Row = {"kernel": name, "dtype": str(dtype).removeprefix("torch.")}
    with torch.no_grad(), settings.iterative(), settings.predictive_variances("samples"):
        expected, variance = exact.predict(points)
        rows_model.covar_module(x).evaluate_kernel() @ y
        ways = {
            "rows": (lambda: rows_model(points).mean, lambda: rows_model(points).variance),
            "clusters": (lambda: model.means(points), lambda: model.predict(points)[1]),
        }
        for way, (means, variances) in ways.items():
            (mean, of_means), (found, of_variances) = _cpu(means), _cpu(variances)
            row |= {
                f"means, {way}": of_means,
                f"largest error, {way}": float((mean - expected).abs().max()),
                f"512 samples, {way}": of_variances,
                f"error of variances, {way}": float((found / variance - 1).square().mean().sqrt()),
            }
    return row


def _cpu(call: Callable[[], Result]) -> tuple[Result, float]:
    """What a call returns, and the CPU seconds of all threads that it takes."""
    start = process_time()
    result = call()
    return result, process_time() - start
