"""Partial dependence on a column: the mean over rows of the function, with its exact variance, or of a probability."""

from __future__ import annotations

from calendar import day_abbr, day_name, month_abbr, month_name
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import torch
from linear_operator import to_linear_operator
from linear_operator.operators import DiagLinearOperator
from scipy.stats import norm
from scipy.stats.mstats import mquantiles
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.explain.given_columns import column_names, first_names, given_rows, number_of
from gpytorch_partition.explain.kernel_parts import strategy_of
from gpytorch_partition.inference.prediction.predictive_covariance import predictive_covariance
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.inputs.text_targets import composed
from gpytorch_partition.inputs.training_rows import encode_missing
from gpytorch_partition.likelihoods.noise_likelihoods import unspanned_variances
from gpytorch_partition.models import CoregionalizedGP, PartitionGP
from gpytorch_partition.models.coregionalized import TargetView
from gpytorch_partition.tables.cells import DATES, LEVELS, NUMBERS, TEXT

_PERCENTILES = (0.05, 0.95)  # of the column's values, between which the grid lies, as scikit-learn's


@dataclass(frozen=True, eq=False)
class PartialDependence:
    """
    Hold the prediction at each of G values of one column, averaged over the other columns of some rows.

    `partial_dependence()` uses it as its result.
    """

    column: str
    grid: np.ndarray  #: `G` values of the column.
    mean: np.ndarray  #: `G` posterior means, in units of the targets.
    std: np.ndarray | None  #: `G` standard deviations of the averages, without the noise; None for probabilities.
    values: np.ndarray = field(repr=False)  #: Values of the column in the rows, without missing ones.
    target: str = "target"  #: The name of the targets.

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """
        Return the ends of pointwise intervals (`G` each).

        :param level: Probability inside. (Default: 0.9.)
        :raises ValueError: If the level is not between 0 and 1, or for probabilities, which have no intervals.
        """
        if self.std is None:
            raise ValueError("expected the dependence of a regressor: probabilities of classes have no intervals")
        if not 0 < level < 1:
            raise ValueError(f"expected a level between 0 and 1, got {level!r}")
        half = norm.ppf(0.5 + level / 2) * self.std
        return self.mean - half, self.mean + half

    def plot(self, ax: Any = None, *, level: float = 0.9, target: str | None = None) -> Any:
        """Draw the curve with its intervals (:func:`gpytorch_partition.explain.plots.plot_partial_dependence`)."""
        from gpytorch_partition.explain.plots import plot_partial_dependence

        return plot_partial_dependence(self, ax=ax, level=level, target=target)


class RowsOnGrid(NamedTuple):
    """Hold copies of rows in which one column has a value of a grid, for each value."""

    column: str
    grid: np.ndarray  # G values
    values: np.ndarray  # of the column in the rows, without missing ones
    tables: Iterator[Any]  # G of the N rows


def rows_on_grid(estimator: Any, X: Any, column: int | str, grid: Any, grid_resolution: int) -> RowsOnGrid:
    """Return rows with one column set to each value of a grid; parameters are those of `partial_dependence`."""
    names = column_names(estimator)
    number, rows = number_of(column, names), given_rows(estimator, X)
    kind, values = _known_values(estimator.encoder_, rows, number)
    chosen = _default_grid(values, grid_resolution, kind) if grid is None else np.asarray(grid)
    if chosen.ndim != 1 or not len(chosen):
        raise ValueError(f"expected a grid of one value or more, got {grid!r}")
    if grid is None and kind in LEVELS:
        chosen = _in_order(chosen, values, kind, estimator.encoder_.levels_of(names[number]))
    return RowsOnGrid(names[number], chosen, values, (_with_value(rows, number, value) for value in chosen))


def average_function(
    estimator: Any, rows: RowsOnGrid, as_points: Callable[[Any], Tensor], unit: Standardization, target: Any
) -> PartialDependence:
    r"""
    Return the function of a regressor by values of one column, averaged over rows (Friedman 2001, section 8.2).

    At each value g of the grid it is the average :math:`\frac1N \sum_i f(x_i^{(g)})` over the rows with the column set
    to g. Its posterior variance is :math:`\bar k(g, g) - \bar k(g)^\top (K + D)^{-1} \bar k(g)` for averages
    :math:`\bar k` of covariances, with D the diagonal noise. Variance that inducing points leave out
    (:class:`~gpytorch_partition.likelihoods.FITCGaussianLikelihood`) is added as if common to all rows, a bound.

    :param target: Number or name of the target, where the model has several; else None.
    """
    model, called, mean, scale = estimator.model_, estimator.target_name_ or "target", unit.mean, unit.scale
    if isinstance(model, CoregionalizedGP):
        names = estimator.target_names_.tolist()
        if target is None:
            raise ValueError(f"expected a target of several, got none: give target=, one of {first_names(names)}")
        number = number_of(target, names, "target")
        model, called, mean, scale = model.views()[number], names[number], mean[number], scale[number]
    elif target is not None:
        raise ValueError(f"expected no target for a model of one target, got {target!r}: leave it out")
    means, variances = averages(model, map(as_points, rows.tables))
    moments = (mean + scale * means).numpy(), (scale * variances.clamp_min(0).sqrt()).numpy()
    return PartialDependence(rows.column, rows.grid, *moments, rows.values, called)


