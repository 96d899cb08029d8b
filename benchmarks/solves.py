"""Solves: preconditioners, and vectors of cluster effects against vectors of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from statistics import median
from time import perf_counter

import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import ConstantDiagLinearOperator
from torch import Tensor

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel, fit_exact_gp, settings
from gpytorch_partition.clusters.cache import Cache
from gpytorch_partition.inference.evidence.spectral_likelihood import (
    CHECKPOINTS,
    SpectralLikelihood,
    SpectralMeasure,
    krylov_measures,
)
from gpytorch_partition.inference.spaces.cluster_space import space_measures, space_width
from gpytorch_partition.inference.spaces.feature_space import measure_of
from gpytorch_partition.kernels import PartitionKernel
from gpytorch_partition.linalg.conjugate_gradients import CGState, conjugate_gradients
from gpytorch_partition.models import ClusterSpaceGP, FeatureSpaceGP, local_rows
from gpytorch_partition.operators import PartitionLinearOperator
from gpytorch_partition.partitions.grown_forest import grow_forest
from gpytorch_partition.solvers import PartitionAddedDiagLinearOperator

from .datasets import friedman_chunk, kin40k
from .processes import model_of, paper_forest
from .report import Options, Row, Table, cpu_timed, grid, measured

M = 100
RESIDUALS = (1e-2, 1e-4)
RANKED = ("forest, all heights", "fast cluster")
Cost = tuple[int, float]  # iterations and seconds to reach a residual


def preconditioners(options: Options) -> Iterator[Table]:
    """Compare preconditioners, and ranks of the Nystrom factor."""
    sizes, noises, columns = options.pick(([8_000, 32_000], [0.1, 0.01], [11, 1]), ([2_100], [0.1], [11]))
    title = f"Preconditioners, m = {M}: iterations and seconds of one solve, set-up included"
    kernels = ("forest, all heights", "forest, leaves", "fast cluster", "Mondrian")
    jobs = grid(kernel=kernels, N=sizes, noise=noises, columns=columns, residual=RESIDUALS)
    covariances = {size: _covariances(*kin40k(options, size)) for size in sizes}
    repetitions = options.pick(3, 1)

    def compared(name: str, size: int, noise: float, number: int, residual: float, ranks: tuple[int, ...] = ()) -> Row:
        solvers = {"none": ("none", 100), "Nystrom": ("nystrom", 100)}
        if name != "forest, all heights" and size == sizes[0]:
            solvers["partition"] = ("partition", 100)
        solvers |= {f"rank {rank}": ("nystrom", rank) for rank in ranks}
        covariance, y = covariances[size][name], kin40k(options, size)[1]
        return solved(covariance, right_sides(y, number), noise, residual, solvers, repetitions)

    yield from measured(options, "preconditioners", title, jobs, compared)
    jobs = [job for job in jobs if job["kernel"] in RANKED and job["columns"] > 1]
    by_rank = partial(compared, ranks=(50, 200, 300))
    yield from measured(options, "nystrom_rank", "Ranks of the Nystrom preconditioner (Nystrom: 100)", jobs, by_rank)


def _covariances(x: Tensor, y: Tensor) -> dict[str, PartitionLinearOperator]:
    forest = grow_forest(x, y, num_trees=M, random_state=0)
    kernels: dict[str, Kernel] = {
        "forest, all heights": RandomForestKernel.from_forest(forest, "all"),
        "forest, leaves": RandomForestKernel.from_forest(forest, "leaf"),
        "fast cluster": FastClusterKernel(x, M, random_state=0),
        "Mondrian": MondrianKernel(x, M, random_state=0),
    }
    return {name: sorted_covariance(kernel, x, y) for name, kernel in kernels.items()}


def sorted_covariance(kernel: Kernel, x: Tensor, y: Tensor) -> PartitionLinearOperator:
    """Return the covariance of rows that are sorted by cluster, which every solver needs."""
    covariance = kernel(x).evaluate_kernel().detach()
    covariance._matmul(y)
    return covariance


def right_sides(y: Tensor, number: int) -> Tensor:
    """Return the targets and Gaussian probes (`N x number`)."""
    probes = torch.randn(len(y), number - 1, generator=torch.Generator().manual_seed(1))
    return torch.cat([y.unsqueeze(-1), probes], -1)


def solved(
    covariance: PartitionLinearOperator,
    rhs: Tensor,
    noise: float,
    residual: float,
    solvers: dict[str, tuple[str, int]],
    repetitions: int,
) -> Row:
    """Return iterations and median seconds of solvers (preconditioners and their ranks) that take turns."""
    noisy = PartitionAddedDiagLinearOperator(
        covariance, ConstantDiagLinearOperator(torch.tensor([noise]), diag_shape=len(rhs))
    )
    runs: dict[str, list[Cost]] = {name: [] for name in solvers}
    for _ in range(repetitions):
        for name, (preconditioner, rank) in solvers.items():
            runs[name].append(_cost(noisy, rhs, residual, preconditioner, rank))
    row: Row = {}
    for name, costs in runs.items():
        row |= {f"{name}, iterations": costs[0][0], f"{name}, s": median(time for _, time in costs)}
    for name in solvers.keys() - {"none"}:
        row |= {
            f"{name} / none, {what}": row[f"{name}, {what}"] / max(row[f"none, {what}"], 1e-9)
            for what in ("iterations", "s")
        }
    return row


def _cost(
    noisy: PartitionAddedDiagLinearOperator, rhs: Tensor, residual: float, preconditioner: str, rank: int
) -> Cost:
    noisy._linear_op.left.cache = Cache()  # without what an earlier solve has kept
    iterations, passed = -1, torch.zeros(1, rhs.shape[1], dtype=torch.bool)

    def reached(state: CGState) -> Tensor:
        nonlocal iterations, passed
        iterations += 1
        passed = passed | (state.residual_norm <= residual * state.rhs_norm)
        return passed.clone()

    with settings.preconditioner(preconditioner), settings.preconditioner_rank(rank):
        start = perf_counter()
        solve = noisy.preconditioner_inverse()
        conjugate_gradients(noisy._matmul, rhs, reached, preconditioner=solve, max_iterations=2_000)
    return iterations, perf_counter() - start


def equation_9(options: Options) -> Iterator[Table]:
    """Compare the preconditioner of Davies & Ghahramani (2014, eq. 9) with none and with Nystrom's."""
    num_rows, repetitions = options.pick(8_000, 300), options.pick(3, 1)
    x, y = kin40k(options, num_rows)
    kernels: dict[str, Callable[[], Kernel]] = {
        "random forest, as printed": lambda: paper_forest(x, y, M),
        "random forest, ours, leaves": lambda: RandomForestKernel(x, y, M, heights="leaf", random_state=0),
        "fast cluster": lambda: FastClusterKernel(x, M, random_state=0),
    }
    covariances = {name: sorted_covariance(make(), x, y) for name, make in kernels.items()}
    jobs = grid(kernel=kernels, noise=options.pick([0.1, 0.01], [0.1]), residual=RESIDUALS)
    solvers = {"none": ("none", 100), "equation 9": ("partition", 100), "Nystrom": ("nystrom", 100)}
    title = f"Equation 9: its preconditioner, {num_rows:,} rows, {M} partitions, one right-hand side, set-up included"

    def compared(name: str, noise: float, residual: float) -> Row:
        return solved(covariances[name], right_sides(y, 1), noise, residual, solvers, repetitions)

    yield from measured(options, "paper_equation_9", title, jobs, compared)


