r"""
The covariance of targets and the noise of each: the intrinsic coregionalization model by its marginal likelihood.

Target t of row n is :math:`y_{nt} = \mu_t + f_t(x_n) + e_{nt}` with covariances :math:`k(x, x')\, B_{tt'}` of the
functions and S of the errors of a row, of variances :math:`d_t` (Bonilla, Chai & Williams 2008, "Multi-task Gaussian
process prediction"). With every target known, the eigenvectors of K and the generalized ones of B and the noise turn
all targets into independent numbers (Rakitsch, Lippert, Borgwardt & Stegle 2013): one spectrum of K gives the
likelihood and its gradient for every B and S in microseconds. Where targets are missing, few entries are decomposed
densely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, Maximum, maximize
from gpytorch_partition.inference.evidence.spectral_likelihood import (
    SpectralLikelihood,
    SpectralMeasure,
    default_num_probes,
    dense_measure,
    krylov_measures,
)
from gpytorch_partition.linalg.factors import stable_cholesky, stable_eigh
from gpytorch_partition.linalg.parallel import minimize_lbfgsb

_LOG_SCALE = (-9.0, 7.0)  # bounds of the logarithms of B_tt, in variances of the targets
LEAST_NOISE = 1e-4  # variance of the targets
_LOG_NOISE = (math.log(LEAST_NOISE), 1.5)  # bounds of the logarithms of the noise
_LOADING = (-20.0, 20.0)  # bounds of entries of a Cholesky factor of the correlations, before its rows have length 1
# Times log |C|, an LKJ prior of shape 2 (Lewandowski, Kurowicka & Joe 2009): a dozen rows would choose correlations
# of 1 without it.
_INDEPENDENCE = 1.0
_LEAST_GAIN, _LEAST_GAIN_OF_PAIR = 3.0, 2.0  # nats from which errors of a row are correlated
_USUAL_NOISE = 0.2  # variance of the targets, to start from
_MOST_ENTRIES = 900  # known entries of Y, up to which their joint covariance is decomposed, some dozen times
_MOST_ROWS_ALONE = 4_000  # rows of the spectrum of a target alone, where entries are missing
_NUM_BLOCKS = 3  # blocks of that many entries of random rows, where there are more
_TOLERANCE = 1e-3  # relative change of the log likelihood per entry at which more Lanczos steps are not needed
_DECIMALS = 9  # kept decimals of logarithms and loadings
_STOPPING_RULE = {"maxiter": 100, "ftol": 1e-6}


@dataclass(frozen=True, eq=False)
class Coregionalization:
    """Hold the covariance, noise and means of T targets, in units of the targets."""

    covariance: Tensor  # T x T, B, positive definite
    noise: Tensor  # (T,) variances d of the noise
    mean: Tensor  # (T,)
    log_likelihood: float  # in nats; of held-out entries where these chose
    noise_correlations: Tensor | None = None  # T x T, of the errors of a row; None if they are independent


class Rotation(NamedTuple):
    r"""Hold a basis of independent targets, :math:`W^\top S W = I` and :math:`W^\top B W = \mathrm{diag}(\lambda)`."""

    vectors: Tensor  # W, T x T; its columns are the independent targets
    signal: Tensor  # (T,) lambda, not negative
    mixing: Tensor  # W^-T, which maps independent targets to targets

    @classmethod
    def of(cls, covariance: Tensor, noise: Tensor) -> Rotation:
        """Return the basis of B and the noise's covariance S (`T x T` each)."""
        root = stable_cholesky(noise)
        whitening = torch.linalg.inv(root)
        values, vectors = stable_eigh(whitening @ covariance @ whitening.mT)
        return cls(whitening.mT @ vectors, values.clamp_min(0), root @ vectors)


class Gradient(NamedTuple):
    """Hold a log likelihood (nats), its derivatives with respect to B and S (`T x T`, symmetric), and the means."""

    value: float
    by_covariance: Tensor
    by_noise: Tensor
    mean: Tensor