def number_of_class(wanted: Any, classes: list[Any]) -> int:
    """Return the number of a class among all classes; None stands for the second of two."""
    if wanted is None and len(classes) == 2:
        return 1
    if (wanted := composed(wanted)) not in classes:
        raise ValueError(f"expected a class as the target, one of {first_names(classes)}, got target={wanted!r}")
    return classes.index(wanted)


@torch.no_grad()
def averages(model: PartitionGP | TargetView, points: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the posterior mean and variance (`G` each) of the average of the function over each set of points."""
    with settings.iterative(), settings.no_debug():
        found = zip(*(_average(model, encode_missing(x)) for x in points))
        (levels, priors, left_out, cross), alpha = map(torch.stack, found), strategy_of(model).mean_cache
        cross, of_means = cross.unbind(-1)
        if isinstance(model, TargetView):
            variances = model.variances_of(priors, cross)
        else:
            prior = DiagLinearOperator(priors)
            posterior = predictive_covariance(prior, to_linear_operator(cross), strategy_of(model)._noisy)
            variances = posterior.diagonal(dim1=-2, dim2=-1)
        return (levels + of_means @ alpha).double(), (variances + left_out).double()


def _average(model: PartitionGP | TargetView, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """
    Return level and prior variance of the average over points, variance left out, and covariances with rows (`N x 2`).

    Their second column is of the share of each point's mean that rows determine.
    """
    shares = x.new_ones(len(x)) if isinstance(model, TargetView) else model.share_of_rows(x)
    weights = torch.stack([torch.ones_like(shares), shares], -1) / len(x)
    prior, cross = (
        to_linear_operator(model.covar_module(rows, x)).evaluate_kernel().matmul(weights)
        for rows in (x, model.train_inputs[0])
    )
    prior = prior[:, 0]
    if isinstance(model, TargetView):
        return model.constant, prior.mean(), x.new_zeros(()), cross
    left_out = unspanned_variances(model.likelihood, x)
    spread = x.new_zeros(()) if left_out is None else left_out.sqrt().mean().square()
    return model.level(x).mean(), prior.mean(), spread, cross


def _known_values(encoder: Any, rows: Any, number: int) -> tuple[str, np.ndarray]:
    """Return the kind of a column and its values without missing ones; numbers as text become numbers."""
    if encoder is None:
        values = np.asarray(rows[:, number], dtype=np.float64)
        return NUMBERS, values[~np.isnan(values)]
    name, kind = list(encoder.kinds_.items())[number]
    values = encoder.read({name: rows[name]})[0][name]
    known = np.array([value is not None and value == value for value in values], dtype=bool)
    cells = np.asarray(rows[name])[known]
    are_dates = kind == DATES and len(cells) > 0 and isinstance(cells[0], date)  # objects, which may have a time zone
    return kind, cells if are_dates or cells.dtype.kind in "biuM" else values[known]


def _with_value(rows: Any, number: int, value: Any) -> Any:
    if isinstance(rows, dict):
        chosen = list(rows)[number]
        return {name: np.array([value] * len(cells)) if name == chosen else cells for name, cells in rows.items()}
    changed = np.array(rows, dtype=np.float64 if rows.dtype.kind in "biuf" else object)
    changed[:, number] = value
    return changed


def _default_grid(values: np.ndarray, resolution: int, kind: str) -> np.ndarray:
    """Return all values, the most frequent of many categories, or numbers and dates between quantiles."""
    if resolution < 2:
        raise ValueError(f"expected a grid_resolution of 2 or more, got {resolution!r}")
    if not len(values):
        raise ValueError("expected a column with a value, got missing ones only: give a grid")
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= resolution:
        return distinct
    if kind in LEVELS:
        return distinct[np.sort(np.argsort(-counts, kind="stable")[:resolution])]
    if values.dtype.kind == "M":
        numbers = np.linspace(*_ends(values.astype(np.int64)), resolution)
        return numbers.round().astype(np.int64).astype(values.dtype)
    if values.dtype.kind == "O" or bool((values == np.round(values)).all()):  # not between codes of groups
        return distinct[np.linspace(*_ends(np.arange(len(distinct))), resolution).round().astype(np.int64)]
    return np.linspace(*_ends(values), resolution)


def _in_order(levels: np.ndarray, values: np.ndarray, kind: str, learned: list[Any]) -> np.ndarray:
    """Return levels as the calendar has them, or a category declares them, else the most frequent first."""
    for names in (month_name, month_abbr, day_name, day_abbr):
        order = [each.casefold() for each in names if each]
        if {str(level).casefold() for level in levels} <= {*order}:
            return np.array(sorted(levels, key=lambda level: order.index(str(level).casefold())), dtype=levels.dtype)
    counts, learned = Counter(values.tolist()), [*learned, *levels]
    key = (lambda level: -counts[level]) if kind == TEXT else learned.index
    return np.array(sorted(levels, key=key), dtype=levels.dtype)


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = mquantiles(values, _PERCENTILES)
    return float(low), float(high)
