"""The first step, which chooses weights and noise by the density of held-out rows; later ones may replace the noise."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from gpytorch_partition.inference.evidence.lengthscales import learn_lengthscales
from gpytorch_partition.inputs.row_weights import noise_factors
from gpytorch_partition.likelihoods import grow_residual_forest
from gpytorch_partition.likelihoods.scale_mixture import expected_precisions, gaussian_log_densities, log_densities
from gpytorch_partition.linalg.parallel import idle_threads, threads_for
from gpytorch_partition.presets.data import PartInputs, TrainingData, folds, random_rows, some_of
from gpytorch_partition.presets.options import Options, Setup
from gpytorch_partition.presets.parts import ENSEMBLE, ROUGH, new_parts
from gpytorch_partition.presets.rough_field import Candidate, rough_field
from gpytorch_partition.progress import stage
from gpytorch_partition.training.predictive_density import (
    EXPONENTS,
    FIXED,
    Fold,
    HeavyTails,
    PredictiveFit,
    dense_covariances,
    fit_factors,
    held_out_predictions,
    maximize_predictive_density,
)


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Hold rows predicted by models that had not seen them, in units of standardized targets."""

    rows: Tensor  # (n,) numbers
    errors: Tensor  # (n,) targets less their predictions
    variances: Tensor  # (n,) of the function
    noise: Tensor  # (n,) variances, divided by weights of rows

    def log_densities(self) -> Tensor:
        """Return the Gaussian log densities of the errors (`n`), in nats."""
        return gaussian_log_densities(self.errors, self.variances + self.noise)

    def log_density(self) -> float:
        """Return the mean of these log densities."""
        return float(self.log_densities().mean())

    def scaled(self, factor: float) -> HeldOutRows:
        """Return the rows with all variances multiplied by a factor."""
        return replace(self, variances=factor * self.variances, noise=factor * self.noise)

    def precisions(self, tails: HeavyTails) -> Tensor:
        """Return the expected precision of the noise of each row (`n`), near 0 for outliers."""
        return expected_precisions(self.errors, self.variances, tails.factor * self.noise, tails.df)

    def mean_error(self) -> tuple[float, float]:
        """Return the mean of the errors, and its standard error."""
        return float(self.errors.mean()), float(self.errors.std() / len(self.errors) ** 0.5)


_LOSS = 0.1  # squared errors that varying noise may lose, as a share; and 2 standard errors
_MOST_LOG_FACTOR = 10.0  # log ratio of the noise of new observations to that of training rows
_NEGLIGIBLE = 1.0  # nats that held-out rows may lose by parts left out, beside 2 standard errors
_NO_ROWS = HeldOutRows(*[torch.empty(0, dtype=torch.int64)] * 4)


@dataclass(frozen=True, eq=False)
class Choice:
    """Hold the values chosen from the data, in units of standardized columns and targets."""

    outputscales: dict[str, float]  # weights of the parts that the model has, by name
    lengthscales: Tensor  # of the smooth part, one for each of its columns
    noise: float  # the level
    exponent: float  # of the variation of the noise with x; 0 where it is constant
    noise_forest: RandomForestRegressor | None  # predicts the log squared residuals; None where noise is constant
    log_density: float  # expected mean log predictive density of new rows, in nats
    rows: Tensor  # numbers of the training rows that chose
    # Share of the smooth part's variance that inducing points may leave unspanned before it is added to the noise.
    threshold: float | None = None
    held_out: HeldOutRows = _NO_ROWS  # predictions that judged the weights, without patches
    factor: float = 1.0  # the variance of the noise of new observations over that of training rows
    tails: HeavyTails | None = None  # Student-t noise of new observations; None where noise is Gaussian
    constant: Choice | None = None  # the choice with constant noise, where noise varies
    smooths_evenly: bool = False  # whether noise varies for new observations only
    long_tail: str | None = None  # "above" or "below" the predictions, where nearly all outliers are there
    offset: float = 0.0  # the mean error of predictions where the noise is at its level, added to them
    mean_error: tuple[float, ...] = ()  # of held-out rows with this offset, and its standard error; empty if unknown
    deviations: Tensor = _NO_ROWS.errors  # of the noise at the held-out rows, over that of its level
    boosted_share: float = 0.0  # of boosted trees in predictions
    boosting_rounds: int = 0
    boosts_large_trees: bool = False  # of more leaves, which see categories as codes

    @property
    def new_noise(self) -> float:
        """Return the level of the noise of new observations."""
        return self.noise * self.factor

    @property
    def df(self) -> float | None:
        """Return the degrees of freedom of Student-t noise; None where noise is Gaussian."""
        return None if self.tails is None else self.tails.df

    @property
    def noise_scales(self) -> Tensor:
        """Return the squared scales of the noise at held-out rows (`n`), its variances where noise is Gaussian."""
        noise = self.held_out.noise
        return noise if self.tails is None else noise * self.tails.factor / self.factor

    @property
    def log_density_error(self) -> float:
        """Return the standard error of the log density, from that of its held-out rows."""
        return float(self.log_densities().std() / len(self.held_out.rows) ** 0.5)

    def log_densities(self, added: Tensor | float = 0.0, some: Tensor | slice = slice(None)) -> Tensor:
        """Return log densities of some held-out rows (`n`), with variances (`n`) added to those of the function."""
        rows = self.held_out
        return log_densities(rows.errors[some], rows.variances[some] + added, self.noise_scales[some], self.df)

    @property
    def is_rough(self) -> bool:
        """Return whether this is a rough field, whose weights random rows and patches of neighbors chose."""
        return not self.outputscales.keys().isdisjoint(ROUGH)

    def scaled(self, factor: float) -> Choice:
        """Return the choice with all variances multiplied by a factor; means do not change."""
        outputscales = {name: factor * weight for name, weight in self.outputscales.items()}
        return replace(self, outputscales=outputscales, noise=factor * self.noise)


