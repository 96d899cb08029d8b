"""The search space (numbers, integers, categories, constraints), and a local search for the best cell in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import isfinite, prod
from operator import and_
from typing import Any

import numpy as np
import torch
from botorch.optim.parameter_constraints import evaluate_feasibility
from botorch.optim.utils import get_X_baseline
from torch import Tensor
from torch.quasirandom import SobolEngine

from gpytorch_partition.botorch.model_cells import ModelCells

LinearConstraint = tuple[Tensor, Tensor, float]  # indices, coefficients and right hand side of sum(c x) >= rhs
NonlinearConstraint = tuple[Callable[[Tensor], Tensor], bool]  # f(x) >= 0, and True

_GRID = 128  # intervals of a column without known walls
_MOST_INTERVALS = 4096  # intervals of a column; of more walls, only quantiles are used
_MOST_DRAWS = 64  # sets of random points drawn, at most, to find enough feasible ones


@dataclass(frozen=True, eq=False)
class Space:
    """
    Hold a mixed space of numbers, integers and categories, with constraints in BoTorch's form.

    :param bounds: `2 x d` lower and upper bounds.
    :param choices: Sorted values of each column that has only some: integers, categories, fixed columns.
    :param categories: Numbers of those columns whose values have no order.
    """

    bounds: Tensor  # 2 x d
    choices: Mapping[int, Tensor]  # sorted values of each column that has only some: integers, categories, fixed ones
    categories: frozenset[int]  # numbers of those columns whose values have no order
    linear: list[LinearConstraint]
    nonlinear: list[NonlinearConstraint]

    @property
    def num_columns(self) -> int:
        return self.bounds.shape[-1]

    def rounded(self, X: Tensor) -> Tensor:
        """Return points (`n x d`) moved into the bounds, and in columns with `choices` to the nearest of them."""
        X = torch.minimum(torch.maximum(X, self.bounds[0]), self.bounds[1])
        for column, values in self.choices.items():
            X[:, column] = values[(X[:, column].unsqueeze(-1) - values).abs().argmin(-1)]
        return X

    def is_feasible(self, X: Tensor) -> Tensor:
        """Return whether each point (`n x d`) keeps the constraints, up to BoTorch's tolerance (`n`, bool)."""
        return evaluate_feasibility(
            X.unsqueeze(-2),
            inequality_constraints=self.linear or None,
            nonlinear_inequality_constraints=self.nonlinear or None,
        )

    def sampled(self, num_points: int, seed: int) -> Tensor:
        """Draw feasible Sobol points (`num_points x d`); fewer, or none, where less than 1 point in 64 is feasible."""
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
    """Return the space that arguments of BoTorch's optimizers describe; a `ValueError` if they do not fit together."""
    if not torch.is_tensor(bounds) or not bounds.is_floating_point() or bounds.dim() != 2 or len(bounds) != 2:
        got = f"{bounds.dtype} of shape {tuple(bounds.shape)}" if torch.is_tensor(bounds) else type(bounds).__name__
        raise ValueError(f"expected bounds as a floating point tensor (2 x d), lower ones first, got {got}")
    if not bool(bounds.isfinite().all()) or not bool((bounds[0] <= bounds[1]).all()):
        raise ValueError(f"expected finite bounds, lower ones first, got {bounds.tolist()}")
    for name, given in (("discrete_dims", discrete_dims), ("cat_dims", cat_dims), ("fixed_features", fixed_features)):
        if given is not None and not isinstance(given, Mapping):
            raise ValueError(f"expected {name} as a dictionary from columns to values, got {given!r}")
    discrete, categories, fixed = dict(discrete_dims or {}), dict(cat_dims or {}), dict(fixed_features or {})
    choices = discrete | categories | {column: [value] for column, value in fixed.items()}
    for column, values in choices.items():
        _check_values(bounds, column, values)
    if both := discrete.keys() & categories.keys():
        raise ValueError(f"expected columns in discrete_dims or in cat_dims, got {sorted(both)} in both")
    linear, nonlinear = list(inequality_constraints or ()), list(nonlinear_inequality_constraints or ())
    _check_within_points(indices.dim() == 1 for indices, *_ in linear)
    _check_within_points(is_within_points for _, is_within_points in nonlinear)
    columns = {
        column: torch.as_tensor(values, dtype=bounds.dtype, device=bounds.device).unique()
        for column, values in sorted(choices.items())
    }
    return Space(bounds, columns, frozenset(categories), linear, nonlinear)


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


