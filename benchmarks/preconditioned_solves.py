"""Solves with covariance plus noise by preconditioned conjugate gradients: iterations, and seconds with the set-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from time import perf_counter

import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import ConstantDiagLinearOperator
from torch import Tensor

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel, settings
from gpytorch_partition.linalg.conjugate_gradients import CGState, conjugate_gradients
from gpytorch_partition.operators import PartitionLinearOperator
from gpytorch_partition.partitions.forest import grow_forest
from gpytorch_partition.solvers import PartitionAddedDiagLinearOperator

from .datasets import kin40k
from .processes import paper_forest
from .report import Options, Row, Table, grid, measured

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
    noisy._linear_op.left.cache.forget()  # what an earlier solve has kept
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