# A log likelihood for every B and every covariance S of the noise.
Evidence: TypeAlias = Callable[[Tensor, Tensor], Gradient]


class SpectralEvidence:
    """
    The log likelihood of complete targets, from the spectrum of K, in :math:`O(k T^2)` for k nodes.

    With the number of a target, the likelihood is that of this target alone. Means are the most likely ones, or 0 if
    targets are centred.
    """

    def __init__(self, measure: SpectralMeasure, *, target: int | None = None, centred: bool = False) -> None:
        self.nodes = torch.from_numpy(measure.nodes).unsqueeze(-1)
        self.targets, self.ones = torch.from_numpy(measure.coefficients).split([measure.num_targets, 1], 1)
        self.trace_nodes = torch.from_numpy(measure.trace_nodes).reshape(-1, 1)
        self.trace_weights = torch.from_numpy(measure.trace_weights).reshape(-1) / len(measure.trace_nodes)
        self.num_rows, self.target, self.centred = measure.num_rows, target, centred

    def __call__(self, covariance: Tensor, noise: Tensor) -> Gradient:
        if self.target is None:
            return self._of_all(covariance, noise)
        own = slice(self.target, self.target + 1)
        found = self._of_all(covariance[own, own], noise[own, own])
        by_covariance, by_noise, mean = torch.zeros(3, *noise.shape, dtype=noise.dtype)
        by_covariance[own, own], by_noise[own, own], mean[0, own] = found.by_covariance, found.by_noise, found.mean
        return Gradient(found.value, by_covariance, by_noise, mean[0])

    def _of_all(self, covariance: Tensor, noise: Tensor) -> Gradient:
        rotation = Rotation.of(covariance, noise)
        shifted = self.nodes * rotation.signal + 1
        mean = self._mean(rotation, shifted)
        residuals = (self.targets - self.ones * mean) @ rotation.vectors
        weights = residuals / shifted
        own = weights @ rotation.vectors.mT
        traces = self.trace_nodes * rotation.signal + 1
        log_determinant = self.trace_weights @ traces.log().sum(-1) + self.num_rows * torch.logdet(noise)
        of_signal = self.trace_weights @ (self.trace_nodes / traces)
        of_noise = self.trace_weights @ (1 / traces)
        value = -0.5 * (
            (residuals * weights).sum() + log_determinant + self.num_rows * len(noise) * math.log(2 * math.pi)
        )
        by_covariance = own.mT @ (self.nodes * own) - (rotation.vectors * of_signal) @ rotation.vectors.mT
        by_noise = own.mT @ own - (rotation.vectors * of_noise) @ rotation.vectors.mT
        return Gradient(float(value), 0.5 * by_covariance, 0.5 * by_noise, mean)

    def _mean(self, rotation: Rotation, shifted: Tensor) -> Tensor:
        if self.centred:
            return torch.zeros_like(rotation.signal)
        weights = self.ones / shifted
        rotated = (weights * (self.targets @ rotation.vectors)).sum(0) / (weights * self.ones).sum(0)
        return rotation.mixing @ rotated


