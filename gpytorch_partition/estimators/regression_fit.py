"""Fits of regressors to rows in memory: by held-out rows, by marginal likelihood, and to several targets."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf
from numbers import Real
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from linear_operator import to_linear_operator
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.estimators import kernel_parameter
from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.likelihoods import WeightedGaussianLikelihood
from gpytorch_partition.linalg.factors import stable_eigh
from gpytorch_partition.models import CoregionalizedGP, PartitionGP
from gpytorch_partition.partitions.ensembles.libraries import is_ensemble
from gpytorch_partition.presets import Options, default_model, ensemble_model
from gpytorch_partition.presets.data import Blocks, some_of
from gpytorch_partition.presets.default import FEWEST_ROWS
from gpytorch_partition.presets.options import DEFAULT, Level, fit_within, levels, some_rows
from gpytorch_partition.presets.targets import default_targets_model, imputed
from gpytorch_partition.progress import stage, tell
from gpytorch_partition.tables import needs_view
from gpytorch_partition.training.coregionalization import LEAST_NOISE, fit_coregionalization
from gpytorch_partition.training.marginal_likelihood import NOISE_AT_BOUND
from gpytorch_partition.training.one_pass import fit_exact_gp

logger = logging.getLogger(__name__)

DTYPES = {"auto": None, "float32": torch.float32, "float64": torch.float64}

_MOST_DENSE_ROWS = 2_000  # up to here solves are dense and cheap in float64
_LEAST_DEVIATION = 1e-3  # of standardized targets; constant ones have 1e-15 by rounding
_TOLERANCE = 1.2  # budgets that a fit may take without a warning
_CLOSE_TO_BOUND = 1.01
_END = 0.95  # level of the ends of 90 % intervals


def new_likelihood(weights: RowWeights | None) -> Likelihood:
    return GaussianLikelihood() if weights is None else WeightedGaussianLikelihood(weights.values, unit=weights.unit)


def target_unit(y: np.ndarray, weights: RowWeights | None) -> Standardization:
    """Return the standardization of targets, with weights capped at 1 in the usual unit."""
    if weights is None:
        return Standardization.of_array(y, are_targets=True)
    return Standardization.of_weighted(torch.from_numpy(y), weights.capped)


def columns_of(estimator: Any, rows: np.ndarray) -> Standardization:
    """Return the standardization of all columns but codes; no column changes for kernels that see raw columns."""
    if kernel_parameter.sees_raw_columns(estimator.kernel):
        kernel_parameter.check_columns(estimator.kernel, estimator)
        return Standardization.of_array(rows).without(range(rows.shape[1]))
    columns = Standardization.of_columns(rows)
    if kernel_parameter.name_of(estimator.kernel) == "auto":
        columns = replace(columns, far=inf)  # the model itself compresses far values
    return columns.without(estimator._categories)


def chooses_by_folds(kernel: Any) -> bool:
    return kernel_parameter.name_of(kernel) == "auto" or is_ensemble(kernel)


def check_budget(budget: float | None, kernel: Any) -> None:
    if budget is None:
        return
    if not isinstance(budget, Real) or isinstance(budget, bool) or not 0 < budget < inf:
        raise ValueError(f"expected budget to be a positive number of seconds, or None for no limit, got {budget!r}")
    if kernel_parameter.name_of(kernel) != "auto":
        raise ValueError(
            f"expected budget=None with other kernels than 'auto', which leave nothing out, got {budget!r}: for less "
            "time give them fewer rows or partitions (num_partitions=)"
        )


def check_for_several(kernel: Any, budget: float | None, weights: np.ndarray | None) -> None:
    if weights is not None:
        raise ValueError(
            "expected sample_weight=None with several targets, got weights: fit a regressor to the known rows of each "
            "target, or leave out rows that are not to count"
        )
    if budget is not None:
        raise ValueError(
            f"expected budget=None with several targets, got {budget!r}: give fewer rows, "
            "options=Options(most_rows=2000) or kernel='forest', or fit a regressor to each"
        )
    if is_ensemble(kernel):
        raise ValueError(
            f"expected one target for a {type(kernel).__name__}, got several: fit a regressor to each "
            "(sklearn.multioutput.MultiOutputRegressor), or give kernel='auto' or 'forest'"
        )


class Found(NamedTuple):
    model: Any
    numbers: np.ndarray | None  # of its rows among all that were given; None for all
    log_marginal_likelihood: float | None = None
    at_bounds: Mapping[str, float] = {}
    num_iterations: int = 0
    options: Options | None = None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class RegressionFit:
    """Rows and targets in their units, and an estimator, whose parameters say how a model is fitted to them."""

    estimator: Any
    x: Tensor  # N x D standardized rows (float64)
    y: Tensor  # (N,) or N x T standardized targets, NaN for missing entries of several
    unit: Standardization
    numbers: np.ndarray | None  # of the rows among all that were given; None for all
    weights: RowWeights | None
    blocks: Blocks | None

    def run(self, original: np.ndarray, points: Tensor) -> Found:
        """
        Fit the model within a budget of seconds, or None.

        :param original: The targets in their own units.
        :param points: Standardized rows that the kernel is built on, which may include unlabelled ones.
        """
        kernel = self.estimator.kernel
        if self.y.ndim == 1 and chooses_by_folds(kernel):
            if len(self.y) >= FEWEST_ROWS and float(self.y.std()) > _LEAST_DEVIATION:
                return self._by_folds(torch.from_numpy(original))
            if 1 < len(self.y) < FEWEST_ROWS:
                told = f"expected {FEWEST_ROWS} rows or more to choose a model by, got {len(self.y)}"
                how = "the kernel is a plain forest, or that of the ensemble, with wide intervals"
                warnings.warn(f"{told}: {how}", stacklevel=level_of_caller())
        is_exact = len(self.x) <= _MOST_DENSE_ROWS or kernel_parameter.sees_raw_columns(kernel)
        dtype = DTYPES[self.estimator.dtype] or (torch.float64 if is_exact else torch.float32)
        typed = replace(self, x=self.x.to(dtype), y=self.y.to(dtype))
        if self.y.ndim == 1:
            return typed._by_likelihood(points.to(dtype))
        if kernel_parameter.name_of(kernel) == "auto" and len(self.x) >= FEWEST_ROWS:
            return typed.of_options(typed.y, self.estimator.options or DEFAULT)
        return typed._targets_by_likelihood(points.to(dtype))

    def _by_folds(self, original: Tensor) -> Found:
        found: list[Found] = []

        def fit(options: Options) -> None:
            found[:] = [self.of_options(original, options)]

        estimator = self.estimator
        shape = len(self.y), inf if needs_view(self.x, estimator._categories) else self.x.shape[1]
        level = fit_in_time(fit, shape, estimator.options or Options(), estimator.budget, estimator.random_state)
        return found[0]._replace(left_out=level.left_out)

    def of_options(self, original: Tensor, options: Options) -> Found:
        """Fit the default model, of one target or several, or that of an ensemble, to rows that the options keep."""
        estimator = self.estimator
        rows = some_rows(len(self.x), options, estimator.random_state)
        x, y, weights = self.x[rows], self.y[rows], None if self.weights is None else self.weights.values[rows]
        others = {"random_state": estimator.random_state, "n_jobs": estimator.n_jobs, "options": options}
        others["blocks"] = some_of(self.blocks, rows)
        if y.ndim == 2:
            model: Any = default_targets_model(x, y, categories=estimator._categories, **others)
        elif is_ensemble(estimator.kernel):  # which takes the targets in their own units
            model = ensemble_model(x, y, estimator.kernel, original=original[rows], weights=weights, **others)
        else:
            model = default_model(x, y, categories=estimator._categories, weights=weights, **others)
        numbers = self.numbers
        if not isinstance(rows, slice):
            numbers = (np.arange(len(self.x)) if numbers is None else numbers)[rows]
        return Found(model, numbers, options=options)

    def _by_likelihood(self, points: Tensor) -> Found:
        with stage("building the kernel"):
            kernel, rows = self._kernel_and_rows(self.y, points)
            likelihood = new_likelihood(self.weights)
            model = PartitionGP(rows, self.y, likelihood, kernel).eval()
            kernel_parameter.check_dense_size(model.covar_module.base_kernel, self.x)
        with stage("fitting noise and scales"):
            found = fit_exact_gp(model, likelihood, max_iterations=self.estimator.max_iterations)
            _widen_for_few_rows(model)
        return Found(model, self.numbers, found.log_marginal_likelihood, found.at_bounds, found.num_iterations)

    def _kernel_and_rows(self, y: Tensor, points: Tensor) -> tuple[Kernel, Tensor]:
        estimator, kernel = self.estimator, self.estimator.kernel
        if is_ensemble(kernel):
            original = self.unit.undo(y)
            return kernel_parameter.kernel_of_ensemble(kernel, self.x, original, estimator.random_state), self.x
        if kernel_parameter.sees_raw_columns(kernel):
            return deepcopy(kernel), self.x
        copied = (lambda x, y: deepcopy(kernel)) if isinstance(kernel, Kernel) else kernel
        named = "forest" if kernel_parameter.name_of(kernel) == "auto" else copied
        options = {name: getattr(estimator, name) for name in ("num_partitions", "random_state", "n_jobs")}
        options["sample_weight"] = None if self.weights is None else self.weights.capped
        categories = estimator._categories
        return kernel_parameter.kernel_and_rows(named, self.x, y, points, categories=categories, **options)

    def _targets_by_likelihood(self, points: Tensor) -> Found:
        """Fit one kernel for all targets; parameters of its own are trained on their first principal component."""
        estimator = self.estimator
        grown_on = imputed(self.x, self.y, estimator._categories, estimator.random_state, estimator.n_jobs)
        with stage("building the kernel"):
            kernel, rows = self._kernel_and_rows(grown_on, points)
            kernel_parameter.check_dense_size(kernel, rows)
            centred = grown_on.double() - grown_on.double().mean(0)
            component = centred @ stable_eigh(centred.mT @ centred)[1][:, -1]
            component /= component.std().clamp_min(torch.finfo(component.dtype).tiny)
            model = PartitionGP(rows, component.to(rows), GaussianLikelihood(), kernel)
        with stage("fitting noise and scales"), settings.iterative():
            if any(parameter.requires_grad for parameter in kernel.parameters()):
                fit_exact_gp(model, model.likelihood, max_iterations=estimator.max_iterations)
            kernel, train_x = model.covar_module.base_kernel.requires_grad_(False).train(), model.train_inputs[0]
            # In training mode, with gradients enabled, kernels of ensembles detect training, and may warn.
            covariance = to_linear_operator(kernel(train_x, train_x)).evaluate_kernel()
            with torch.no_grad():
                found = fit_coregionalization(covariance, self.y)
            fitted = CoregionalizedGP(rows, self.y, kernel.eval(), found)
        return Found(fitted, self.numbers, found.log_likelihood)


def _widen_for_few_rows(model: PartitionGP) -> None:
    """Multiply outputscale and noise of fewer than ten rows, so that Gaussian intervals are as wide as Student's t."""
    if (number := len(model.train_targets)) < FEWEST_ROWS:
        ratio = student.ppf(_END, max(1, number - 1)) / norm.ppf(_END)
        factor = float((1 + 1 / number) * ratio**2)
        model.covar_module.outputscale = factor * model.covar_module.outputscale.detach()
        model.likelihood.noise = factor * model.likelihood.noise.detach()


