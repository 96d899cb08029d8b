"""One solve with covariance plus noise under each preconditioner, its set-up included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import AddedDiagLinearOperator, ConstantDiagLinearOperator
from linear_operator.utils import linear_cg
from torch import Tensor

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel, settings
from gpytorch_partition.linalg.conjugate_gradients import CGState, conjugate_gradients
from gpytorch_partition.operators import PartitionAddedDiagLinearOperator, PartitionLinearOperator
from gpytorch_partition.partitions.forest import grow_forest

from .problems import friedman, read
from .report import Bar, Cost, Options, Row, Table

NUM_PARTITIONS = 100
RESIDUALS = (1e-2, 1e-4)
MAX_ITERATIONS = 2000
LARGEST_SHARE = 0.7
RANKS = (50, 100, 200, 300)


# What a solve took to reach each residual.
Solve: TypeAlias = dict[float, Cost]


@dataclass(frozen=True)
class Problem:
    """A covariance plus noise, and right-hand sides: targets and Gaussian probes."""

    kernel: str
    covariance: PartitionLinearOperator
    noise: ConstantDiagLinearOperator
    rhs: Tensor

    @property
    def labels(self) -> Row:
        """What tells the problem from others, as the first columns of a table."""
        return {
            "kernel": self.kernel,
            "N": self.rhs.shape[0],
            "noise": round(self.noise.diag_values.item(), 6),
            "columns": self.rhs.shape[1],
        }


def preconditioners(options: Options) -> Iterator[Table]:
    """Iterations and seconds of a solve, by preconditioner; then by the rank of the Nystrom factor."""
    source, sizes = _source(options), options.pick([8_000, 32_000], [8_000], [2_100])
    repetitions = options.pick(3, 1, 1)
    problems = [(num_rows, *problem) for num_rows in sizes for problem in _grid(options)]
    data = {num_rows: _covariances(*_data(options, num_rows)) for num_rows in sizes}
    rows: list[Row] = []
    ranks: list[Row] = []
    for num_rows, noise, columns in problems:
        for name, (covariance, y) in data[num_rows].items():
            problem = _problem(name, covariance, y, noise, columns)
            rows += _compared(problem, repetitions, with_others=num_rows == min(sizes))
            if columns > 1 and name in RANKED:
                ranks += _ranked(problem, repetitions)
    title = f"Preconditioners on {source}, m = {NUM_PARTITIONS}: iterations and seconds of one solve, set-up included"
    yield Table("preconditioners", title, rows)
    title = f"Rank of the Nystrom preconditioner on {source}: seconds of one solve over those of plain CG"
    yield Table("nystrom_rank", title, ranks)


def _source(options: Options) -> str:
    return "friedman1" if options.data is None else "kin40k"


def _data(options: Options, num_rows: int) -> tuple[Tensor, Tensor]:
    return friedman(num_rows) if options.data is None else read(options.data, "kin40k", num_rows)


def _grid(options: Options) -> list[tuple[float, int]]:
    """Noise variances and numbers of right-hand sides."""
    return options.pick([(0.1, 11), (0.01, 11), (0.1, 1), (0.01, 1)], [(0.1, 11), (0.1, 1)], [(0.1, 11)])


def _covariances(x: Tensor, y: Tensor) -> dict[str, tuple[PartitionLinearOperator, Tensor]]:
    forest = grow_forest(x, y, num_trees=NUM_PARTITIONS, random_state=0)
    kernels: dict[str, Kernel] = {
        "forest, all heights": RandomForestKernel.from_forest(forest, "all"),
        "forest, leaves": RandomForestKernel.from_forest(forest, "leaf"),
        "fast cluster": FastClusterKernel(x, NUM_PARTITIONS, random_state=0),
        "Mondrian": MondrianKernel(x, NUM_PARTITIONS, random_state=0),
    }
    covariances = {name: (kernel(x).evaluate_kernel().detach(), y) for name, kernel in kernels.items()}
    for covariance, _ in covariances.values():
        covariance._matmul(y)  # sorts the rows by cluster, which every solver needs
    return covariances


RANKED = ("forest, all heights", "fast cluster")


def _problem(name: str, covariance: PartitionLinearOperator, y: Tensor, noise: float, columns: int) -> Problem:
    diagonal = ConstantDiagLinearOperator(torch.tensor([noise]), diag_shape=len(y))
    probes = torch.randn(len(y), columns - 1, generator=torch.Generator().manual_seed(1))
    return Problem(name, covariance, diagonal, torch.cat([y.unsqueeze(-1), probes], -1))


def _compared(problem: Problem, repetitions: int, with_others: bool) -> Iterator[Row]:
    """A row per residual: each preconditioner's iterations and seconds; empty where it was not reached."""
    solvers: dict[str, Callable[[], Solve]] = {
        "none": partial(solve, problem, "none"),
        "nystrom": partial(solve, problem, "nystrom"),
    }
    if with_others and problem.kernel != "forest, all heights":
        solvers["partition"] = partial(solve, problem, "partition")
    if with_others:
        solvers["pivoted Cholesky 15"] = partial(_solve_with_pivots, problem)
        solvers["GPyTorch"] = partial(_solve_as_gpytorch, problem)
    solves = interleaved(solvers, repetitions)
    for residual in RESIDUALS:
        costs = {name: solve[residual] for name, solve in solves.items() if residual in solve}
        if not {"none", "nystrom"} <= costs.keys():
            continue
        share = costs["nystrom"].seconds / costs["none"].seconds
        row = problem.labels | {"residual": residual, **costs, "nystrom / none": share}
        if problem.kernel != "Mondrian":
            what = f"seconds, nystrom / none, {problem.rhs.shape[1]} column(s), residual {residual:g}"
            row["bar"] = Bar(what, share, at_most=LARGEST_SHARE)
        yield row


