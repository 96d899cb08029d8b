"""The optimizer of acquisition functions of models with partition kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from torch import Tensor

from gpytorch_partition.botorch.cells import ModelCells
from gpytorch_partition.botorch.search import CellSearch
from gpytorch_partition.botorch.space import LinearConstraint, NonlinearConstraint, space_of
from gpytorch_partition.inputs.seeds import random_state_of


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
    """TODO."""
    _check_numbers(q=q, num_restarts=num_restarts, raw_samples=raw_samples, max_batch_size=max_batch_size)
    space = space_of(
        bounds, discrete_dims, cat_dims, fixed_features, inequality_constraints, nonlinear_inequality_constraints
    )
    avoided, given = (
        _points(points, name, bounds)
        for name, points in (("X_avoid", X_avoid), ("batch_initial_conditions", batch_initial_conditions))
    )
    search = CellSearch(acq_function, _cells_of(acq_function), space, avoided, max_batch_size)
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
    """Points `n x d` that an argument gives, or `n x 1 x d`."""
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
    """A function that makes points pending besides those that are, until the end."""
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