NOISE, STEPS, PROBES = 0.1, 40, 4
FAST = "fast cluster"


def cluster_space(options: Options) -> Iterator[Table]:
    """Compare one-pass fits, a log determinant and predictions both ways."""
    num_rows, num_points = options.pick(50_000, 300), options.pick(1_000, 20)
    clusterings = options.pick(50, 5)
    leaves = options.pick([400, 100, 50, 20, 10, 5, 2], [50])
    kernels = [FAST, *(f"forest, {size} rows a leaf or more" for size in leaves)]
    title = f"fit_exact_gp in cluster space against Lanczos among rows, N = {num_rows:,}, m = {clusterings}, 10 columns"
    fits = partial(options.apart, _fits, num_rows, clusterings)
    yield from measured(options, "cluster_space", title, grid(kernel=kernels), fits)
    title = (
        f"log |K + {NOISE} I| by {STEPS} steps and {PROBES} probes, fast clusters, N = {num_rows:,}, m = {clusterings}"
    )
    jobs = grid(vectors_of=("rows", "clusters", "exact"))
    determinant = partial(options.apart, _determinant, num_rows, clusterings)
    yield from measured(options, "cluster_space_determinant", title, jobs, determinant)
    title = f"{num_points:,} predictions by a ClusterSpaceGP and by a PartitionGP, N = {num_rows:,}, CPU seconds"
    jobs = grid(kernel=kernels[: options.pick(2, 1)], dtype=("float32", "float64"))
    predictions = partial(options.apart, _predictions, num_rows, num_points, clusterings)
    yield from measured(options, "cluster_space_predictions", title, jobs, predictions)


def _kernel(name: str, number: int, x: Tensor, y: Tensor) -> PartitionKernel:
    if name == FAST:
        return FastClusterKernel(x, number, height=8, random_state=0)
    return RandomForestKernel(x, y, number, min_samples_leaf=int(name.split()[1]), random_state=0)


def _fits(num_rows: int, clusterings: int, name: str) -> Row:
    x, y = friedman_chunk(7, num_rows)
    kernel = _kernel(name, clusterings, x, y)
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


def _determinant(num_rows: int, clusterings: int, way: str) -> Row:
    x, y = friedman_chunk(7, num_rows)
    kernel, y = _kernel(FAST, clusterings, x, y), y.double().unsqueeze(-1)
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


def _predictions(num_rows: int, num_points: int, clusterings: int, name: str, dtype: str) -> Row:
    x, y = (values.to(getattr(torch, dtype)) for values in friedman_chunk(7, num_rows))
    points = friedman_chunk(-1, num_points)[0].to(x.dtype)
    kernel = _kernel(name, clusterings, x, y)
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