def _ranked(problem: Problem, repetitions: int) -> Iterator[Row]:
    """A row per residual: what each rank takes."""
    solvers = {rank: partial(solve, problem, "nystrom", rank) for rank in RANKS}
    solves = interleaved({0: partial(solve, problem, "none"), **solvers}, repetitions)
    for residual in RESIDUALS:
        reached = {rank: solve[residual] for rank, solve in solves.items() if residual in solve}
        costs = {f"rank {rank}" if rank else "none": cost for rank, cost in reached.items()}
        fastest = min(costs, key=lambda name: costs[name].seconds)
        yield problem.labels | {"residual": residual, **costs, "fastest": fastest}


def interleaved(solvers: dict[Any, Callable[[], Solve]], repetitions: int) -> dict[Any, Solve]:
    """Medians of solves that take turns."""
    runs: dict[Any, list[Solve]] = {name: [] for name in solvers}
    for _ in range(repetitions):
        for name, solver in solvers.items():
            runs[name].append(solver())
    return {name: _median(solves) for name, solves in runs.items()}


def _median(solves: list[Solve]) -> Solve:
    return {
        residual: Cost(
            solves[0][residual].iterations,
            median(solve[residual].seconds for solve in solves),
            median(solve[residual].set_up for solve in solves),
        )
        for residual in RESIDUALS
        if all(residual in solve for solve in solves)
    }


class _Milestones:
    """A stopping rule that notes when all columns have passed each residual."""

    def __init__(self, start: float, num_columns: int) -> None:
        self.start, self.set_up, self.iterations = start, perf_counter() - start, -1
        self.solve: Solve = {}
        self.passed = {residual: torch.zeros(1, num_columns, dtype=torch.bool) for residual in RESIDUALS}

    def __call__(self, state: CGState) -> Tensor:
        self.iterations += 1
        for residual, passed in self.passed.items():
            passed |= state.residual_norm <= residual * state.rhs_norm
            if residual not in self.solve and bool(passed.all()):
                self.solve[residual] = Cost(self.iterations, perf_counter() - self.start, self.set_up)
        return self.passed[min(RESIDUALS)].clone()


def solve(problem: Problem, name: str, rank: int = 100) -> Solve:
    """With this package's conjugate gradients and one of its preconditioners."""
    problem.covariance.left.cache.forget()  # what an earlier solve has kept
    noisy = PartitionAddedDiagLinearOperator(problem.covariance, problem.noise)
    with settings.preconditioner(name), settings.preconditioner_rank(rank):
        start = perf_counter()
        return _run(problem, noisy._solve_preconditioner(), start)


def _solve_with_pivots(problem: Problem) -> Solve:
    """With this package's conjugate gradients and GPyTorch's preconditioner: pivoted Cholesky of rank 15."""
    start = perf_counter()
    return _run(problem, _pivots(problem), start)


def _run(problem: Problem, preconditioner: Callable[[Tensor], Tensor] | None, start: float) -> Solve:
    milestones = _Milestones(start, problem.rhs.shape[1])
    conjugate_gradients(
        PartitionAddedDiagLinearOperator(problem.covariance, problem.noise)._matmul,
        problem.rhs,
        milestones,
        preconditioner=preconditioner,
        max_iterations=MAX_ITERATIONS,
    )
    return milestones.solve


def _solve_as_gpytorch(problem: Problem) -> Solve:
    """With GPyTorch's conjugate gradients, whose residual is the mean over columns, and its preconditioner."""
    start = perf_counter()
    preconditioner = _pivots(problem)
    set_up, solve = perf_counter() - start, {}
    for residual in RESIDUALS:
        start = perf_counter()
        products = _Counted(AddedDiagLinearOperator(problem.covariance, problem.noise)._matmul)
        linear_cg(products, problem.rhs, tolerance=residual, max_iter=MAX_ITERATIONS, preconditioner=preconditioner)
        # One product gives the first residual.
        solve[residual] = Cost(products.count - 1, set_up + perf_counter() - start, set_up)
    return solve


def _pivots(problem: Problem) -> Callable[[Tensor], Tensor]:
    return AddedDiagLinearOperator(problem.covariance, problem.noise)._preconditioner()[0]


class _Counted:
    """A function that counts its calls."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function, self.count = function, 0

    def __call__(self, values: Tensor) -> Tensor:
        self.count += 1
        return self.function(values)
