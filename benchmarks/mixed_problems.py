"""Mixed problems of BoTorch's test functions: numbers, integers, categories and constraints, to be maximized."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from botorch.test_functions.synthetic import (
    AckleyMixed,
    Hartmann,
    Labs,
    Levy,
    PressureVessel,
    Rosenbrock,
    StyblinskiTang,
)
from torch import Tensor

_INCREMENT = 0.0625  # of the pressure vessel's two thicknesses
_SCRAMBLED = (3, 0, 4, 1, 2)  # the place of each category on the axis that it stands for


@dataclass(frozen=True)
class MixedProblem:
    """
    A function of a mixed space, whose highest value is known or bounded.

    :param description: What its columns are.
    :param bounds: `2 x d`.
    :param function: From points (`n x d`) to values (`n`), to be maximized.
    :param best: The highest value.
    :param discrete: Values of ordered columns.
    :param categories: Values of unordered columns.
    :param constraints: Linear inequality constraints, as BoTorch spells them.
    """

    description: str
    bounds: Tensor
    function: Callable[[Tensor], Tensor]
    best: float
    discrete: Mapping[int, Sequence[float]] = field(default_factory=dict)
    categories: Mapping[int, Sequence[float]] = field(default_factory=dict)
    constraints: Sequence[tuple[Tensor, Tensor, float]] = ()


def _ackley() -> MixedProblem:
    function = AckleyMixed(dim=13, negate=True)
    discrete = {column: [0.0, 1.0] for column in range(10)}
    return MixedProblem("10 binary, 3 numbers", function.bounds, function, 0.0, discrete)


def _labs() -> MixedProblem:
    function = Labs(dim=20)
    discrete = {column: [0.0, 1.0] for column in range(20)}
    return MixedProblem("20 binary", function.bounds, function, function.optimal_value, discrete)


def _pressure_vessel() -> MixedProblem:
    """The logarithm of the cost; two constraints are linear and known, infeasible vessels cost what the worst cost."""
    function = PressureVessel()
    thicknesses = [_INCREMENT * number for number in range(161)]
    constraints = [
        (torch.tensor([0, 2]), torch.tensor([1.0, -0.0193], dtype=torch.float64), 0.0),
        (torch.tensor([1, 2]), torch.tensor([1.0, -0.00954], dtype=torch.float64), 0.0),
    ]
    return MixedProblem(
        "2 x 161 thicknesses, 2 numbers, 2 linear constraints",
        function.bounds,
        partial(_negative_log_cost, function),
        -float(torch.tensor(function.optimal_value).log()),
        {0: thicknesses, 1: thicknesses},
        constraints=constraints,
    )


def _negative_log_cost(function: Any, X: Tensor) -> Tensor:
    cost = torch.where(function.is_feasible(X), function(X), X.new_tensor(function.worst_feasible_value))
    return -cost.log()


def _rosenbrock() -> MixedProblem:
    """The logarithm of one plus the function, whose values are up to a million."""
    function = Rosenbrock(dim=6)
    discrete = {column: [float(number) for number in range(-5, 11)] for column in range(3)}
    return MixedProblem("3 x 16 integers, 3 numbers", function.bounds, lambda X: -function(X).log1p(), 0.0, discrete)


def _hartmann() -> MixedProblem:
    """On a grid of eleven values in two columns the highest value is not known: that of all numbers is a bound."""
    function = Hartmann(dim=6, negate=True)
    discrete = {column: [number / 10 for number in range(11)] for column in (0, 3)}
    return MixedProblem("2 x 11 values, 4 numbers", function.bounds, function, 3.32237, discrete)


def _levy() -> MixedProblem:
    function = Levy(dim=8, negate=True)
    discrete = {column: [float(number) for number in range(-10, 11)] for column in range(4)}
    return MixedProblem("4 x 21 integers, 4 numbers", function.bounds, function, 0.0, discrete)


def _styblinski_tang() -> MixedProblem:
    """Two columns are categories: five points of their axes in scrambled order, the best one, -2.903534, among them."""
    function = StyblinskiTang(dim=6, negate=True)
    places = torch.tensor([-2.903534, -1.0, 0.5, 2.746803, 4.0], dtype=torch.float64)[list(_SCRAMBLED)]

    def value(X: Tensor) -> Tensor:
        X = X.clone()
        X[..., :2] = places[X[..., :2].long()]
        return function(X)

    bounds = function.bounds.clone()
    bounds[:, :2] = torch.tensor([[0.0], [4.0]])
    categories = {column: [0.0, 1.0, 2.0, 3.0, 4.0] for column in (0, 1)}
    return MixedProblem("2 x 5 categories, 4 numbers", bounds, value, 6 * 39.16616570377142, categories=categories)


PROBLEMS: dict[str, Callable[[], MixedProblem]] = {
    "Ackley": _ackley,
    "LABS": _labs,
    "pressure vessel": _pressure_vessel,
    "Rosenbrock": _rosenbrock,
    "Hartmann": _hartmann,
    "Levy": _levy,
    "Styblinski-Tang": _styblinski_tang,
}
