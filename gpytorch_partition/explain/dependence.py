"""Partial dependence of a Gaussian process on a column: the mean over rows of the function, with its exact variance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from linear_operator import to_linear_operator
from linear_operator.operators import DiagLinearOperator
from scipy.stats import norm
from scipy.stats.mstats import mquantiles
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.explain.kernel_parts import dual_weights, strategy_of
from gpytorch_partition.inference.prediction.predictive_covariance import PredictiveCovarianceLinearOperator
from gpytorch_partition.inputs.missing import encode_missing
from gpytorch_partition.likelihoods.fitc_likelihood import unspanned_variances
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.operators.accuracy import prediction_residual
from gpytorch_partition.tables.cells import DATES, LEVELS, NUMBERS, TEXT, plain_level, read_cells

_PERCENTILES = (0.05, 0.95)  # of the column's values, between which the grid lies, as scikit-learn's


@dataclass(frozen=True, eq=False)
class PartialDependence:
    """
    The mean over rows of the function, with one column at each of G values.

    `partial_dependence()` uses it as its result.

    :param column: Name of the column.
    :param grid: `G` values of the column.
    :param mean: `G` posterior means, in units of the targets.
    :param std: `G` posterior standard deviations of these averages; noise has no part in them. None of probabilities.
    :param values: The values that the column has in the rows, without missing ones.
    :param target: What the targets are called. (Default: `"target"`.)
    """

    column: str
    grid: np.ndarray
    mean: np.ndarray
    std: np.ndarray | None
    values: np.ndarray = field(repr=False)
    target: str = "target"

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """
        The ends of pointwise intervals (`G` each).

        :param level: Probability inside. (Default: 0.9.)
        :raises ValueError: If the level is not between 0 and 1, or these are probabilities, which have none.
        """
        if self.std is None:
            raise ValueError("expected the dependence of a regressor: probabilities of classes have no intervals")
        if not 0 < level < 1:
            raise ValueError(f"expected a level between 0 and 1, got {level!r}")
        half = norm.ppf(0.5 + level / 2) * self.std
        return self.mean - half, self.mean + half

    def plot(self, ax: Any = None, *, level: float = 0.9, target: str | None = None) -> Any:
        """The curve with its intervals (:func:`gpytorch_partition.explain.plots.plot_partial_dependence`)."""
        from gpytorch_partition.explain.plots import plot_partial_dependence

        return plot_partial_dependence(self, ax=ax, level=level, target=target)


def partial_dependence(
    model: Any,
    X: Any,
    column: int | str,
    *,
    grid: Any = None,
    grid_resolution: int = 30,
    target: int | str | None = None,
) -> PartialDependence:
    r"""
    How the function depends on one column, averaged over the other columns of some rows (Friedman 2001, section 8.2).

    At each value g of the grid it is the average :math:`\frac1N \sum_i f(x_i^{(g)})` over the rows with the column set
    to g. That is a linear functional of the function, whose posterior variance,
    :math:`\bar k(g, g) - \bar k(g)^\top (K + D)^{-1} \bar k(g)` with averages :math:`\bar k` of covariances, is that of
    the average itself: errors at different rows are dependent, and an average of pointwise variances would be wrong.
    It says how well the average over these rows is known, not how rows differ from it. Variance that inducing points
    leave out (:class:`~gpytorch_partition.likelihoods.FITCGaussianLikelihood`), where the model has it, is counted as
    if it were the same at all rows, which is an upper bound.

    Values that do not go with the rows' other columns are extrapolations, as in every partial dependence.

    One solve for each value of the grid, and a product with :math:`N_{rows}` points.

    :param model: A fitted :class:`~gpytorch_partition.estimators.PartitionGPRegressor`.
    :param X: `N x D` rows that are averaged over: a few hundred are enough, if they are a random sample.
    :param column: Number of the column, from 0 or, if it is negative, from the end (-1 is the last one); or its name.
    :param grid: Values of the column. (Default: its own values, if there are not more than `grid_resolution`;
        else that many from the 5 % to the 95 % quantile, as scikit-learn has them; of whole numbers some of those that
        there are, of categories the most frequent.)
    :param grid_resolution: See above. (Default: 30.)
    :param target: Number (as of columns) or name of the target, where the model has several. (Default: None, it has
        one.)
    :raises ValueError: If there is no such column, or rows or grid cannot be used.
    :raises sklearn.exceptions.NotFittedError: Before `fit`.

    Example:
        >>> from gpytorch_partition.estimators import PartitionGPRegressor
        >>> X = np.random.RandomState(0).rand(80, 2)
        >>> model = PartitionGPRegressor("mondrian", num_partitions=50, random_state=0).fit(X, 3 * X[:, 0])
        >>> found = partial_dependence(model, X, 0, grid=[0.2, 0.8])
        >>> bool(found.mean[1] > found.mean[0] + 1)
        True
    """
    check_is_fitted(model, "model_")
    name, chosen, values, tables = tables_on_grid(model, X, column, grid, grid_resolution)
    teller = model._telling_once()
    points = [model._points(teller._checked_rows(table)) for table in tables]
    if model._has_several:
        own = _target_number(model, target)
        moments, called = _of_target(model, points, own), model.target_names_[own]
        return PartialDependence(name, chosen, *moments, values, called)
    if target is not None:
        raise ValueError(f"expected no target for a model of one target, got {target!r}: leave it out")
    means, priors, left_out, cross = (torch.stack(found) for found in zip(*(_average(model.model_, x) for x in points)))
    variances = _variances(model.model_, priors, cross) + left_out
    std = variances.double().clamp_min(0).sqrt().numpy() * model._y_scale
    known = {} if model.target_name_ is None else {"target": model.target_name_}
    return PartialDependence(name, chosen, model._unit.undo(means).numpy(), std, values, **known)


def tables_on_grid(
    model: Any, X: Any, column: int | str, grid: Any, grid_resolution: int
) -> tuple[str, np.ndarray, np.ndarray, Iterator[Any]]:
    """
    The name of a column, a grid of its values, its values in some rows, and the rows with each value of the grid.

    Parameters are those of :func:`partial_dependence`; the model may be a classifier too.
    """
    names = model._column_names()
    number = _number_of(column, names)
    X = table_of(X, names)
    kind = NUMBERS if model.encoder_ is None else list(model.encoder_.kinds_.values())[number]
    values = _dated(_values_of(X, number, kind), number, kind, model.encoder_)
    chosen = _default_grid(values, grid_resolution, kind) if grid is None else _checked_grid(grid)
    return names[number], chosen, values, (_with_value(X, number, value) for value in chosen)


def _target_number(model: Any, target: int | str | None) -> int:
    """Which of several targets it is."""
    names = model.target_names_.tolist()
    if target is None:
        shown = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
        raise ValueError(f"expected the target whose dependence it is, got none: give target=, one of {shown}")
    return _number_of(target, names, "target")


@torch.no_grad()
def _of_target(model: Any, points: list[Tensor], number: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations (`G` each) of one of several targets, in its units."""
    view, found = model.model_.views()[number], []
    with settings.iterative(), settings.no_debug():
        for x in map(encode_missing, points):
            weights = x.new_full((len(x), 1), 1 / len(x))
            found.append(
                [
                    to_linear_operator(view.covar_module(rows, x)).evaluate_kernel().matmul(weights).squeeze(-1)
                    for rows in (x, view.train_inputs[0])
                ]
            )
    priors, cross = torch.stack([prior.mean() for prior, _ in found]), torch.stack([each for _, each in found])
    means = view.constant + (cross @ view.prediction_strategy.mean_cache).double()
    mean, scale = model._unit.mean[number], model._unit.scale[number]
    std = view.variances_of(priors, cross).clamp_min(0).sqrt()
    return (mean + scale * means).numpy(), (scale * std).numpy()


