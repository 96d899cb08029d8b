r"""
Outputscale, noise and constant mean of maximum marginal likelihood: a search in one dimension, noise / outputscale.

For a ratio :math:`\lambda = \sigma^2 / s` the best mean and outputscale are known in closed form (the latter is
:math:`r^\top (K + \lambda)^{-1} r / N`, clipped to the bounds). The search is over the ratio alone: first on a grid,
since likelihoods can have two maxima, then by Brent's method between grid points. It takes about 150 evaluations of the
likelihood, and 30 times as many of a prior. Likelihoods that become more accurate step by step are maximized until
their maxima no longer move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralLikelihood, SpectralMeasure

Interval = tuple[float, float]
LogPrior = Callable[[float, float], float]  # the log density of outputscale and noise

_SMALLEST_RATIO = 1e-12  # noise over outputscale, the least that is searched
_LARGEST_RATIO = 1e8  # the most that is searched
_PER_DECADE = 8  # ratios of the grid in each decade
_LEAST_OUTPUTSCALE = 1e-300  # in place of 0, the best one for constant targets, where the likelihood is unbounded
_TOLERANCE = 1e-2  # relative change of the values at which they are settled
_LARGEST_BIAS = 5e-4  # of the log marginal likelihood, in nats per datum, at which they are settled


@dataclass(frozen=True)
class Bounds:
    """Hold the bounds of outputscale and noise (equal bounds fix a value), and the mean if it is fixed, else None."""

    outputscale: Interval
    noise: Interval
    mean: float | None = None

    @property
    def ratios(self) -> Interval:
        """Return the smallest and the largest ratio of noise to outputscale that is searched."""
        low = self.noise[0] / self.outputscale[1] if np.isfinite(self.outputscale[1]) else 0.0
        high = self.noise[1] / self.outputscale[0] if self.outputscale[0] > 0 else np.inf
        if low >= high:
            return low, low
        return min(max(low, _SMALLEST_RATIO), high), max(min(high, _LARGEST_RATIO), low)

    def outputscales(self, ratio: float) -> Interval:
        """Return the bounds of the outputscale at a ratio of noise to outputscale."""
        low = max(self.outputscale[0], self.noise[0] / ratio)
        return low, max(low, min(self.outputscale[1], self.noise[1] / ratio))


@dataclass(frozen=True)
class Maximum:
    """Hold the outputscale, noise and mean of largest likelihood (times a prior), and their log likelihood alone."""

    outputscale: float
    noise: float
    mean: float
    log_likelihood: float


def maximize(likelihood: SpectralLikelihood, bounds: Bounds, log_prior: LogPrior | None = None) -> Maximum:
    """Return the largest marginal likelihood within the bounds, or the largest posterior density with a prior."""
    search = _Search(likelihood, bounds, log_prior)
    low, high = np.log(bounds.ratios)
    if low >= high:
        return search.at(float(np.exp(low)))
    grid = np.linspace(low, high, max(9, int((high - low) / np.log(10) * _PER_DECADE)))
    best = int(np.argmin([search(x) for x in grid]))
    around = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    found = minimize_scalar(search, bounds=around, method="bounded", options={"xatol": 1e-6})
    return search.at(float(np.exp(grid[best] if search(grid[best]) <= found.fun else found.x)))


@dataclass(frozen=True)
class _Search:
    """Minus the profile log likelihood, as a function of the log of the ratio."""

    likelihood: SpectralLikelihood
    bounds: Bounds
    log_prior: LogPrior | None

    def __call__(self, log_ratio: float) -> float:
        found = self.at(float(np.exp(log_ratio)))
        prior = self.log_prior(found.outputscale, found.noise) if self.log_prior else 0.0
        return -found.log_likelihood - prior

    def at(self, ratio: float) -> Maximum:
        mean = self.likelihood.best_mean(ratio) if self.bounds.mean is None else self.bounds.mean
        form = self.likelihood.form(ratio, mean)
        log_determinant = self.likelihood.log_determinant(1.0, ratio)
        num_rows, limits = self.likelihood.num_rows, self.bounds.outputscales(ratio)

        def value(scale: float) -> float:
            return -0.5 * (form / scale + num_rows * float(np.log(2 * np.pi * scale)) + log_determinant)

        scale = float(np.clip(max(form / num_rows, _LEAST_OUTPUTSCALE), *limits))
        if self.log_prior is not None:
            scale = _with_prior(value, self.log_prior, ratio, scale, limits)
        return Maximum(scale, ratio * scale, mean, value(scale))


def _with_prior(
    value: Callable[[float], float], log_prior: LogPrior, ratio: float, scale: float, limits: Interval
) -> float:
    """Return the outputscale of the largest posterior density, searched around that of the likelihood."""
    low, high = (float(np.clip(edge, *limits)) for edge in (scale * 1e-3, scale * 1e3))
    if low >= high:
        return low

    def objective(log_scale: float) -> float:
        candidate = float(np.exp(log_scale))
        return -value(candidate) - log_prior(candidate, ratio * candidate)

    return float(np.exp(minimize_scalar(objective, bounds=(np.log(low), np.log(high)), method="bounded").x))


@dataclass(frozen=True)
class SettledMaxima:
    """Hold the maxima of the likelihoods of several targets, with their certainty."""

    measure: SpectralMeasure  #: the last one used
    maxima: list[Maximum]  #: one for each target
    is_settled: bool  #: whether the last step did not change them, and their likelihood is accurate, or exact

    @property
    def standard_error(self) -> float:
        """Return the standard error, in nats, of the sum over targets (which share probe vectors), bias included."""
        likelihood = SpectralLikelihood(self.measure)
        by_probes = sum(likelihood.standard_error(found.outputscale, found.noise) for found in self.maxima)
        return math.hypot(by_probes, self.bias)

    @property
    def bias(self) -> float:
        """Return by how many nats, at most, the log likelihood of all targets may be too small."""
        return _bias(self.measure, self.maxima)


def settled_maxima(
    measures: Iterable[SpectralMeasure], bounds: Sequence[Bounds], log_prior: LogPrior | None = None
) -> SettledMaxima:
    """Return the maximum for each target, by better and better measures until one is exact or two agree to 1 %."""
    before: list[Maximum] = []
    for measure in measures:
        maxima = [maximize(SpectralLikelihood(measure, t), each, log_prior) for t, each in enumerate(bounds)]
        is_known = _bias(measure, maxima) <= _LARGEST_BIAS * measure.num_rows * len(maxima)
        is_settled = not measure.num_probes or (_agree(before, maxima) and is_known)
        if is_settled:
            break
        before = maxima
    return SettledMaxima(measure, maxima, is_settled)


def _agree(before: list[Maximum], now: list[Maximum]) -> bool:
    pairs = [pair for a, b in zip(before, now) for pair in ((a.outputscale, b.outputscale), (a.noise, b.noise))]
    return bool(pairs) and all(abs(a - b) <= _TOLERANCE * abs(b) for a, b in pairs)


def _bias(measure: SpectralMeasure, maxima: list[Maximum]) -> float:
    return sum(
        SpectralLikelihood(measure, target).bias(found.outputscale, found.noise, found.mean)
        for target, found in enumerate(maxima)
    )