def choose(data: TrainingData, setup: Setup) -> Choice:
    """Choose weights and noise by cross-validation, on all rows or on 700 to 1,500 random ones."""
    # Rounded, so that units of the data, which change the last digits only, do not change the choice.
    x, y = data.x.float().double(), data.y.float().double()
    new_x = data.columns.apply(data.new_rows).float().double()
    inputs = replace(PartInputs.of(data, setup), x=x, y=y, new_x=new_x)
    with threads_for(setup.options.num_choosing(len(y))):
        trial = _Trial(_best_candidate(inputs), data, y, setup.options)
        with stage("noise", level=2):
            forest, log_ratios = _noise_forest(trial, setup)
            return _varying(trial, forest, log_ratios)


def _varying(trial: _Trial, forest: RandomForestRegressor, log_ratios: Tensor) -> Choice:
    """Return the choice with noise that varies with x, or with constant noise where that does not gain enough."""
    constant, y = trial.candidate.fit, trial.y
    varying = maximize_predictive_density(
        trial.candidate.folds, y, log_ratios=log_ratios, noise_factors=trial.factors, start=constant
    )
    usual = trial.choice(constant, torch.zeros_like(log_ratios), None)
    if not (varying.log_density - constant.log_density) * trial.num_held_out > trial.options.least_noise_gain:
        return usual
    found = trial.choice(varying, log_ratios, forest)
    if is_worse(found.held_out.errors.square(), usual.held_out.errors.square()):
        found = _smoothing_evenly(usual, log_ratios, forest, trial)
    return replace(found, constant=usual)


@dataclass(frozen=True, eq=False)
class _Trial:
    """Parts and folds, whose held-out rows judge weights and noise."""

    candidate: Candidate
    data: TrainingData
    all_y: Tensor  # rounded targets of all rows
    options: Options

    @property
    def num_values(self) -> int:
        return len(self.candidate.names) + 1

    @property
    def num_held_out(self) -> int:
        return sum(len(part.held_out) for part in self.candidate.folds)

    @cached_property
    def y(self) -> Tensor:
        return self.all_y[self.candidate.rows]

    @cached_property
    def factors(self) -> Tensor:
        return noise_factors(self.data.weights, len(self.all_y))[self.candidate.rows]

    @cached_property
    def predictions(self) -> tuple[Tensor, Tensor]:
        """Means and variances with the constant noise."""
        return held_out_predictions(self.candidate.folds, self.y, self.candidate.fit, self.factors)

    @cached_property
    def judged(self) -> Tensor:
        """Places of the judging rows, without patches: a row out of a tree's bag must not be in it again."""
        return (~self.predictions[0][: self.options.num_choosing(len(self.all_y))].isnan()).nonzero()[:, 0]

    @property
    def seen(self) -> Tensor:
        """Numbers of the judging rows."""
        return self.candidate.rows[self.judged]

    def _held_out(self, fit: PredictiveFit, ratios: Tensor) -> HeldOutRows:
        means, variances = held_out_predictions(self.candidate.folds, self.y, fit, self.factors, ratios)
        columns = self.y - means, variances, fit.noise_at(ratios) * self.factors
        return HeldOutRows(self.seen, *(values[self.judged] for values in columns))

    def choice(self, fit: PredictiveFit, ratios: Tensor, forest: RandomForestRegressor | None) -> Choice:
        held_out, less = self._held_out(fit, ratios), _without_negligible(fit, self.options)
        by_less = self._held_out(less, ratios)
        if not _is_clear(held_out.log_densities() - by_less.log_densities()):
            fit, held_out = less, by_less
        density = held_out.log_density() - self.num_values / len(self.seen)
        factor = _allowance(self.num_held_out, self.num_values, len(self.all_y), self.options)
        names, rows = self.candidate.names, self.candidate.rows
        weights = {name: factor * float(weight) for name, weight in zip(names, fit.outputscales) if weight}
        values = weights, self.candidate.lengthscales, factor * fit.noise, fit.exponent
        return Choice(*values, forest, density, rows, held_out=held_out)


