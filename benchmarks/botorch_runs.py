"""Single runs of Bayesian optimization on mixed problems, and single searches for the best acquisition value."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from time import process_time
from typing import Any

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import MixedSingleTaskGP, SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.optim import optimize_acqf_discrete_local_search, optimize_acqf_mixed_alternating
from gpytorch.kernels import ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.botorch import optimize_acqf_cells
from gpytorch_partition.botorch.space import Space, space_of

from .mixed_problems import PROBLEMS, MixedProblem
from .report import Row

NUM_TREES = 100
_LATTICE = 21  # values of each column of numbers, for the search on a lattice


def regrets(name: str, method: str, seed: int, num_first: int, num_points: int, every: int, most: float) -> Row:
    """
    One run: how far the best value is from the highest one, and the seconds, after every few points.

    Seconds are those of the processor on one thread, for models and their search; the run ends after `most` of them.
    """
    _begin(seed)
    problem = PROBLEMS[name]()
    X, row, taken = _space(problem).sampled(num_first, seed), {}, 0.0
    Y = problem.function(X).unsqueeze(-1)
    for number in range(num_points + 1):
        if number % every == 0:
            row |= {f"regret, {number}": problem.best - float(Y.max()), f"seconds, {number}": taken}
        if number == num_points or taken > most:
            break
        start = process_time()
        x = METHODS[method](problem, X, Y, 1000 * seed + number)
        taken += process_time() - start
        X, Y = torch.cat([X, x]), torch.cat([Y, problem.function(x).unsqueeze(-1)])
    return row | {"points": number, "regret": problem.best - float(Y.max()), "seconds": taken}


def acquisitions(name: str, seed: int, num_points: int, num_samples: int, num_restarts: int) -> Row:
    """The highest log expected improvement that each search finds on one model of a forest kernel, and its seconds."""
    _begin(seed)
    problem = PROBLEMS[name]()
    space = _space(problem)
    X = space.sampled(num_points, seed)
    acq_function = _improvement(_forest_model, problem, X, problem.function(X).unsqueeze(-1), seed)
    lattice = [_lattice(problem, column) for column in range(space.num_columns)]
    sizes = {"raw_samples": num_samples, "num_restarts": num_restarts}

    def cells() -> Tensor:
        return optimize_acqf_cells(acq_function, *_columns(problem), X_avoid=X, random_state=seed, **sizes)[0]

    def on_lattice() -> Tensor:
        known = {"inequality_constraints": list(problem.constraints), "X_avoid": X}
        return optimize_acqf_discrete_local_search(acq_function, lattice, 1, **known, **sizes)[0]

    def random() -> Tensor:
        points = space.sampled(16 * num_samples, seed + 1)
        with torch.no_grad():
            values = torch.cat([acq_function(block.unsqueeze(-2)) for block in points.split(2048)])
        return points[values.argmax()].unsqueeze(0)

    searches = {"cells": cells, "lattice": on_lattice, "random points": random}
    return {key: value for each, search in searches.items() for key, value in _found(each, search, acq_function)}


def _found(name: str, search: Callable[[], Tensor], acq_function: Any) -> list[tuple[str, float]]:
    start = process_time()
    point = search()
    taken = process_time() - start
    with torch.no_grad():
        return [(f"log EI, {name}", float(acq_function(point))), (f"seconds, {name}", taken)]


def _by_cells(problem: MixedProblem, X: Tensor, Y: Tensor, seed: int) -> Tensor:
    acq_function = _improvement(_forest_model, problem, X, Y, seed)
    constraints = {"inequality_constraints": problem.constraints}
    return optimize_acqf_cells(acq_function, *_columns(problem), X_avoid=X, random_state=seed, **constraints)[0]


def _by_alternating(problem: MixedProblem, X: Tensor, Y: Tensor, seed: int) -> Tensor:
    acq_function = _improvement(_matern_model, problem, X, Y, seed)
    constraints = {"inequality_constraints": list(problem.constraints) or None}
    return optimize_acqf_mixed_alternating(acq_function, *_columns(problem), **constraints)[0]


def _at_random(problem: MixedProblem, X: Tensor, Y: Tensor, seed: int) -> Tensor:
    return _space(problem).sampled(1, seed + 1_000_000)


METHODS = {"forest, cells": _by_cells, "Matern, alternating": _by_alternating, "random search": _at_random}


def _improvement(model_of: Callable[..., Any], problem: MixedProblem, X: Tensor, Y: Tensor, seed: int) -> Any:
    model = model_of(problem, X, Y, seed)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return LogExpectedImprovement(model, best_f=Y.max())


def _forest_model(problem: MixedProblem, X: Tensor, Y: Tensor, seed: int) -> SingleTaskGP:
    kernel = RandomForestKernel(X, Y[:, 0], NUM_TREES, random_state=seed)
    return SingleTaskGP(X, Y, covar_module=ScaleKernel(kernel))


def _matern_model(problem: MixedProblem, X: Tensor, Y: Tensor, seed: int) -> SingleTaskGP:
    """BoTorch's own: a Matern kernel with its priors, and where there are categories its mixed model."""
    num_columns = X.shape[-1]
    numbers = [column for column in range(num_columns) if column not in problem.categories]
    scaled = Normalize(num_columns, indices=numbers, bounds=problem.bounds)
    if problem.categories:
        return MixedSingleTaskGP(X, Y, cat_dims=list(problem.categories), input_transform=scaled)
    kernel = get_covar_module_with_dim_scaled_prior(num_columns, use_rbf_kernel=False)
    return SingleTaskGP(X, Y, covar_module=kernel, input_transform=scaled)


def _columns(problem: MixedProblem) -> tuple[Any, ...]:
    return problem.bounds, dict(problem.discrete), dict(problem.categories)


def _space(problem: MixedProblem) -> Space:
    return space_of(*_columns(problem), None, problem.constraints, None)


def _lattice(problem: MixedProblem, column: int) -> Tensor:
    values = {**problem.discrete, **problem.categories}.get(column)
    low, high = problem.bounds[:, column]
    return torch.linspace(low, high, _LATTICE).to(low) if values is None else torch.tensor(values).to(low)


def _begin(seed: int) -> None:
    """BoTorch's searches draw from torch's global random state."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
