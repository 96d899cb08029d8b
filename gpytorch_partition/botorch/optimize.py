"""The optimizer of acquisition functions for models with partition kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from torch import Tensor

from gpytorch_partition.botorch.cell_search import CellSearch, LinearConstraint, NonlinearConstraint, space_of
from gpytorch_partition.botorch.model_cells import ModelCells
from gpytorch_partition.inputs.numbers import random_state_of


def optimize_acqf_cells(
    acq_function: AcquisitionFunction,
    bounds: Tensor,
    discrete_dims: Mapping[int, Sequence[float]] | None = None,
    cat_dims: Mapping[int, Sequence[float]] | None = None,
    *,
    q: int = 1,
    num_restarts: int = 10,
    raw_samples: int = 1024,
    fixed_features: Mapping[int, float] | None = None,
    inequality_constraints: Sequence[LinearConstraint] | None = None,
    nonlinear_inequality_constraints: Sequence[NonlinearConstraint] | None = None,
    X_avoid: Tensor | None = None,
    batch_initial_conditions: Tensor | None = None,
    max_batch_size: int = 2048,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[Tensor, Tensor]:
    """
    Return the points of highest acquisition value for a model with partition kernels, in a mixed space.

    Call it in place of BoTorch's optimizers: such a posterior is constant on *cells*, the sets of points that share a
    cluster in every partition, and has no gradient. The search evaluates one point of each cell, once:

    1. Candidates are `raw_samples` random points (Sobol), given ones, evaluated ones, and every cell on the lines
       through the best evaluated one along each column; all cells and values, where these are as few.
    2. From the best `num_restarts` of these, a local search moves to the best neighbor while that is better: along one
       column to the value or interval 1, 2, 4, ... away, or to any other category.
    3. From the best of these, it goes on among all cells on the lines through a point, until none is better.

    For forest kernels, intervals of a column of numbers lie between the thresholds of all trees (4,096 at most). Other
    partitions, and models whose input transformation has no inverse, have 128 equal intervals. The returned point is
    the middle of its cell; integers and categories keep the values found.

    Batches are found one point after another, with earlier points pending, and have no duplicates. Other arguments are
    those of `optimize_acqf` and `optimize_acqf_mixed_alternating` of BoTorch; constraints are within points only.

    :param acq_function: An acquisition function of BoTorch, analytic or by Monte Carlo, whose value depends on points
        through the posterior only, of a model (or a `ModelListGP`) with a constant mean and a kernel made of partition
        kernels by scales, sums, products and mixtures.
    :param discrete_dims: Possible values of each column of integers, or of other ordered values. (Default: none.)
    :param cat_dims: Possible values of each column of categories; each is a neighbor of any other. (Default: none.)
    :param num_restarts: Number of cells from which local searches start. (Default: 10.)
    :param raw_samples: Number of random points. (Default: 1024.)
    :param X_avoid: `n x d` points not to return, such as evaluated ones of a function without noise. (Default: none.)
    :param batch_initial_conditions: `n x d` or `n x 1 x d` points that are candidates too, such as feasible ones.
        (Default: none.)
    :param max_batch_size: Cells that are evaluated at once. (Default: 2048.)
    :param random_state: Seed or :class:`numpy.random.RandomState` that reproduces the result; None is a fresh one.
    :return: The points (`q x d`) and their joint acquisition value.
    :raises TypeError: If a kernel has parts other than partition kernels, or there is no model.
    :raises ValueError: If an argument cannot be used, or q > 1 with an analytic acquisition function.
    :raises RuntimeError: If no point was found that keeps the constraints and is not in `X_avoid`.

    Example:
        >>> from botorch.acquisition import LogExpectedImprovement
        >>> from botorch.models import SingleTaskGP
        >>> from gpytorch_partition import RandomForestKernel
        >>> x = torch.rand(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> x[:, 1] = (5 * x[:, 1]).round()
        >>> y = -((x[:, :1] - 0.3) ** 2) - (x[:, 1:] - 2) ** 2 / 10
        >>> model = SingleTaskGP(x, y, covar_module=RandomForestKernel(x, y[:, 0], 50, random_state=0))
        >>> improvement = LogExpectedImprovement(model, best_f=y.max())
        >>> bounds = torch.tensor([[0.0, 0.0], [1.0, 5.0]], dtype=torch.float64)
        >>> point, value = optimize_acqf_cells(improvement, bounds, {1: range(6)}, random_state=0)
        >>> point.shape, int(point[0, 1])
        (torch.Size([1, 2]), 2)
    """
    _check_numbers(q=q, num_restarts=num_restarts, raw_samples=raw_samples, max_batch_size=max_batch_size)
    space = space_of(
        bounds, discrete_dims, cat_dims, fixed_features, inequality_constraints, nonlinear_inequality_constraints
    )
    avoided, given = (
        _points(points, name, bounds)
        for name, points in (("X_avoid", X_avoid), ("batch_initial_conditions", batch_initial_conditions))
    )
    cells = _cells_of(acq_function)
    cells.check_bounds(bounds)
    search = CellSearch(acq_function, cells, space, avoided, max_batch_size)
    random, candidates = random_state_of(random_state), bounds[:0]
    with _pending(acq_function, q) as set_pending:
        for number in range(q):
            if number:
                search.exclude(candidates[-1:])
                set_pending(candidates)
            seed = int(random.randint(2**31))
            points, values = search.climbed(*search.starts(space.rounded(given), num_restarts, raw_samples, seed))
            best = values.argmax()
            found = search.centred(search.refined(points[best], values[best]))
            candidates = torch.cat([candidates, found.unsqueeze(0)])
    with torch.no_grad():
        return candidates, acq_function(candidates)


def _check_numbers(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"expected {name} to be 1 or more, got {number}")


def _points(points: Tensor | None, name: str, bounds: Tensor) -> Tensor:
    if points is None:
        return bounds[:0]
    num_columns = bounds.shape[-1]
    if points.dim() not in (2, 3) or points.shape[-1] != num_columns or points.shape[1:-1].numel() != 1:
        raise ValueError(f"expected {name} as points (n x {num_columns}), got shape {tuple(points.shape)}")
    return points.detach().to(bounds).reshape(-1, num_columns)


def _cells_of(acq_function: Any) -> ModelCells:
    if not hasattr(acq_function, "model"):
        raise TypeError(
            f"expected an acquisition function with a model, got {type(acq_function).__name__}: give the one inside, "
            "and what is fixed as fixed_features"
        )
    return ModelCells(acq_function.model)


@contextmanager
def _pending(acq_function: Any, q: int) -> Iterator[Any]:
    """A function that sets more pending points, which are removed at the end."""
    if q > 1 and isinstance(acq_function, AnalyticAcquisitionFunction):
        raise ValueError(
            f"expected q=1 with {type(acq_function).__name__}, which knows no pending points, got q={q}: use its "
            "counterpart for batches, such as qLogExpectedImprovement"
        )
    before = acq_function.X_pending if q > 1 else None

    def set_pending(points: Tensor) -> None:
        acq_function.set_X_pending(points if before is None else torch.cat([before, points]))

    try:
        yield set_pending
    finally:
        if q > 1:
            acq_function.set_X_pending(before)