class DenseEvidence:
    """
    The log likelihood of the known entries of Y (NaN is missing), by a Cholesky factor, in :math:`O(n^3)`.

    Means are as in :class:`SpectralEvidence`.
    """

    def __init__(self, covariance: Tensor, targets: Tensor, *, centred: bool = False) -> None:
        self.rows, self.tasks = (~targets.isnan()).nonzero(as_tuple=True)
        self.covariance, self.values = covariance.double(), targets.double()[self.rows, self.tasks]
        self.num_targets, self.centred = targets.shape[1], centred

    def __call__(self, covariance: Tensor, noise: Tensor) -> Gradient:
        own = self.covariance[self.rows[:, None], self.rows]
        total = own * covariance[self.tasks[:, None], self.tasks]
        first, second = self._same_row
        total[first, second] += noise[self.tasks[first], self.tasks[second]]
        root = stable_cholesky(total)
        mean = self._mean(root)
        residuals = self.values - mean[self.tasks]
        weights = torch.cholesky_solve(residuals.unsqueeze(-1), root).squeeze(-1)
        constant = len(self.rows) * math.log(2 * math.pi)
        value = -0.5 * (residuals @ weights + 2 * root.diagonal().log().sum() + constant)
        sensitivity = torch.outer(weights, weights).sub_(torch.cholesky_inverse(root))
        by_noise = self._sums_of_pairs(sensitivity[first, second])
        by_covariance = self._sums(self._sums(own.mul_(sensitivity)).mT)
        return Gradient(float(value), 0.5 * by_covariance, 0.5 * by_noise, mean)

    def _mean(self, root: Tensor) -> Tensor:
        if self.centred:
            return root.new_zeros(self.num_targets)
        one_hot = torch.nn.functional.one_hot(self.tasks, self.num_targets).double()
        solved = torch.cholesky_solve(torch.cat([one_hot, self.values.unsqueeze(-1)], 1), root)
        sums = self._sums(solved)
        return torch.linalg.lstsq(sums[:, :-1], sums[:, -1:]).solution.squeeze(-1)

    @cached_property
    def _same_row(self) -> tuple[Tensor, Tensor]:
        first, second = (self.rows.unsqueeze(-1) == self.rows).nonzero(as_tuple=True)
        return first, second

    def _sums(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.num_targets, *values.shape[1:]).index_add_(0, self.tasks, values)

    def _sums_of_pairs(self, values: Tensor) -> Tensor:
        tasks = tuple(self.tasks[entries] for entries in self._same_row)
        return values.new_zeros(self.num_targets, self.num_targets).index_put_(tasks, values, accumulate=True)


def fit_coregionalization(covariance: LinearOperator, targets: Tensor) -> Coregionalization:
    """
    Return B, noise and means of maximum marginal likelihood, with a weak prior for small correlations.

    - Y complete: exact up to `max_cholesky_size` rows, by one eigendecomposition; above, by one Lanczos run for all
      targets together, as in :func:`~gpytorch_partition.fit_exact_gp`.
    - Y with missing entries, up to 900 of them known: exact, by some dozen Cholesky factors.
    - Y with more known entries: a composite likelihood (Lindsay 1988). It sums the likelihood of each target alone,
      from a spectrum of up to 4,000 rows where it is known, and that of three blocks of 900 entries of random rows.
      Means are those of each target alone.

    :param covariance: K (`N x N`), of unit scale.
    :param targets: Y (`N x T`), standardized; NaN is a missing entry.
    """
    num_entries, limit = int((~targets.isnan()).sum()), linear_settings.max_cholesky_size.value()
    if num_entries == targets.numel():
        return _of_complete(covariance, targets.double())
    if num_entries <= _MOST_ENTRIES and len(targets) <= limit:
        dense = covariance.to(dtype=torch.float64).to_dense()
        return maximize_evidence([(1.0, DenseEvidence(dense, targets))], targets.shape[1])
    return _of_blocks(covariance, targets.double())


def _of_complete(covariance: LinearOperator, targets: Tensor) -> Coregionalization:
    found = None
    for measure in _measures(covariance, targets):
        before, found = found, maximize_evidence([(1.0, SpectralEvidence(measure))], targets.shape[1], start=found)
        if before is not None and abs(found.log_likelihood - before.log_likelihood) < _TOLERANCE * targets.numel():
            break
    assert found is not None
    return found


def _measures(covariance: LinearOperator, targets: Tensor) -> Iterator[SpectralMeasure]:
    num_rows = len(targets)
    if num_rows <= linear_settings.max_cholesky_size.value():
        return iter([dense_measure(covariance.to(dtype=torch.float64).to_dense(), targets)])
    return krylov_measures(covariance, targets, default_num_probes(num_rows), settings.probe_seed.value())


