"""Maxima of likelihoods that become more accurate step by step, taken once they no longer move."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, LogPrior, Maximum, maximize
from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralLikelihood, SpectralMeasure

_TOLERANCE = 1e-2  # relative change of the values at which they are settled
_LARGEST_BIAS = 5e-4  # of the log marginal likelihood, in nats per datum, at which they are settled


@dataclass(frozen=True)
class SettledMaxima:
    """
    The maxima of the likelihoods of several targets, with their certainty.

    :param measure: The last spectral measure used.
    :param maxima: One maximum for each target.
    :param is_settled: Whether the last step did not change them, and their likelihood is accurate; always true if
        exact.
    """

    measure: SpectralMeasure
    maxima: list[Maximum]
    is_settled: bool

    @property
    def standard_error(self) -> float:
        """The standard error of the sum over targets, which share the probe vectors, with the bound of its bias."""
        likelihood = SpectralLikelihood(self.measure)
        by_probes = sum(likelihood.standard_error(found.outputscale, found.noise) for found in self.maxima)
        return math.hypot(by_probes, self.bias)

    @property
    def bias(self) -> float:
        """A bound of the amount, in nats, by which the likelihood of all targets may be too small."""
        return _bias(self.measure, self.maxima)


def settled_maxima(
    measures: Iterable[SpectralMeasure], bounds: Sequence[Bounds], log_prior: LogPrior | None = None
) -> SettledMaxima:
    """
    Maximize the likelihood of each measure, until two in a row agree to 1 % and the quadrature has converged.

    :param measures: One exact measure, or several of increasing accuracy; the last one is taken if none settles.
    :param bounds: Bounds for each target.
    :param log_prior: Log density of a prior, a function of outputscale and noise. (Default: none.)

    Example:
        >>> import torch
        >>> from gpytorch_partition.inference.evidence.spectral_likelihood import dense_measure
        >>> exact = dense_measure(torch.diag(torch.tensor([4.0, 4.0, 0.0, 0.0])), torch.tensor([[9.0, -9, 1, -1]]).mT)
        >>> found = settled_maxima([exact], [Bounds((0.0, 1e6), (1e-4, 1e6), mean=0.0)])
        >>> round(found.maxima[0].outputscale), round(found.maxima[0].noise, 3), found.is_settled
        (20, 1.0, True)
    """
    before: list[Maximum] = []
    for measure in measures:
        maxima = [maximize(SpectralLikelihood(measure, t), each, log_prior) for t, each in enumerate(bounds)]
        is_settled = not measure.num_probes or (_agree(before, maxima) and _is_known(measure, maxima))
        if is_settled:
            break
        before = maxima
    return SettledMaxima(measure, maxima, is_settled)


def _agree(before: list[Maximum], now: list[Maximum]) -> bool:
    def close(a: float, b: float) -> bool:
        return abs(a - b) <= _TOLERANCE * abs(b)

    return bool(before) and all(
        close(a.outputscale, b.outputscale) and close(a.noise, b.noise) for a, b in zip(before, now)
    )


def _is_known(measure: SpectralMeasure, maxima: list[Maximum]) -> bool:
    return _bias(measure, maxima) <= _LARGEST_BIAS * measure.num_rows * len(maxima)


def _bias(measure: SpectralMeasure, maxima: list[Maximum]) -> float:
    return sum(
        SpectralLikelihood(measure, target).bias(found.outputscale, found.noise, found.mean)
        for target, found in enumerate(maxima)
    )