def _noise_forest(trial: _Trial, setup: Setup) -> tuple[RandomForestRegressor, Tensor]:
    (means, variances), data, seen = trial.predictions, trial.data, trial.seen
    noise = trial.candidate.fit.noise * trial.factors
    residuals = ((trial.y - means) / (variances + noise).sqrt())[trial.judged]
    forest = residual_forest(seen, residuals, data, setup, setup.options.num_noise_trees)
    return forest, _out_of_sample(forest, data, seen, trial.candidate.rows)


def is_worse(squares: Tensor, others: Tensor) -> bool:
    """Return whether squared errors (`n`) exceed `others` of the same rows by a share and two standard errors."""
    excess = squares - others
    return bool(excess.mean() > max(_LOSS * others.mean(), 2 * excess.std() / len(excess) ** 0.5))


def _smoothing_evenly(choice: Choice, ratios: Tensor, forest: RandomForestRegressor, trial: _Trial) -> Choice:
    """Let only the noise of new observations vary, if held-out rows gain enough by it."""
    rows, log_ratios = choice.held_out, ratios[trial.judged]
    bounds = [FIXED, (-_MOST_LOG_FACTOR, _MOST_LOG_FACTOR), EXPONENTS]
    (_, factor, exponent), loss = fit_factors(rows.errors, rows.variances, rows.noise, bounds, log_ratios=log_ratios)
    density = -(loss + trial.num_values) / len(rows.rows)
    if not (density - choice.log_density) * len(rows.rows) > trial.options.least_noise_gain:
        return choice
    held_out = replace(rows, noise=factor * rows.noise * (exponent * log_ratios).exp())
    varying = {"exponent": exponent, "noise_forest": forest, "factor": factor, "held_out": held_out}
    return replace(choice, **varying, log_density=density, smooths_evenly=True)


def _allowance(num_choosing: int, num_values: int, num_rows: int, options: Options) -> float:
    """
    Return the factor :math:`n / (n - p)` of all variances, for p values chosen by n residuals; means do not change.

    Weights and noise fit the residuals that chose them better than new ones. On eight sets with 50 rows each, squared
    errors were 1.2 to 2.1 times the variances without it.
    """
    if options.calibrates(num_rows):  # which sets the scale by more rows
        return 1.0
    return num_choosing / max(1, num_choosing - num_values)


def _best_candidate(inputs: PartInputs) -> Candidate:
    """Return the usual parts or the ensemble, or a rough field where that is better; its trial draws from a copy."""
    x, y, setup, options = inputs.x, inputs.y, inputs.setup, inputs.setup.options
    rows = torch.from_numpy(random_rows(len(y), options.num_choosing(len(y)), setup.random, inputs.blocks))
    some = inputs.of_rows(rows)
    names, parts, of_folds = _folds(some)
    with stage("lengthscales and weights", level=2), idle_threads() as submit:
        lengthscales = submit(_lengthscales, some.seen_in_folds(), some)
        fit = maximize_predictive_density(parts, y[rows], noise_factors=noise_factors(some.weights, len(rows)))
        found = Candidate(names, parts, rows, fit, lengthscales.result())
    may_be_rough = not inputs.has_view and inputs.blocks is None and setup.refit is None
    if may_be_rough and options.calibrates(len(y)) and x.shape[1] <= options.most_rough_columns:
        with stage("rough parts", level=2):
            return rough_field(found, of_folds, x, y, setup.again(), inputs.weights)
    return found