def _of_blocks(covariance: LinearOperator, targets: Tensor) -> Coregionalization:
    alone = [_of_target(covariance, target) for target in targets.mT]
    measures, maxima = zip(*alone)
    mean = torch.tensor([found.mean for found in maxima], dtype=torch.float64)
    scale, noise = (
        torch.tensor([getattr(found, name) for found in maxima]).double() for name in ("outputscale", "noise")
    )
    blocks = [(1.0, _block(covariance, targets - mean, rows)) for rows in _random_blocks(targets)]
    each = [(1.0, SpectralEvidence(measure, target=number)) for number, measure in enumerate(measures)]
    start = Coregionalization(scale.diag(), noise, mean, 0.0)
    return replace(maximize_evidence([*each, *blocks], len(mean), start=start), mean=mean)


def _of_target(covariance: LinearOperator, target: Tensor) -> tuple[SpectralMeasure, Maximum]:
    """Return the spectrum of one target on rows where it is known, and its most likely values."""
    rows = (~target.isnan()).nonzero()[:, 0]
    if len(rows) > _MOST_ROWS_ALONE:
        rows = rows[torch.from_numpy(_permutation(len(rows))[:_MOST_ROWS_ALONE])].sort().values
    scales, noises = ((math.exp(low), math.exp(high)) for low, high in (_LOG_SCALE, _LOG_NOISE))
    bounds, before = Bounds(scales, noises), math.inf
    for measure in _measures(covariance[rows, :][:, rows], target[rows].unsqueeze(-1)):
        found = maximize(SpectralLikelihood(measure), bounds)
        if abs(found.log_likelihood - before) < _TOLERANCE * len(rows):
            break
        before = found.log_likelihood
    return measure, found


