"""Lanczos and conjugate gradients with vectors of cluster effects against vectors of rows: CPU seconds and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from gpytorch_partition import FastClusterKernel, RandomForestKernel, fit_exact_gp, settings
from gpytorch_partition.inference.cluster_space.spectrum import space_measures, space_width
from gpytorch_partition.inference.evidence.krylov import CHECKPOINTS, krylov_measures
from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralLikelihood, SpectralMeasure
from gpytorch_partition.inference.feature_space.feature_space import measure_of
from gpytorch_partition.kernels import PartitionKernel
from gpytorch_partition.models import ClusterSpaceGP, FeatureSpaceGP, local_rows

from .clock import cpu_timed
from .datasets import friedman_chunk
from .processes import model_of
from .report import Options, Row, Table, grid, measured

M, NOISE, STEPS, PROBES = 50, 0.1, 40, 4
FAST = "fast cluster"


def cluster_space(options: Options) -> Iterator[Table]:
    """Compare one-pass fits, a log determinant and predictions both ways."""
    num_rows, num_points = options.pick(50_000, 300), options.pick(1_000, 20)
    leaves = options.pick([400, 100, 50, 20, 10, 5, 2], [50])
    kernels = [FAST, *(f"forest, {size} rows a leaf or more" for size in leaves)]
    title = f"fit_exact_gp in cluster space against Lanczos among rows, N = {num_rows:,}, m = {M}, 10 columns"
    fits = partial(options.apart, _fits, num_rows)
    yield from measured(options, "cluster_space", title, grid(kernel=kernels), fits)
    title = f"log |K + {NOISE} I| by {STEPS} steps and {PROBES} probes, fast clusters, N = {num_rows:,}, m = {M}"
    jobs = grid(vectors_of=("rows", "clusters", "exact"))
    determinant = partial(options.apart, _determinant, num_rows)
    yield from measured(options, "cluster_space_determinant", title, jobs, determinant)
    title = f"{num_points:,} predictions by a ClusterSpaceGP and by a PartitionGP, N = {num_rows:,}, CPU seconds"
    jobs = grid(kernel=kernels[: options.pick(2, 1)], dtype=("float32", "float64"))
    predictions = partial(options.apart, _predictions, num_rows, num_points)
    yield from measured(options, "cluster_space_predictions", title, jobs, predictions)


def _kernel(name: str, x: Tensor, y: Tensor) -> PartitionKernel:
    if name == FAST:
        return FastClusterKernel(x, M, height=8, random_state=0)
    return RandomForestKernel(x, y, M, min_samples_leaf=int(name.split()[1]), random_state=0)


def _fits(num_rows: int, name: str) -> Row:
    x, y = friedman_chunk(7, num_rows)
    kernel = _kernel(name, x, y)
    among_rows, in_space = (_fit(kernel, x, y, method) for method in ("krylov", "cluster_space"))
    row: Row = {"q / N": space_width(kernel(x).evaluate_kernel().cluster_operator) / num_rows}
    row |= {f"{part}, rows": value for part, value in among_rows.items()}
    row |= {f"{part}, clusters": value for part, value in in_space.items()}
    return row | {f"{part}, share": in_space[part] / among_rows[part] for part in ("CPU seconds", "standard error")}


def _fit(kernel: PartitionKernel, x: Tensor, y: Tensor, method: str) -> Row:
    model = model_of(x, y, kernel)
    model.covar_module(x).evaluate_kernel() @ y  # labels and sorted rows are common to both
    fit, seconds = cpu_timed(partial(fit_exact_gp, model, model.likelihood, method=method))
    return {"CPU seconds": seconds, "log likelihood": fit.log_marginal_likelihood, "standard error": fit.standard_error}


def _determinant(num_rows: int, way: str) -> Row:
    x, y = friedman_chunk(7, num_rows)
    kernel, y = _kernel(FAST, x, y), y.double().unsqueeze(-1)
    covariance = kernel(x).evaluate_kernel()
    covariance @ y
    rows, looks = local_rows(kernel, x, y.squeeze(-1)), CHECKPOINTS.index(STEPS) + 1
    ways: dict[str, Callable[[], Iterable[SpectralMeasure]]] = {
        "rows": lambda: islice(krylov_measures(covariance, y, PROBES, 0), looks),
        "clusters": lambda: islice(space_measures(rows, covariance.cluster_operator, PROBES, 0), looks),
        "exact": lambda: [measure_of(covariance, y)],
    }
    found, seconds = cpu_timed(lambda: SpectralLikelihood(list(ways[way]())[-1]))
    return {
        "log determinant": found.log_determinant(1.0, NOISE),
        "standard error": 2 * found.standard_error(1.0, NOISE),
        "CPU seconds": seconds,
    }


def _predictions(num_rows: int, num_points: int, name: str, dtype: str) -> Row:
    x, y = (values.to(getattr(torch, dtype)) for values in friedman_chunk(7, num_rows))
    points = friedman_chunk(-1, num_points)[0].to(x.dtype)
    kernel = _kernel(name, x, y)
    exact = FeatureSpaceGP(kernel)
    exact.add_rows(x, y)
    values = exact.fit()
    model = ClusterSpaceGP(kernel, local_rows(kernel, x, y))
    model.rows.gram(torch.zeros(model.rows.num_clusters, 1, dtype=torch.float64))  # sorts the rows
    model.values, rows_model = values, model_of(x, y, kernel).eval()
    rows_model.initialize(**{"likelihood.noise": values.noise, "covar_module.outputscale": values.outputscale})
    rows_model.initialize(**{"mean_module.constant": values.mean})
    row: Row = {}
    with torch.no_grad(), settings.iterative(), settings.predictive_variances("samples"):
        expected, variance = exact.predict(points)
        rows_model.covar_module(x).evaluate_kernel() @ y
        ways = {
            "rows": (lambda: rows_model(points).mean, lambda: rows_model(points).variance),
            "clusters": (lambda: model.means(points), lambda: model.predict(points)[1]),
        }
        for way, (means, variances) in ways.items():
            (mean, of_means), (found, of_variances) = cpu_timed(means), cpu_timed(variances)
            row |= {
                f"means, {way}": of_means,
                f"largest error, {way}": float((mean - expected).abs().max()),
                f"512 samples, {way}": of_variances,
                f"error of variances, {way}": float((found / variance - 1).square().mean().sqrt()),
            }
    return row
