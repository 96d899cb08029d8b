r"""
The marginal likelihood at one lifetime (from counts, a dense covariance or a Lanczos run), or after each cut.

From counts it is Bayesian ridge regression on the clusters of flat partitions, with outputscale and noise given.
With :math:`f(x) = \sum_r \theta_{\varrho_r(x)}` and independent effects of variance s / m,
:math:`K = \tfrac sm Z Z^\top`. All follows from the regularized counts :math:`M = G + \lambda I` (`p x p`),
:math:`G = Z^\top Z, \lambda = m \sigma^2 / s` (Balog et al. 2016, section 4.2.1, with features divided by the square
root of m).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, cast

import torch
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator import settings as linear_settings
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.clusters.co_occurrence import co_occurrences, coarsened, streamed_cluster_sums
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, maximize
from gpytorch_partition.inference.evidence.spectral_likelihood import (
    SpectralLikelihood,
    default_num_probes,
    dense_measure,
    krylov_measures,
)
from gpytorch_partition.inference.prediction import method_costs
from gpytorch_partition.inference.spaces.feature_space import FeatureSpace
from gpytorch_partition.kernels.mondrian_kernels import MondrianKernel
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.models.partition_gp import PartitionGP
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.partitions.mondrian.mondrian_trees import Attachments, Cells, GrownRows, MondrianTrees
from gpytorch_partition.progress import progress


@dataclass(frozen=True)
class Regression:
    """Hold the numbers of a regression besides its clusters, for targets less their prior mean, given or chosen."""

    outputscale: float
    noise: float
    num_partitions: int
    num_rows: int
    squares: float
    mean: float = 0.0

    @property
    def ridge(self) -> float:
        r"""Return the penalty :math:`\lambda = m \sigma^2 / s` of squared effects."""
        return self.num_partitions * self.noise / self.outputscale

    def log_marginal_likelihood(self, explained: float, log_determinant: float, num_clusters: int) -> float:
        r"""
        Return the log marginal likelihood in nats, from :math:`b^\top M^{-1} b`, :math:`\log |M|` and p.

        .. math::

            -\tfrac12 \left[\frac{y^\top y - b^\top M^{-1} b}{\sigma^2} + \log |M| - p \log \lambda
            + N \log 2 \pi \sigma^2 \right]
        """
        misfit = (self.squares - explained) / self.noise
        complexity = log_determinant - num_clusters * math.log(self.ridge)
        return -0.5 * (misfit + complexity + self.num_rows * math.log(2 * math.pi * self.noise))


@dataclass(frozen=True, eq=False)
class ClusterRidge:
    r"""Solve the regression on clusters by a Cholesky factor of M, from G and :math:`b = Z^\top y`: `16 p^2` bytes."""

    regression: Regression
    counts: Tensor
    sums: Tensor

    @cached_property
    def _factor(self) -> Tensor:
        regularized = self.counts.clone()
        regularized.diagonal().add_(self.regression.ridge)
        factor, failed = torch.linalg.cholesky_ex(regularized)
        if failed:
            ratio = self.regression.noise / self.regression.outputscale
            raise ValueError(f"expected a noise that float64 resolves, got {ratio:.2g} outputscales: give a larger one")
        return factor

    @cached_property
    def effects(self) -> Tensor:
        r"""Return the posterior means :math:`\theta = M^{-1} b` of the effects (`p`), 0 for clusters without rows."""
        return torch.cholesky_solve(self.sums.unsqueeze(-1), self._factor).squeeze(-1)

    @property
    def log_marginal_likelihood(self) -> float:
        explained = float(self.sums @ self.effects)
        return self.regression.log_marginal_likelihood(explained, self.log_determinant, self.sums.numel())

    @property
    def log_determinant(self) -> float:
        return 2 * float(self._factor.diagonal().log().sum())

    def coarsened(self, clusters: Tensor, num_clusters: int) -> ClusterRidge:
        """Return the regression on unions of clusters (the union of each, `p`), in :math:`O(p^2)` for any N."""
        sums = self.sums.new_zeros(num_clusters).index_add_(0, clusters, self.sums)
        return ClusterRidge(self.regression, coarsened(self.counts, clusters, num_clusters), sums)


class Step(NamedTuple):
    """Hold the regression after a cut, or, at time 0, before the first one."""

    time: float
    cells: Cells
    log_marginal_likelihood: float  # in nats, of all rows together
    effects: Tensor  # (p,) posterior means of the effects of the cells, by their codes


def along_cuts(terminal: ClusterRidge, cells: Cells, trees: MondrianTrees) -> Iterator[Step]:
    r"""
    Yield the regression after every single cut, in ascending order (Balog et al. 2016, section 4.2.1).

    Updates of :math:`M^{-1}` would lose digits. Instead, cuts are taken in blocks of :math:`\sqrt C` for C cells at the
    terminal lifetime. Cells that no cut of a block splits are eliminated once, which leaves a small Schur complement on
    the parts of the others at the end of the block. After each cut, cells are unions of these parts: their Schur
    complement is summed over rows and columns. Costs :math:`O(C^{3.5})` operations in all, and `24 C^2` bytes.
    """
    times = torch.sort(trees.cut_times[trees.cut_times < math.inf]).values
    size = math.isqrt(len(times)) + 1
    for start in progress(range(0, max(1, len(times)), size), "following cuts"):
        block = times[start : start + size].tolist()
        before = trees.cells(float(times[start - 1]) if start else 0.0)
        after = trees.cells(block[-1] if block else 0.0)
        ridge, place = terminal.coarsened(cells.place_in(after), after.num_clusters), after.place_in(before)
        is_cut = torch.bincount(place, minlength=before.num_clusters)[place] > 1  # the earlier cell of each later one
        complement = _SchurComplement(ridge, is_cut)
        for time in block if start else [0.0, *block]:
            now = trees.cells(time)
            yield complement.at(time, now, after.place_in(now))


class _SchurComplement:
    """The regression on cells that cuts split; effects of the others are `alone` less `spread` times theirs."""

    def __init__(self, ridge: ClusterRidge, is_cut: Tensor) -> None:
        self.regression, counts, sums = ridge.regression, ridge.counts, ridge.sums
        self.kept, self.eliminated = is_cut.nonzero().squeeze(-1), (~is_cut).nonzero().squeeze(-1)
        among, across = counts[self.eliminated][:, self.eliminated], counts[self.eliminated][:, self.kept]
        among.diagonal().add_(self.regression.ridge)
        factor = stable_cholesky(among)
        solved = torch.cholesky_solve(torch.cat([across, sums[self.eliminated].unsqueeze(-1)], -1), factor)
        self.spread, self.alone = solved[:, :-1], solved[:, -1]
        self.counts = counts[self.kept][:, self.kept] - across.mT @ self.spread
        self.sums = sums[self.kept] - across.mT @ self.alone
        self.explained = float(sums[self.eliminated] @ self.alone)
        self.log_determinant = 2 * float(factor.diagonal().log().sum())

    def at(self, time: float, cells: Cells, place: Tensor) -> Step:
        """Return the regression at a time, given its cells and the cell of each cell at the block's end."""
        unions, union = place[self.kept].unique(return_inverse=True)
        ridge = ClusterRidge(self.regression, self.counts, self.sums).coarsened(union, len(unions))
        effects = ridge.sums.new_zeros(cells.num_clusters)
        effects[unions] = ridge.effects
        effects[place[self.eliminated]] = self.alone - self.spread @ ridge.effects[union]
        explained = self.explained + float(ridge.sums @ ridge.effects)
        log_determinant = self.log_determinant + ridge.log_determinant
        num_clusters = len(self.eliminated) + len(unions)
        value = self.regression.log_marginal_likelihood(explained, log_determinant, num_clusters)
        return Step(time, cells, value, effects)