@torch.no_grad()
def _average(model: PartitionGP, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean and prior variance of the average over points, what inducing points leave out, and covariances with rows."""
    with settings.iterative(), settings.no_debug():
        alpha, x = dual_weights(model), encode_missing(x)
        weights = x.new_full((len(x), 1), 1 / len(x))
        prior, cross = (
            to_linear_operator(model.covar_module(rows, x)).evaluate_kernel().matmul(weights).squeeze(-1)
            for rows in (x, model.train_inputs[0])
        )
        left_out = unspanned_variances(model.likelihood, x)
        spread = x.new_zeros(()) if left_out is None else left_out.sqrt().mean().square()
        return model.mean_module(x).mean() + cross @ alpha, prior.mean(), spread, cross


@torch.no_grad()
def _variances(model: PartitionGP, priors: Tensor, cross: Tensor) -> Tensor:
    """Posterior variances (`G`) of averages from their prior ones (`G`) and covariances with rows (`G x N`)."""
    strategy = strategy_of(model)
    with settings.iterative():
        left = to_linear_operator(cross)
        covariance = PredictiveCovarianceLinearOperator(
            DiagLinearOperator(priors),
            left,
            left,
            strategy._noisy,
            tolerance=settings.variance_tolerance.value(),
            residual=prediction_residual(),
            is_dense=strategy._is_dense,
        )
        return covariance.diagonal(dim1=-2, dim2=-1)


def _number_of(column: int | str, names: list[str], kind: str = "column") -> int:
    if isinstance(column, str) and column in names:
        return names.index(column)
    is_number = isinstance(column, int | np.integer) and not isinstance(column, bool)
    if is_number and -len(names) <= int(column) < len(names):
        return int(column) % len(names)
    shown = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
    raise ValueError(
        f"expected a {kind}'s number below {len(names)} (-1 is the last one) or its name, one of {shown}, got "
        f"{column!r}"
    )


def table_of(X: Any, names: list[str]) -> Any:
    """A mapping with its columns in the order of the model's, and lists of rows with cells of their own types."""
    if isinstance(X, Mapping) and set(map(str, X)) == set(names):
        return dict(sorted(X.items(), key=lambda item: names.index(str(item[0]))))
    is_text = isinstance(X, list | tuple) and np.asarray(X).dtype.kind == "U"  # that NumPy made of numbers as well
    return np.array(X, dtype=object) if is_text else X


def _values_of(X: Any, number: int, kind: str) -> np.ndarray:
    """The values of a column that are not missing, as the encoder of tables reads numbers and levels."""
    if hasattr(X, "iloc"):
        values = np.asarray(X.iloc[:, number].dropna())
    else:
        values = np.asarray(list(X.values())[number]) if isinstance(X, Mapping) else np.asarray(X)[:, number]
        values = values[np.array([value is not None and value == value for value in values], dtype=bool)]
    if kind == NUMBERS and values.dtype.kind in "Om":
        return read_cells(values, "").values
    if kind in LEVELS:
        plain = [str(value) if kind == TEXT else plain_level(value, "") for value in values]
        return np.array([*plain, None], dtype=object)[:-1]
    return values


def _dated(values: np.ndarray, number: int, kind: str, encoder: Any) -> np.ndarray:
    """Numbers and dates that are text as values, between which there are others."""
    if kind not in (NUMBERS, DATES) or not len(values) or not isinstance(values[0], str):
        return values
    name = list(encoder.kinds_)[number]
    values = encoder.read({name: values})[0][name]
    return values[values == values]


def _with_value(X: Any, number: int, value: Any) -> Any:
    """The rows with one column set to a value; a data frame stays one."""
    if hasattr(X, "iloc"):
        changed = X.copy()
        changed.isetitem(number, [value] * len(X))
        return changed
    if isinstance(X, Mapping):
        chosen = list(X)[number]
        return {name: [value] * len(column) if name == chosen else column for name, column in X.items()}
    rows = np.array(X, dtype=np.float64 if np.asarray(X).dtype.kind in "biuf" else object)
    rows[:, number] = value
    return rows


def _default_grid(values: np.ndarray, resolution: int, kind: str) -> np.ndarray:
    """All values, the most frequent of many categories, or numbers and dates between quantiles."""
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
    if values.dtype.kind == "O" or _is_whole(values):  # dates with a time zone, periods, codes: some of those there are
        return distinct[np.linspace(*_ends(np.arange(len(distinct))), resolution).round().astype(np.int64)]
    return np.linspace(*_ends(values), resolution)


def _is_whole(values: np.ndarray) -> bool:
    """Whether a column has whole numbers only, between which a kernel of groups has no values."""
    return values.dtype.kind in "iu" or bool(values.dtype.kind == "f" and (values == np.round(values)).all())


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = mquantiles(values, _PERCENTILES)
    return float(low), float(high)


def _checked_grid(grid: Any) -> np.ndarray:
    found = np.asarray(grid)
    if found.ndim != 1 or not len(found):
        raise ValueError(f"expected a grid of one value or more, got {grid!r}")
    return found