def _out_of_sample(forest: RandomForestRegressor, data: TrainingData, seen: Tensor, rows: Tensor) -> Tensor:
    """Return each row's mean prediction by the trees that have not seen it (out of bag for the rows seen)."""
    predictions = torch.zeros(len(data.rows), dtype=torch.float64)
    if data.blocks is None:
        predictions[rows] = torch.from_numpy(forest.predict(data.rows[rows].cpu().numpy()))
    predictions[seen] = torch.from_numpy(forest.oob_prediction_)
    return predictions[rows]


def residual_forest(
    seen: Tensor, residuals: Tensor, data: TrainingData, setup: Setup, num_trees: int
) -> RandomForestRegressor:
    """
    Return a forest of log squared residuals of some rows (`n`); its `oob_prediction_` has seen neither row nor group.

    Residuals of a group are alike: out-of-bag noise would vary with any column that identifies groups. For times the
    result is 0, since a few blocks of time do not show how noise varies: on ten random walks, log densities of the next
    block were -1.96 on average with constant noise, and -2.13 with trees of earlier blocks.
    """
    growing = {"num_trees": num_trees, **setup.growing}
    forest = grow_residual_forest(data.new_rows[seen], residuals, **growing)
    rows, blocks = data.rows[seen], some_of(data.blocks, seen)
    if blocks is None:
        return forest
    forest.oob_prediction_ = np.zeros(len(residuals))
    if not blocks.are_times and blocks.are_enough:
        for kept, held_out in folds(len(residuals), setup.options.num_folds, setup.random, blocks):
            grown = grow_residual_forest(rows[kept], residuals[kept], **growing)
            forest.oob_prediction_[held_out] = grown.predict(rows[held_out].cpu().numpy())
    return forest


def _lengthscales(seen: Tensor, inputs: PartInputs) -> Tensor:
    if inputs.setup.refit is not None:  # a user's ensemble is the only part
        return torch.ones(inputs.x.shape[1], dtype=torch.float64)
    factors = None if inputs.weights is None else noise_factors(inputs.weights, len(inputs.y))
    return learn_lengthscales(seen, inputs.y, factors, has_prior=True)


def _folds(inputs: PartInputs) -> tuple[list[str], list[Fold], list[Tensor]]:
    """Names of the parts, and for each fold their covariances and the lengthscales, built without its held-out rows."""
    setup, num_rows, found, all_lengthscales = inputs.setup, len(inputs.x), list[Future[Fold]](), []
    wanted, omitted = ((ENSEMBLE,), ()) if setup.refit is not None else (None, setup.options.omitted_parts)
    splits = folds(num_rows, setup.options.folds_of(num_rows), setup.random, inputs.blocks)
    with idle_threads() as submit:
        for kept, held_out in splits:
            with stage(f"fold {len(found) + 1} of {len(splits)}", level=2):
                some = inputs.of_rows(kept[: setup.options.num_lengthscale_rows])
                lengthscales = _lengthscales(some.seen_in_folds(), some)
                parts = new_parts(inputs.of_rows(kept, lengthscales=lengthscales), wanted)
                parts = {name: part for name, part in parts.items() if name.removeprefix("far_") not in omitted}
                found.append(submit(_fold, parts.values(), inputs, kept, held_out))
                all_lengthscales.append(lengthscales)
    return list(parts), [each.result() for each in found], all_lengthscales


def _fold(parts: Iterable[Kernel], inputs: PartInputs, kept: np.ndarray, held_out: np.ndarray) -> Fold:
    covariances = dense_covariances(parts, inputs.x_without(held_out))
    return Fold.of(covariances, torch.from_numpy(kept), torch.from_numpy(held_out))


def _is_clear(losses: Tensor) -> bool:
    """Return whether the nats (`n`) that rows lose by parts left out are no chance: small parts may matter."""
    return bool(losses.sum() > max(_NEGLIGIBLE, 2 * losses.std() * len(losses) ** 0.5))


def _without_negligible(fit: PredictiveFit, options: Options) -> PredictiveFit:
    """Drop weights that are negligible beside the noise (not beside each other), unless all are."""
    counts = fit.outputscales >= max(options.least_weight, options.least_noise_share * fit.noise)
    return replace(fit, outputscales=fit.outputscales * counts) if bool(counts.any()) else fit
