"""The search space: numbers, integers, categories, fixed columns and constraints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import torch
from botorch.optim.parameter_constraints import evaluate_feasibility
from torch import Tensor
from torch.quasirandom import SobolEngine

LinearConstraint = tuple[Tensor, Tensor, float]  # indices, coefficients and right hand side of sum(c x) >= rhs
NonlinearConstraint = tuple[Callable[[Tensor], Tensor], bool]  # f(x) >= 0, and True

_MOST_DRAWS = 64  # sets of random points drawn, at most, to find enough feasible ones


@dataclass(frozen=True, eq=False)
class Space:
    """
    A mixed space of numbers, integers and categories, with constraints.

    :param bounds: `2 x d` lower and upper bounds.
    :param choices: Sorted values of each column that has only some: integers, categories, fixed columns.
    :param categories: Numbers of those columns whose values have no order.
    :param linear: Linear inequality constraints in BoTorch's form.
    :param nonlinear: Nonlinear inequality constraints in BoTorch's form.
    """

    bounds: Tensor
    choices: Mapping[int, Tensor]
    categories: frozenset[int]
    linear: Sequence[LinearConstraint]
    nonlinear: Sequence[NonlinearConstraint]

    @property
    def num_columns(self) -> int:
        """Return the number d of columns."""
        return self.bounds.shape[-1]

    def rounded(self, X: Tensor) -> Tensor:
        """Return points (`n x d`) moved into the bounds, and to the nearest values of columns that have only some."""
        X = torch.minimum(torch.maximum(X, self.bounds[0]), self.bounds[1])
        for column, values in self.choices.items():
            X[:, column] = values[(X[:, column].unsqueeze(-1) - values).abs().argmin(-1)]
        return X

    def is_feasible(self, X: Tensor) -> Tensor:
        """Return whether each point (`n x d`) keeps the constraints, up to BoTorch's tolerance (`n`, bool)."""
        return evaluate_feasibility(
            X.unsqueeze(-2),
            inequality_constraints=list(self.linear) or None,
            nonlinear_inequality_constraints=list(self.nonlinear) or None,
        )

    def sampled(self, num_points: int, seed: int) -> Tensor:
        """
        Return feasible points of a scrambled Sobol sequence. They are uniform, with each value of a column that has
        only some equally often. There are fewer points, or none, where less than about 1 in 64 points is feasible.
        """
        engine = SobolEngine(self.num_columns, scramble=True, seed=seed)
        points = self.bounds[:, :0].T.new_empty(0, self.num_columns)
        for _ in range(_MOST_DRAWS):
            drawn = self._placed(engine.draw(num_points, dtype=torch.float64).to(self.bounds))
            points = torch.cat([points, drawn[self.is_feasible(drawn)]])
            if len(points) >= num_points:
                break
        return points[:num_points]

    def _placed(self, unit: Tensor) -> Tensor:
        X = self.bounds[0] + unit * (self.bounds[1] - self.bounds[0])
        for column, values in self.choices.items():
            X[:, column] = values[(unit[:, column] * len(values)).long().clamp(max=len(values) - 1)]
        return X


def space_of(
    bounds: Tensor,
    discrete_dims: Mapping[int, Sequence[float]] | None,
    cat_dims: Mapping[int, Sequence[float]] | None,
    fixed_features: Mapping[int, float] | None,
    inequality_constraints: Sequence[LinearConstraint] | None,
    nonlinear_inequality_constraints: Sequence[NonlinearConstraint] | None,
) -> Space:
    """
    Return the space of arguments of BoTorch's optimizers.

    :raises ValueError: If bounds are not `2 x d` finite numbers, lower ones first. If columns are out of range, or both
        discrete and categories. If values are none or out of bounds. If constraints are between points.
    """
    _check_bounds(bounds)
    for name, given in (("discrete_dims", discrete_dims), ("cat_dims", cat_dims), ("fixed_features", fixed_features)):
        if given is not None and not isinstance(given, Mapping):
            raise ValueError(f"expected {name} as a dictionary from columns to values, got {given!r}")
    discrete, categories, fixed = dict(discrete_dims or {}), dict(cat_dims or {}), dict(fixed_features or {})
    for column, values in {**discrete, **categories, **{column: [fixed[column]] for column in fixed}}.items():
        _check_values(bounds, column, values)
    if both := discrete.keys() & categories.keys():
        raise ValueError(f"expected columns in discrete_dims or in cat_dims, got {sorted(both)} in both")
    for indices, *_ in inequality_constraints or ():
        _check_within_points(indices.dim() == 1)
    for _, is_within_points in nonlinear_inequality_constraints or ():
        _check_within_points(is_within_points)
    choices = discrete | categories | {column: [value] for column, value in fixed.items()}
    columns = {
        column: torch.as_tensor(values, dtype=bounds.dtype, device=bounds.device).unique()
        for column, values in sorted(choices.items())
    }
    return Space(
        bounds,
        columns,
        frozenset(categories),
        list(inequality_constraints or ()),
        list(nonlinear_inequality_constraints or ()),
    )


def _check_bounds(bounds: Tensor) -> None:
    if not torch.is_tensor(bounds) or not bounds.is_floating_point() or bounds.dim() != 2 or len(bounds) != 2:
        got = f"{bounds.dtype} of shape {tuple(bounds.shape)}" if torch.is_tensor(bounds) else type(bounds).__name__
        raise ValueError(f"expected bounds as a floating point tensor (2 x d), lower ones first, got {got}")
    if not bool(bounds.isfinite().all()) or not bool((bounds[0] <= bounds[1]).all()):
        raise ValueError(f"expected finite bounds, lower ones first, got {bounds.tolist()}")


def _check_values(bounds: Tensor, column: int, values: Sequence[float]) -> None:
    if not 0 <= column < bounds.shape[-1]:
        raise ValueError(f"expected columns from 0 to {bounds.shape[-1] - 1}, got {column}")
    low, high = bounds[:, column].tolist()
    if any(isinstance(value, str) for value in values):
        raise ValueError(f"expected numbers as values of column {column}, got {list(values)}: number the categories")
    if not len(values) or not all(isfinite(value) and low <= value <= high for value in values):
        raise ValueError(
            f"expected values of column {column} within its bounds {low:g} and {high:g}, at least one, got "
            f"{list(values)}: change the values or the bounds"
        )


def _check_within_points(is_within_points: bool) -> None:
    if not is_within_points:
        raise ValueError(
            "expected constraints on single points, got one between the points of a batch: points are found one after "
            "another, so constrain each of them, or use botorch.optim.optimize_acqf"
        )
