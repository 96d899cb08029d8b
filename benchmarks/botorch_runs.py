"""Single runs of Bayesian optimization on mixed problems, and single searches for the best acquisition value."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import MixedSingleTaskGP, SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.optim import optimize_acqf_discrete_local_search, optimize_acqf_mixed_alternating
from botorch.test_functions import synthetic
from gpytorch.kernels import ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.botorch import optimize_acqf_cells
from gpytorch_partition.botorch.cell_search import Space, space_of

from .report import Row, cpu_timed

NUM_FIRST, MOST_SECONDS = 10, 40.0  # random points that all methods begin with, and seconds of a run


@dataclass(frozen=True)
class MixedProblem:
    """
    A function of a mixed space (from `n x d` points to `n` values, to be maximized).

    :param best: The highest value, or a bound of it.
    :param discrete: Values of ordered columns.
    :param categories: Values of unordered columns.
    :param constraints: Linear inequality constraints, as BoTorch spells them.
    """

    bounds: Tensor
    function: Callable[[Tensor], Tensor]
    best: float
    discrete: Mapping[int, Sequence[float]] = field(default_factory=dict)
    categories: Mapping[int, Sequence[float]] = field(default_factory=dict)
    constraints: Sequence[tuple[Tensor, Tensor, float]] = ()

    @property
    def columns(self) -> tuple[Any, ...]:
        """Bounds, discrete columns and categories, as searches take them."""
        return self.bounds, dict(self.discrete), dict(self.categories)

    @property
    def space(self) -> Space:
        return space_of(*self.columns, None, self.constraints, None)


def _pressure_vessel() -> MixedProblem:
    """The logarithm of the cost; two constraints are linear and known, infeasible vessels cost what the worst cost."""
    function = synthetic.PressureVessel()
    thicknesses = [0.0625 * number for number in range(161)]
    constraints = [
        (torch.tensor([0, 2]), torch.tensor([1.0, -0.0193], dtype=torch.float64), 0.0),
        (torch.tensor([1, 2]), torch.tensor([1.0, -0.00954], dtype=torch.float64), 0.0),
    ]

    def value(X: Tensor) -> Tensor:
        cost = torch.where(function.is_feasible(X), function(X), X.new_tensor(function.worst_feasible_value))
        return -cost.log()

    best = -float(torch.tensor(function.optimal_value).log())
    return MixedProblem(function.bounds, value, best, {0: thicknesses, 1: thicknesses}, constraints=constraints)


def _styblinski_tang() -> MixedProblem:
    """Two columns are categories: five points of their axes in scrambled order, the best one, -2.903534, among them."""
    function = synthetic.StyblinskiTang(dim=6, negate=True)
    places = torch.tensor([2.746803, -2.903534, 4.0, -1.0, 0.5], dtype=torch.float64)

    def value(X: Tensor) -> Tensor:
        X = X.clone()
        X[..., :2] = places[X[..., :2].long()]
        return function(X)

    bounds = function.bounds.clone()
    bounds[:, :2] = torch.tensor([[0.0], [4.0]])
    categories = {column: [0.0, 1.0, 2.0, 3.0, 4.0] for column in (0, 1)}
    return MixedProblem(bounds, value, 6 * 39.16616570377142, categories=categories)


def _ordered(function: Any, best: float, columns: Any, values: Sequence[float], value: Any = None) -> MixedProblem:
    return MixedProblem(function.bounds, value or function, best, dict.fromkeys(columns, list(values)))


def _rosenbrock() -> MixedProblem:
    """The logarithm of one plus the function, whose values are up to a million."""
    function = synthetic.Rosenbrock(dim=6)
    return _ordered(function, 0.0, range(3), map(float, range(-5, 11)), lambda X: -function(X).log1p())


def _labs() -> MixedProblem:
    function = synthetic.Labs(dim=20)
    return _ordered(function, function.optimal_value, range(20), [0.0, 1.0])


PROBLEMS: dict[str, Callable[[], MixedProblem]] = {
    "Ackley": lambda: _ordered(synthetic.AckleyMixed(dim=13, negate=True), 0.0, range(10), [0.0, 1.0]),
    "LABS": _labs,
    "pressure vessel": _pressure_vessel,
    "Rosenbrock": _rosenbrock,
    "Hartmann": lambda: _ordered(synthetic.Hartmann(dim=6, negate=True), 3.32237, (0, 3), [n / 10 for n in range(11)]),
    "Levy": lambda: _ordered(synthetic.Levy(dim=8, negate=True), 0.0, range(4), map(float, range(-10, 11))),
    "Styblinski-Tang": _styblinski_tang,
}


def regrets(num_points: int, every: int, name: str, seed: int, method: str) -> Row:
    """Return how far the best value is from the highest one, and the CPU seconds of one thread, every few points."""
    _begin(seed)
    problem = PROBLEMS[name]()
    X, row, taken = problem.space.sampled(NUM_FIRST, seed), {}, 0.0
    Y = problem.function(X).unsqueeze(-1)
    for number in range(num_points + 1):
        if number % every == 0:
            row |= {f"regret, {number}": problem.best - float(Y.max()), f"seconds, {number}": taken}
        if number == num_points or taken > MOST_SECONDS:
            break
        x, seconds = cpu_timed(lambda: METHODS[method](problem, X, Y, 1000 * seed + number))  # noqa: B023
        taken += seconds
        X, Y = torch.cat([X, x]), torch.cat([Y, problem.function(x).unsqueeze(-1)])
    return row | {"points": number, "regret": problem.best - float(Y.max()), "seconds": taken}


def acquisitions(num_points: int, num_samples: int, num_restarts: int, name: str, seed: int) -> Row:
    """Return the highest log expected improvement that each search finds on one model, and its seconds."""
    _begin(seed)
    problem = PROBLEMS[name]()
    X = problem.space.sampled(num_points, seed)
    acq_function = _improvement(_forest_model, problem, X, problem.function(X).unsqueeze(-1), seed)
    lattice = [_lattice(problem, column) for column in range(problem.space.num_columns)]
    sizes = {"raw_samples": num_samples, "num_restarts": num_restarts}
    known = {"inequality_constraints": list(problem.constraints), "X_avoid": X}
    searches: dict[str, Callable[[], Tensor]] = {
        "cells": lambda: optimize_acqf_cells(acq_function, *problem.columns, X_avoid=X, random_state=seed, **sizes)[0],
        "lattice": lambda: optimize_acqf_discrete_local_search(acq_function, lattice, 1, **known, **sizes)[0],
    }
    row: Row = {}
    for each, search in searches.items():
        point, seconds = cpu_timed(search)
        with torch.no_grad():
            row |= {f"log EI, {each}": float(acq_function(point)), f"seconds, {each}": seconds}
    return row


def _by_cells(problem: MixedProblem, X: Tensor, Y: Tensor, seed: int) -> Tensor:
    acq_function = _improvement(_forest_model, problem, X, Y, seed)
    constraints = {"inequality_constraints": problem.constraints}
    return optimize_acqf_cells(acq_function, *problem.columns, X_avoid=X, random_state=seed, **constraints)[0]


def _by_alternating(problem: MixedProblem, X: Tensor, Y: Tensor, seed: int) -> Tensor:
    acq_function = _improvement(_matern_model, problem, X, Y, seed)
    constraints = {"inequality_constraints": list(problem.constraints) or None}
    return optimize_acqf_mixed_alternating(acq_function, *problem.columns, **constraints)[0]


def _at_random(problem: MixedProblem, X: Tensor, Y: Tensor, seed: int) -> Tensor:
    return problem.space.sampled(1, seed + 1_000_000)


METHODS = {"forest, cells": _by_cells, "Matern, alternating": _by_alternating, "random search": _at_random}


def _improvement(model_of: Callable[..., Any], problem: MixedProblem, X: Tensor, Y: Tensor, seed: int) -> Any:
    model = model_of(problem, X, Y, seed)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return LogExpectedImprovement(model, best_f=Y.max())


def _forest_model(problem: MixedProblem, X: Tensor, Y: Tensor, seed: int) -> SingleTaskGP:
    return SingleTaskGP(X, Y, covar_module=ScaleKernel(RandomForestKernel(X, Y[:, 0], 100, random_state=seed)))


def _matern_model(problem: MixedProblem, X: Tensor, Y: Tensor, seed: int) -> SingleTaskGP:
    num_columns = X.shape[-1]
    numbers = [column for column in range(num_columns) if column not in problem.categories]
    scaled = Normalize(num_columns, indices=numbers, bounds=problem.bounds)
    if problem.categories:
        return MixedSingleTaskGP(X, Y, cat_dims=list(problem.categories), input_transform=scaled)
    kernel = get_covar_module_with_dim_scaled_prior(num_columns, use_rbf_kernel=False)
    return SingleTaskGP(X, Y, covar_module=kernel, input_transform=scaled)


def _lattice(problem: MixedProblem, column: int) -> Tensor:
    values = {**problem.discrete, **problem.categories}.get(column)
    low, high = problem.bounds[:, column]
    return torch.linspace(low, high, 21).to(low) if values is None else torch.tensor(values).to(low)


def _begin(seed: int) -> None:
    """Seed torch's global random state, from which BoTorch's searches draw."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