def _check_within_points(are_within_points: Iterable[bool]) -> None:
    if not all(are_within_points):
        raise ValueError(
            "expected constraints on single points, got one between the points of a batch, found one by one: "
            "constrain each of them, or use botorch.optim.optimize_acqf"
        )


class CellSearch:
    """
    A local search among the cells of a model, which evaluates one point of each cell.

    A column of numbers is divided into intervals by the walls of cells, and the middles of the intervals are its
    values; other columns have values of their own. Acquisition values of cells are kept until a point becomes pending.

    :param avoided: `n x d` points not to return.
    """

    def __init__(
        self, acq_function: Any, cells: ModelCells, space: Space, avoided: Tensor, max_batch_size: int
    ) -> None:
        self._acq_function, self._cells, self._space = acq_function, cells, space
        self._avoided, self._max_batch_size = avoided, max_batch_size
        self._walls = _walls_of(cells, space)
        middles = {column: (walls[1:] + walls[:-1]) / 2 for column, walls in self._walls.items()}
        self._values = [values for _, values in sorted({**space.choices, **middles}.items())]
        self._known: dict[int, float] = {}  # acquisition values by the keys of cells

    def starts(self, given: Tensor, num_restarts: int, raw_samples: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return the best points to start from (`r x d`, `num_restarts` at most) and their acquisition values (`r`)."""
        random, known = self._space.sampled(raw_samples, seed), get_X_baseline(self._acq_function)
        evaluated = self._avoided[:0] if known is None else self._space.rounded(known.detach().to(self._avoided))
        if prod(map(len, self._values)) <= raw_samples:
            cells = torch.cartesian_prod(*self._values).view(-1, self._space.num_columns)
        else:
            best = evaluated[self.evaluated(evaluated).argmax().view(1)] if len(evaluated) else evaluated
            cells = self._neighbors(best, every=True)[0]
        points = torch.cat([random, given, evaluated, cells])
        points = points[self._is_allowed(points)]
        if not len(points):
            raise RuntimeError(
                "found no point that keeps the constraints and is not in X_avoid: relax them, or give feasible points "
                "as batch_initial_conditions"
            )
        values = self.evaluated(points)
        order = values.argsort(descending=True, stable=True)
        first = np.unique(self._cells.keys(points[order]).cpu().numpy(), return_index=True)[1]  # of each cell
        order = order[torch.from_numpy(np.sort(first)).to(order.device)][:num_restarts]
        return points[order], values[order]

    def climbed(self, points: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Move each point (`r x d`) to its best neighbor, 1, 2, 4, ... values away, while that is better."""
        points, values, active = points.clone(), values.clone(), torch.arange(len(points), device=points.device)
        while len(active):
            neighbors, owners = self._neighbors(points[active], every=False)
            best, place = _best_of_owners(self.evaluated(neighbors), owners, len(active))
            better = best > values[active]
            active = active[better]
            points[active], values[active] = neighbors[place[better]], best[better]
        return points, values

    def refined(self, point: Tensor, value: Tensor) -> Tensor:
        """Move a point (`d`) to the best cell on any line through it along a column, until none is better."""
        while True:
            neighbors, _ = self._neighbors(point.unsqueeze(0), every=True)
            values = self.evaluated(neighbors)
            if not len(values) or not bool(values.max() > value):
                return point
            point, value = neighbors[values.argmax()], values.max()

    def centred(self, point: Tensor) -> Tensor:
        """Return the middle of a point's cell in each column of numbers, or the point where that is not allowed."""
        key, centre = self._cells.keys(point.unsqueeze(0)), point.clone()
        for column, walls in self._walls.items():
            line = point.repeat(len(walls) - 1, 1)
            line[:, column] = self._values[column]
            place = int(torch.searchsorted(walls[1:-1], point[column], right=True))
            first, last = _run(self._cells.keys(line) == key, place)
            centre[column] = (walls[first] + walls[last + 1]) / 2
        is_inside = self._cells.keys(centre.unsqueeze(0)) == key
        return centre if bool(is_inside & self._is_allowed(centre.unsqueeze(0))) else point

    def exclude(self, points: Tensor) -> None:
        self._avoided = torch.cat([self._avoided, points])
        self._known = {}

    @torch.no_grad()
    def evaluated(self, points: Tensor) -> Tensor:
        """Return the acquisition values (`n`) of points (`n x d`), with one evaluation for each new cell."""
        keys = self._cells.keys(points).tolist()
        new = {key: place for place, key in enumerate(keys) if key not in self._known}
        blocks = points[list(new.values())].split(self._max_batch_size) if new else ()
        values = [value for block in blocks for value in self._acq_function(block.unsqueeze(-2)).tolist()]
        self._known.update(zip(new, values, strict=True))
        return points.new_tensor([self._known[key] for key in keys])

    def _is_allowed(self, points: Tensor) -> Tensor:
        columns = zip(points.T, self._avoided.T)
        is_avoided = reduce(and_, (values.unsqueeze(-1) == avoided for values, avoided in columns)).any(-1)
        return self._space.is_feasible(points) & ~is_avoided

    def _neighbors(self, points: Tensor, *, every: bool) -> tuple[Tensor, Tensor]:
        """Points that differ from one of some (`r x d`) in a single column, and the number of that point."""
        found, owners = [points[:0]], [torch.empty(0, dtype=torch.int64, device=points.device)]
        for column, values in enumerate(self._values):
            everywhere = every or column in self._space.categories
            owner, place = _places(values, points[:, column].contiguous(), everywhere)
            neighbors = points[owner]
            neighbors[:, column] = values[place]
            found.append(neighbors)
            owners.append(owner)
        neighbors, owner = torch.cat(found), torch.cat(owners)
        allowed = self._is_allowed(neighbors)
        return neighbors[allowed], owner[allowed]


def _walls_of(cells: ModelCells, space: Space) -> dict[int, Tensor]:
    walls = {}
    for column, (known, (low, high)) in enumerate(zip(cells.walls(space.bounds), space.bounds.T)):
        if column not in space.choices:
            inner = torch.linspace(0, 1, _GRID + 1).to(low)[1:-1] * (high - low) + low if known is None else known
            steps = torch.linspace(0, len(inner) - 1, min(len(inner), _MOST_INTERVALS - 1)).round().long()
            walls[column] = torch.cat([low.view(1), inner[steps], high.view(1)])
    return walls


def _places(values: Tensor, at: Tensor, everywhere: bool) -> tuple[Tensor, Tensor]:
    """Numbers of points (with values `at` in a column, `r`), and of the values that they can move to."""
    if everywhere:
        owner, place = (torch.arange(number, device=at.device) for number in (len(at), len(values)))
        return owner.repeat_interleave(len(values)), place.repeat(len(at))
    steps = 2 ** torch.arange(len(values).bit_length(), device=at.device) - 1
    above = torch.searchsorted(values, at, right=True).unsqueeze(-1) + steps
    below = torch.searchsorted(values, at).unsqueeze(-1) - 1 - steps
    places = torch.cat([below, above], -1)
    owner, step = ((places >= 0) & (places < len(values))).nonzero().unbind(-1)
    return owner, places[owner, step]


def _run(is_same: Tensor, place: int) -> tuple[int, int]:
    """First and last of the true places around one without a break; the place itself if it is false."""
    breaks = (~is_same).nonzero().squeeze(-1)
    below, above = breaks[breaks < place], breaks[breaks > place]
    if not is_same[place]:
        return place, place
    return int(below[-1]) + 1 if len(below) else 0, int(above[0]) - 1 if len(above) else len(is_same) - 1


def _best_of_owners(values: Tensor, owners: Tensor, num_owners: int) -> tuple[Tensor, Tensor]:
    """The highest value of each owner, minus infinity without any, and its place."""
    best = values.new_full((num_owners,), -torch.inf).scatter_reduce(0, owners, values, "amax")
    places = torch.arange(len(values), device=values.device).masked_fill(values != best[owners], -1)
    return best, torch.full_like(best, -1, dtype=torch.int64).scatter_reduce(0, owners, places, "amax")