_TOLERANCE_NATS = 0.05  # change of the log marginal likelihood, in nats, at which Lanczos steps stop ...
_TOLERANCE_ERRORS = 0.1  # ... or in standard errors of its own, whichever is larger
_LEAST_NOISE = 1e-6  # least noise that is chosen, in mean squares of the targets: Cholesky factors keep their digits


class SweepData(NamedTuple):
    """Hold a copy of the kernel, training data less their mean, the trees of these rows, and given hyperparameters."""

    kernel: MondrianKernel
    x: Tensor
    y: Tensor
    mean: Tensor
    rows: GrownRows
    regression: Regression
    is_given: bool

    @classmethod
    def of(
        cls, kernel: MondrianKernel, x: Tensor, y: Tensor, outputscale: float | None, noise: float | None
    ) -> SweepData:
        rows = kernel.partition.grown(kernel.columns.select(x))
        kernel = kernel.cut(kernel.lifetime)
        mean = y.double().mean()
        y = y.double() - mean
        squares = float(y.square().sum())
        regression = Regression(outputscale or 1.0, noise or 1.0, kernel.num_partitions, len(y), squares)
        return cls(kernel, x, y, mean, rows, regression, noise is not None)

    def covariance(self, cells: Cells) -> PartitionLinearOperator:
        """Return the covariance K at the lifetime of these cells, in float64 for rows of any dtype."""
        rows, one = Incidence(self.rows.codes(cells), cells.num_clusters), torch.ones((), dtype=torch.float64)
        effects = self.kernel._cluster_operator(cells.num_clusters, one)
        return PartitionLinearOperator(one, effects, left=rows, right=rows)

    def regression_of(self, likelihood: SpectralLikelihood) -> Regression:
        """Return the regression with the given outputscale, noise and mean, or the most likely ones."""
        if self.is_given:
            return self.regression
        least = _LEAST_NOISE * max(self.regression.squares / self.regression.num_rows, 1e-30)
        found = maximize(likelihood, Bounds((0.0, math.inf), (least, math.inf)))
        squares = float((self.y - found.mean).square().sum())
        scale, noise, mean = found.outputscale, found.noise, found.mean
        return replace(self.regression, outputscale=scale, noise=noise, mean=mean, squares=squares)

    def model(self) -> PartitionGP:
        """Return an exact GP of the training rows for :meth:`predict`, whose trees are grown for its points once."""
        likelihood = GaussianLikelihood()
        model = PartitionGP(self.x, self.y.to(self.x), likelihood, self.kernel.cut(self.kernel.lifetime))
        likelihood.noise_covar.raw_noise_constraint.lower_bound.fill_(0)
        return model

    def predict(self, model: PartitionGP, lifetime: float, regression: Regression, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return predictive means and latent variances at a lifetime, to which the model is set."""
        model.train()  # forgets what it solved at another lifetime
        model.set_train_data(targets=(self.y - regression.mean).to(self.x), strict=True)
        cast(MondrianKernel, model.covar_module.base_kernel).lifetime = lifetime
        model.likelihood.noise, model.covar_module.outputscale = regression.noise, regression.outputscale
        with torch.no_grad(), settings.iterative():
            predicted = model.eval()(x)
            return predicted.mean.double() + self.mean + regression.mean, predicted.variance


class HeldOut(NamedTuple):
    """Hold the held-out rows: their exits from the trees of the training rows, and targets less the training mean."""

    events: Attachments
    y: Tensor

    @classmethod
    def of(cls, kernel: MondrianKernel, data: SweepData, x: Tensor, y: Tensor) -> HeldOut:
        return cls(kernel.partition.attached(data.rows, kernel.columns.select(x)), y.double() - data.mean)

    def error(self, rows: GrownRows, cells: Cells, lifetime: float, effects: Tensor, mean: float) -> float:
        """Return the root mean squared error, given the effects of the cells at a lifetime and the prior mean."""
        by_event = effects[self.events.cells(rows.trees, cells, lifetime)]
        return float((by_event[self.events.codes].sum(-1) + mean - self.y).square().mean().sqrt())


class LifetimeResult(NamedTuple):
    """The result of one lifetime; it has effects of cells only if validation rows need them, or they cost nothing."""

    regression: Regression
    log_likelihood: float
    standard_error: float = 0.0
    effects: Tensor | None = None


def uses_counts(data: SweepData, cells: Cells) -> bool:
    """Return whether the likelihood is computed exactly, by the p x p matrix of clusters."""
    num_rows, size = data.regression.num_rows, cells.num_clusters
    if _is_dense(data):
        return size <= num_rows
    return method_costs.takes_cholesky(size, num_rows)


def _is_dense(data: SweepData) -> bool:
    return data.regression.num_rows <= linear_settings.max_cholesky_size.value()


def counted(data: SweepData, cells: Cells) -> ClusterRidge:
    codes = data.rows.codes(cells)
    sums = streamed_cluster_sums(codes, data.y.unsqueeze(-1), cells.num_clusters).squeeze(-1)
    return ClusterRidge(data.regression, co_occurrences(codes, cells.num_clusters), sums)


def by_counts(data: SweepData, ridge: ClusterRidge) -> LifetimeResult:
    """Return the likelihood from the counts of clusters."""
    if not data.is_given:
        space = FeatureSpace(ridge.counts, data.kernel._cluster_operator(len(ridge.sums), ridge.counts))
        sums, total = torch.stack([ridge.sums, ridge.counts.diagonal()], -1), float(data.y.double().sum())
        squares = [[data.regression.squares, total], [total, data.regression.num_rows]]
        measure = space.measure(sums, torch.tensor(squares, dtype=torch.float64))
        found = data.regression_of(SpectralLikelihood(measure))
        ridge = ClusterRidge(found, ridge.counts, ridge.sums - found.mean * ridge.counts.diagonal())
    return LifetimeResult(ridge.regression, ridge.log_marginal_likelihood, 0.0, ridge.effects)


def by_rows(data: SweepData, cells: Cells, with_effects: bool) -> LifetimeResult:
    """Return the likelihood from the covariance of the rows: dense for few, one Lanczos run for many."""
    covariance = data.covariance(cells)
    if _is_dense(data):
        return _by_cholesky(data, covariance, cells)
    regression, value, standard_error = _by_lanczos(data, covariance)
    if not with_effects:
        return LifetimeResult(regression, value, standard_error)
    noisy = covariance._mul_constant(regression.outputscale).add_diagonal(torch.tensor(regression.noise).double())
    alpha = noisy.solve((data.y - regression.mean).unsqueeze(-1))
    return LifetimeResult(regression, value, standard_error, _effects(data, regression, cells, alpha))


def _by_cholesky(data: SweepData, covariance: PartitionLinearOperator, cells: Cells) -> LifetimeResult:
    dense, regression = covariance.to_dense(), data.regression
    if not data.is_given:
        regression = data.regression_of(SpectralLikelihood(dense_measure(dense, data.y.unsqueeze(-1))))
    residuals = data.y - regression.mean
    noisy = regression.outputscale * dense
    noisy.diagonal().add_(regression.noise)
    factor = stable_cholesky(noisy)
    alpha = torch.cholesky_solve(residuals.unsqueeze(-1), factor)
    normal = torch.distributions.MultivariateNormal(torch.zeros_like(noisy[0]), scale_tril=factor)
    return LifetimeResult(regression, float(normal.log_prob(residuals)), 0.0, _effects(data, regression, cells, alpha))


def _by_lanczos(data: SweepData, covariance: PartitionLinearOperator) -> tuple[Regression, float, float]:
    targets, seed = data.y.unsqueeze(-1), settings.probe_seed.value()
    regression, before, value, error = data.regression, math.inf, math.inf, math.inf
    for measure in krylov_measures(covariance, targets, default_num_probes(len(targets)), seed):
        likelihood = SpectralLikelihood(measure)
        regression = data.regression_of(likelihood)
        values = regression.outputscale, regression.noise, regression.mean
        before, value = value, likelihood.value(*values)
        error = likelihood.standard_error(regression.outputscale, regression.noise)
        if abs(value - before) <= max(_TOLERANCE_NATS, _TOLERANCE_ERRORS * error):
            break
    return regression, value, math.hypot(error, likelihood.bias(*values))


def _effects(data: SweepData, regression: Regression, cells: Cells, alpha: Tensor) -> Tensor:
    share = regression.outputscale / regression.num_partitions
    return share * streamed_cluster_sums(data.rows.codes(cells), alpha, cells.num_clusters).squeeze(-1)
