"""Sizes of Mondrian kernels on a box: the cells of a tree, and the trees for an error that holds everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import numpy as np

_LEAST, _LARGEST = 1e-6, 1e6


def expected_cells(lifetime: float, widths: Sequence[float] | np.ndarray) -> float:
    r"""
    Return the expected number of cells of a Mondrian process on a box.

    Use it to choose a lifetime before trees are grown: m trees have m times as many clusters where rows fill the box.

    It is :math:`\prod_d (1 + \lambda w_d)` (Mourtada, Gaiffas & Scornet 2017, proposition 2), at most
    :math:`e^{\lambda |X|}` with :math:`|X| = \sum_d w_d`. More than n cells have a probability of at most
    :math:`e^{\lambda |X|} / n` (Balog et al. 2016, proposition 3).

    :param lifetime: Lifetime :math:`\lambda`, above 0.
    :param widths: Widths :math:`w_d` of the box, above 0.
    :raises ValueError: If a number is not above 0.

    Example:
        >>> expected_cells(2.0, [1.0, 0.5])
        6.0
    """
    return float(np.prod(1 + _checked(lifetime, widths)))


def trees_for_error(
    error: float, lifetime: float, widths: Sequence[float] | np.ndarray, *, probability: float = 0.05
) -> int:
    r"""
    Return a number of trees for which a Mondrian kernel is as near to the Laplace kernel on a whole box.

    Use it for a guarantee; a hundredth suffices on average. A pair's standard error is :math:`1 / (2 \sqrt m)` at most.

    The number m is one for which the union bound of Balog et al. (2016, proposition 2, proved in supplement A)
    holds, with a third of the probability p for each of three events:

    - a tree has more than :math:`n = 3 m e^{\lambda |X|} / p` cells;
    - two cuts of a column lie in one of its :math:`s_d` segments, :math:`s_d \ge 3 D (\lambda m n w_d)^2 / 2 p`;
    - a pair of the grid's points is off by more than half of the error :math:`\delta`, with a probability of at most
      :math:`2 e^{-m \delta^2 / 2}` for each pair.

    With :math:`s_d \ge 4 D \lambda w_d / \delta` the way from a point to the grid point in its cell changes the Laplace
    kernel by the other half at most.

    :param error: Largest difference :math:`\delta` of the two kernels at any pair of points, between 1e-6 and 1.
    :param lifetime: Lifetime :math:`\lambda`, above 0.
    :param widths: Widths :math:`w_d` of the box, above 0.
    :param probability: Probability p that some pair is off by more. (Default: .05.)
    :raises ValueError: If a number is out of its range.

    Example:
        >>> trees_for_error(0.1, 1.0, [1.0, 1.0])
        48362
    """
    for name, value in (("error", error), ("probability", probability)):
        if not isinstance(value, Real) or not _LEAST < value < 1:
            raise ValueError(f"expected {name} between {_LEAST} and 1, got {value!r}")
    scaled = _checked(lifetime, widths)
    share, dimension, before, number = probability / 3, len(scaled), 0, 1
    while number != before:
        before = number
        cuts = np.log(scaled) + 2 * math.log(number) - math.log(share) + scaled.sum()  # log of lambda m n w_d
        segments = np.maximum(2 * cuts + math.log(dimension / (2 * share)), np.log(4 * dimension * scaled / error))
        points = np.logaddexp(segments, math.log(2)).sum()  # a rounded number of segments, and one point more
        number = math.ceil(2 / error**2 * (2 * points - math.log(share)))
    return number


def _checked(lifetime: float, widths: Sequence[float] | np.ndarray) -> np.ndarray:
    try:
        found = np.atleast_1d(np.asarray(widths, dtype=np.float64))
    except (TypeError, ValueError):
        found = np.empty(0)  # refused below
    if not isinstance(lifetime, Real) or not 0 < lifetime < _LARGEST:
        raise ValueError(f"expected a lifetime above 0 and below {_LARGEST}, got {lifetime!r}")
    if found.ndim != 1 or not len(found) or not ((found > 0) & (found < _LARGEST)).all():
        raise ValueError(f"expected widths above 0 and below {_LARGEST}, a number for each column, got {widths!r}")
    return float(lifetime) * found