def noises_at_bound(model: CoregionalizedGP, names: list[str]) -> dict[str, float]:
    """Return the noises of several targets that are at their bound, by name, and warn of them."""
    noises = {f"noise of {name}": noise for name, noise in zip(names, model.noise.tolist())}
    found = {name: noise for name, noise in noises.items() if noise <= _CLOSE_TO_BOUND * LEAST_NOISE}
    for name in found:
        told = f"{name} is at its bound: {NOISE_AT_BOUND}."
        warnings.warn(told, ConvergenceWarning, stacklevel=level_of_caller())
    return found


def fit_in_time(
    fit: Callable[[Options], None],
    shape: tuple[int, float],
    options: Options,
    budget: float | None,
    random_state: Any = None,
    clock: Callable[[], float] = monotonic,
) -> Level:
    """
    Fit the default model within a budget of seconds; return the options of the last fit, and what they leave out.

    A fit of more than 1.2 budgets gives a :class:`~sklearn.exceptions.ConvergenceWarning`. Each call of `fit` draws the
    same from `random_state`, so that the last one's options fit the same model again.

    :param shape: Numbers of training rows and of their columns (infinity for tables).
    :param options: Options of the largest model, which is fitted without a budget.
    """
    start = clock()
    state = random_state.get_state() if isinstance(random_state, np.random.RandomState) else None

    def attempt(options: Options) -> None:
        if state is not None:
            random_state.set_state(state)
        fit(options)

    if budget is None:
        attempt(options)
        return Level(options, ())
    level = fit_within(budget, list(levels(*shape, options)), attempt, clock)
    _say(budget, level, clock() - start, shape[0])
    return level


def _say(budget: float, level: Level, seconds: float, num_rows: int) -> None:
    left_out = f"left out {'; '.join(level.left_out)}" if level.left_out else "left out nothing"
    told = f"a budget of {budget:g} seconds, of which {seconds:.1f} were taken, {left_out}"
    logger.info("%s", told)
    tell(told)
    if seconds > _TOLERANCE * budget:
        told = f"expected to fit {num_rows:,} rows in {budget:g} seconds, took {seconds:.1f}"
        remedy = "give a larger budget, or fewer rows"
        warnings.warn(f"{told}: {remedy}", ConvergenceWarning, stacklevel=level_of_caller())