def _random_blocks(targets: Tensor) -> list[Tensor]:
    """Return row numbers of up to three disjoint blocks with about 900 known entries each, by the probe seed."""
    order = torch.from_numpy(_permutation(len(targets)))
    size = max(2, int(_MOST_ENTRIES * len(targets) / max(1, int((~targets.isnan()).sum()))))
    return [rows for rows in order.split(size)[:_NUM_BLOCKS] if len(rows) >= min(size, len(targets)) // 2]


def _permutation(number: int) -> np.ndarray:
    return np.random.RandomState(settings.probe_seed.value() % 2**32).permutation(number)


def _block(covariance: LinearOperator, targets: Tensor, rows: Tensor) -> DenseEvidence:
    own = covariance[rows, :][:, rows].to(dtype=torch.float64).to_dense()
    return DenseEvidence(own, targets[rows], centred=True)


def maximize_evidence(
    terms: Sequence[tuple[float, Evidence]], num_targets: int, *, start: Coregionalization | None = None
) -> Coregionalization:
    r"""
    Return B and noise that maximize a sum of log likelihoods plus :math:`\log |C|`, C the correlations, by L-BFGS-B.

    `terms` are signs and log likelihoods: the likelihood of held-out rows is that of all rows less that of the others.
    Errors of a row are independent, unless their correlations gain three nats, plus two for each pair of targets: on
    some 240 sets of independent errors with 100 to 1,000 rows, five gained that much. The search starts from given
    values, or from uncorrelated targets with a noise of .2.
    """
    independent = _maximum(terms, num_targets, start, are_independent=True)
    # Targets are uncorrelated at the start: functions that already explain errors' correlations would keep them.
    alone = None if start is None else replace(start, covariance=start.covariance.diagonal().diag())
    correlated = _maximum(terms, num_targets, alone, are_independent=False)
    least = _LEAST_GAIN + _LEAST_GAIN_OF_PAIR * num_targets * (num_targets - 1) / 2
    return correlated if correlated.log_likelihood - independent.log_likelihood > least else independent


def _maximum(
    terms: Sequence[tuple[float, Evidence]], num_targets: int, start: Coregionalization | None, *, are_independent: bool
) -> Coregionalization:
    position = _position(start, num_targets)
    num_loadings = num_targets * (num_targets - 1) // 2
    bounds = [_LOG_SCALE] * num_targets + [_LOG_NOISE] * num_targets + [_LOADING] * num_loadings
    bounds += [(0.0, 0.0) if are_independent else _LOADING] * num_loadings

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        where = torch.tensor(values, requires_grad=True)
        with torch.enable_grad():
            covariance, noise, log_volume = _values(where, num_targets)
            found = [(sign, term(covariance.detach(), noise.detach())) for sign, term in terms]
            total = sum(sign * each.value for sign, each in found) + _INDEPENDENCE * float(log_volume.detach())
            by_covariance = torch.stack([sign * each.by_covariance for sign, each in found]).sum(0)
            by_noise = torch.stack([sign * each.by_noise for sign, each in found]).sum(0)
            ones = torch.ones_like(log_volume)
            (gradient,) = torch.autograd.grad(
                [covariance, noise, log_volume], where, [by_covariance, by_noise, _INDEPENDENCE * ones]
            )
        return -total, -gradient.numpy()

    found = minimize_lbfgsb(loss, position, bounds=bounds, options=_STOPPING_RULE)
    # The last digits of the search depend on where arrays lie in memory.
    covariance, noise, log_volume = _values(torch.from_numpy(found.x.round(_DECIMALS)), num_targets)
    mean = terms[0][1](covariance, noise).mean.numpy().round(_DECIMALS)
    log_likelihood = -float(found.fun) - _INDEPENDENCE * float(log_volume)
    own, correlations = noise.diagonal(), None if are_independent else _correlations(noise)
    return Coregionalization(covariance, own, torch.from_numpy(mean), log_likelihood, correlations)


def _position(start: Coregionalization | None, num_targets: int) -> np.ndarray:
    """Return logarithms of the diagonals of B and the noise, and the loadings of both; those of the noise are 0."""
    if start is None:
        log_scales, log_noises = np.zeros(num_targets), np.full(num_targets, math.log(_USUAL_NOISE))
        return np.concatenate([log_scales, log_noises, np.zeros(num_targets * (num_targets - 1))])
    root = stable_cholesky(_correlations(start.covariance))
    loadings = root / root.diagonal().unsqueeze(-1)
    below = torch.tril_indices(num_targets, num_targets, -1)
    own = loadings[below[0], below[1]].clamp(*_LOADING)
    parts = [start.covariance.diagonal().log(), start.noise.log(), own, torch.zeros_like(own)]
    return torch.cat(parts).numpy().copy()


def _values(position: Tensor, num_targets: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return B, S, and the log determinant of the correlations of both."""
    num_loadings = num_targets * (num_targets - 1) // 2
    log_scales, log_noise, below, below_of_noise = position.split([num_targets] * 2 + [num_loadings] * 2)
    (covariance, log_volume), (noise, of_noise) = _loaded(log_scales, below), _loaded(log_noise, below_of_noise)
    return covariance, noise, log_volume + of_noise


def _loaded(log_variances: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
    """Return the covariance of these variances and loadings, and the log determinant of its correlations."""
    num_targets = len(log_variances)
    indices = torch.tril_indices(num_targets, num_targets, -1).unbind()
    loadings = torch.eye(num_targets, dtype=below.dtype).index_put(indices, below)
    lengths = loadings.norm(dim=1)
    root = loadings * ((0.5 * log_variances).exp() / lengths).unsqueeze(-1)
    return root @ root.mT, -2 * lengths.log().sum()


def _correlations(covariance: Tensor) -> Tensor:
    root = covariance.diagonal().sqrt()
    return covariance / root / root.unsqueeze(-1)
