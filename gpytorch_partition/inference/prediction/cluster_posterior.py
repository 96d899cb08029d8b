r"""
Predictive means, variances and joint samples from the posterior of the cluster effects u.

:math:`f = Z u` with :math:`u \sim N(0, s S)`, so the posterior of f at any points is that of u, summed over their
clusters. In a sum of covariances every term has its own effects; where rows have loadings, a cluster has several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import count
from operator import add
from threading import Lock
from typing import Any

import torch
from linear_operator.operators import ConstantDiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.clusters.co_occurrence import streamed_cluster_sums
from gpytorch_partition.clusters.incidence import Incidence, same_codes
from gpytorch_partition.inference.prediction.local_conditioning import (
    MOST_DRAWS,
    TargetDraws,
    have_local_predictors,
    local_predictors,
)
from gpytorch_partition.inference.spaces.feature_space import cached_feature_space, feature_space_of, summed_variances
from gpytorch_partition.linalg.conjugate_gradients import CGState
from gpytorch_partition.linalg.random import solver_generator
from gpytorch_partition.operators.algebra import structured_terms
from gpytorch_partition.operators.loadings import LoadedRows
from gpytorch_partition.operators.partition_linear_operator import IncidenceLinearOperator, PartitionLinearOperator
from gpytorch_partition.progress import progress
from gpytorch_partition.settings import num_variance_samples, preconditioner_rank, probe_seed, variance_tolerance
from gpytorch_partition.solvers.direct import FeatureFactor
from gpytorch_partition.solvers.iterative_solvers import ConjugateGradients, InDouble
from gpytorch_partition.solvers.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator
from gpytorch_partition.solvers.solver import Dense, has_few_rows

_LEAST_RESIDUAL = 256  # smallest relative residual of samples that rounding allows, in units of roundoff
# Number of samples from which on they are solved for with sorted rows and a larger preconditioner.
_MANY_SAMPLES = 128
_RANK_FACTOR = 4  # rank of the larger preconditioner, in usual ranks
_FEW_RANK_FACTOR = 2  # the same for a few blocks of draws
_MOST_BYTES = 2**30  # size of the larger preconditioner
_MOST_COPIED = 2**30  # bytes of the sorted codes and loadings: a million rows of the default model would be 5 GiB
_MOST_KEPT = 2**31  # bytes of the draws that are kept
_SEEDS = 0x9E3779B1  # from one block of draws to the next: generators on a CPU take the low 32 bits of a seed
_COLUMNS = 16  # samples solved for at once: with more, each takes longer
_ORDERED_COLUMNS = 32  # the same for sorted rows


@dataclass(frozen=True)
class ClusterPosterior:
    """Hold the posterior of cluster effects, given noisy training rows, at some test points."""

    noisy: PartitionAddedDiagLinearOperator  # N x N, without batch dimensions; every term of the sum has clusters
    points: tuple[LoadedRows, ...]  # for each term, the test points in the feature space of its training rows
    order: Tensor | None = None  # of training rows (`N`) that are sorted by the clusters of a partition
    is_precise: bool = False  # all is in float64, with the most precise solvers
    kept: KeptDraws | None = None  # of earlier variances

    @property
    def num_points(self) -> int:
        return self.points[0].rows.num_rows

    @property
    def covariances(self) -> list[PartitionLinearOperator]:
        """Return the terms of the training covariance, without the noise."""
        return structured_terms(self.noisy._linear_op)

    @property
    def covariance(self) -> PartitionLinearOperator:
        return self.covariances[0]

    @property
    def has_covariance(self) -> bool:
        """Return whether the covariance of the effects is known already, from a fit or from variances."""
        if not self.has_feature_space:
            return False
        space = cached_feature_space(self.covariance.left)
        return space is not None and space.has_root(float(self.covariance.scale), self.noise)

    def mean_effects(self, residuals: Tensor) -> Tensor:
        """Return posterior means of effects (`p x 1`) by feature space, from targets less the prior mean."""
        rows = self.covariance.left
        sums = streamed_cluster_sums(rows.codes, residuals.unsqueeze(-1), rows.num_clusters)
        space = feature_space_of(self.covariance)
        return space.mean_weights(sums, float(self.covariance.scale), self.noise).to(self.noisy.dtype)

    def variances(self, method: str) -> Tensor:
        """Return latent variances (`N_test`) by a method other than conjugate gradients."""
        if method == "factor":
            return self._factor.variances(self.points).to(self.noisy.dtype)
        if method == "samples":
            return self.sampled_variances()
        root = feature_space_of(self.covariance).covariance_root(float(self.covariance.scale), self.noise)
        return summed_variances(self.points[0].rows, root.to(self.noisy.dtype))  # O(p m) each

    def factored_root(self) -> Tensor:
        """Return a root of the posterior covariance (`N_test x q`, float64): variances are right for all points."""
        return self._factor.root(self.points)

    @property
    def _factor(self) -> FeatureFactor:
        factor = self.noisy.feature_factor
        assert factor is not None
        return factor

    def sampled_variances(self) -> Tensor:
        """
        Return unbiased latent variances (`N_test`) from pathwise samples (Matheron's rule), a solve for each sample.

        The posterior deviates from its mean as :math:`f_* - K_* A^{-1} (f + e)` does, for a joint draw of f at test and
        training points from the prior, and of e from the noise. Solves that do not converge are an UnconvergedError, if
        a more precise method exists.
        """
        num_samples, kept = num_variance_samples.value(), self.kept or KeptDraws()
        if not self.noisy.knows_feature_factor and have_local_predictors(self.covariances):
            local = local_predictors(self.covariances, self.points, self._noise_diagonal.squeeze(-1))
            variances = local.function_variances(self.points, kept.of_targets(self, num_samples), num_samples)
            if variances is not None:
                return variances
        blocks = (self._deviations(tables) for tables in kept.of(self, num_samples))
        return reduce(add, (block.square().sum(-1) for block in blocks)) / num_samples

    def drawn_targets(self, first: int = 0) -> Iterator[TargetDraws]:
        """Draw targets, with the posterior means given each, in blocks from a first one on; without end."""
        prepared, seed = self._prepared(_MANY_SAMPLES, _FEW_RANK_FACTOR), probe_seed.value()
        for block in count(first):
            yield prepared._targets(solver_generator(seed + block * _SEEDS, "samples", self.noisy.device))

    def _targets(self, generator: torch.Generator) -> TargetDraws:
        _, function, errors = self._joint_draw(_ORDERED_COLUMNS, generator)
        weights = self._solve(function, errors)
        effects = [_mean_effects(covariance, weights) for covariance in self.covariances]
        targets = function + errors
        if self.order is not None:
            targets = torch.empty_like(targets).index_copy_(0, self.order, targets)
        return TargetDraws(effects, targets)

    def drawn(self, num_samples: int) -> Iterator[list[Tensor]]:
        """Draw effects less their means by the probe seed, in blocks: a table (`p x t`) of each term for a block."""
        generator = solver_generator(probe_seed.value(), "samples", self.noisy.device)
        return self._prepared(num_samples)._blocks(num_samples, generator, "predictive variances")

    def num_bytes(self, num_samples: int) -> int:
        """Return the number of bytes of so many draws."""
        loadings = [1 if each.loadings is None else each.loadings.shape[-1] for each in self.points]
        numbers = (each.left.num_clusters * number for each, number in zip(self.covariances, loadings))
        return num_samples * self.noisy.dtype.itemsize * sum(numbers)

    def samples(self, num_samples: int, own: Sequence[Incidence]) -> Tensor:
        """
        Draw joint samples of the latent function less its mean (`num_samples x N_test`), by PyTorch's global generator.

        Errors are those of :meth:`sampled_variances`. `own` are, for each term, one-hot rows of the test points in
        their own feature space, which tells unseen clusters apart.
        """
        none = self._noise_diagonal.new_empty(self.num_points, 0)
        blocks = self._prepared(num_samples)._blocks(num_samples, None, "posterior samples")
        return torch.cat([none, *(self._deviations(tables, own) for tables in blocks)], -1).mT

    def _blocks(self, num_samples: int, generator: torch.Generator | None, description: str) -> Iterator[list[Tensor]]:
        drawn = self._drawn_by_factor if self.noisy.knows_feature_factor else self._drawn_by_solves
        columns = _ORDERED_COLUMNS if self.order is not None else _COLUMNS
        for start in progress(range(0, num_samples, columns), description):
            yield drawn(min(columns, num_samples - start), generator)

    def _prepared(self, num_samples: int, rank_factor: int = _RANK_FACTOR) -> ClusterPosterior:
        """
        Sort the rows by the clusters of one partition for many samples.

        Neighbours share clusters of the other partitions too, so sums find them in the cache. The result holds 8 bytes
        per (row, partition) and a copy of the loadings, and a preconditioner of up to `rank_factor` times the rank, 1
        GiB each at most.
        """
        is_direct = self.noisy.knows_feature_factor or (self.is_precise and self.noisy.has_direct)
        loadings = [each.left_loadings for each in self.covariances if each.left_loadings is not None]
        num_bytes = 8 * sum(covariance.left.num_partitions for covariance in self.covariances)  # of a copied row
        num_bytes += self.noisy.dtype.itemsize * sum(each.shape[-1] for each in loadings)
        is_large = num_bytes * self.noisy.size(-1) > _MOST_COPIED
        if num_samples < _MANY_SAMPLES or has_few_rows(self.noisy) or is_direct or is_large:
            return self
        codes = torch.cat([covariance.left.codes for covariance in self.covariances], -1)
        order = codes[:, int((codes.amax(0) - codes.amin(0)).argmax())].argsort(stable=True)  # of the finest partition
        rank = preconditioner_rank.value()
        prepared = replace(self, noisy=self.noisy.restricted_to(order), order=order)
        most = _MOST_BYTES // (order.numel() * self.noisy.dtype.itemsize)
        with preconditioner_rank(max(rank, min(rank_factor * rank, most))):
            _ = prepared._inverse
        return prepared

    def _deviations(self, tables: list[Tensor], own: Sequence[Incidence] | None = None) -> Tensor:
        """Posterior samples less their mean, `N_test x t`; without `own` right for single points only."""
        terms = zip(self.covariances, tables, self.points, own or [each.rows for each in self.points])
        values = (
            points.row_values(table) if same_codes(rows, points.rows) else _with_unseen(covariance, table, points, rows)
            for covariance, table, points, rows in terms
        )
        return reduce(add, values).to(self.noisy.dtype)

    def _drawn_by_factor(self, num_samples: int, generator: torch.Generator | None) -> list[Tensor]:
        normal = _normal((self._factor.num_columns, num_samples), self.covariance.cluster_operator, generator)
        return [
            _table_of(root, part).to(covariance.cluster_operator.dtype)
            for root, part, covariance in zip(self._factor.roots, self._factor.deviations(normal), self.covariances)
        ]

    def _drawn_by_solves(self, num_samples: int, generator: torch.Generator | None) -> list[Tensor]:
        """Draw posterior effects less their means, by Matheron's rule."""
        tables, function, errors = self._joint_draw(num_samples, generator)
        weights = self._solve(function, errors)
        for covariance, table in zip(self.covariances, tables):
            table -= _mean_effects(covariance, weights)
        return tables

    def _joint_draw(self, num_samples: int, generator: torch.Generator | None) -> tuple[list[Tensor], Tensor, Tensor]:
        """Draw effects of each term, and the function and its errors at the training rows, from the prior."""
        tables = [_drawn_effects(covariance, num_samples, generator) for covariance in self.covariances]
        rows = [LoadedRows(covariance.left, covariance.left_loadings) for covariance in self.covariances]
        function = reduce(add, map(LoadedRows.row_values, rows, tables))
        return tables, function, self._noise_diagonal.sqrt() * _normal(function.shape, function, generator)

    def _solve(self, function: Tensor, errors: Tensor) -> Tensor:
        """Solve :math:`A w = f + e` for draws of f and e (`N x t`)."""
        if has_few_rows(self.noisy):
            return Dense(self.noisy).solve(function + errors)
        certain, least = self._stopping_rule(function, errors)
        solver = InDouble(self.noisy) if self.is_precise else ConjugateGradients(self.noisy)
        stop = lambda state: certain(state) | (self._weighted_norm(state.residual) <= least)  # noqa: E731
        return solver.within(function + errors, stop, certain, preconditioner=self._inverse).solution

    def _stopping_rule(self, function: Tensor, errors: Tensor) -> tuple[Callable[[CGState], Tensor], Tensor]:
        r"""
        Stop where the error of a sample is a small fraction of its variance; also return the least norm of a residual.

        The residual is :math:`r = f + e - A w`. At the training rows the sample deviates from its mean by :math:`f - K
        w = D w + r - e`, and from the exact sample by :math:`K A^{-1} r`. As :math:`|D^{-1/2} K A^{-1} r| \le |D^{-1/2}
        r|`, means over the rows are weighted by their precision.
        """
        noise, norm = self._noise_diagonal, self._weighted_norm
        coarsest = max(torch.finfo(covariance.cluster_operator.dtype).eps for covariance in self.covariances)
        share, roundoff = variance_tolerance.value() ** 0.5, _LEAST_RESIDUAL * coarsest
        smallest, is_zero = roundoff * norm(function + errors), norm(function) == 0

        def has_converged(state: CGState) -> Tensor:
            deviation = torch.addcmul(state.residual - errors, noise, state.solution)
            return (norm(state.residual) <= share * norm(deviation)) | is_zero

        return has_converged, smallest

    def _weighted_norm(self, columns: Tensor) -> Tensor:
        r""":math:`|D^{-1/2} v|` (`1 x t`), in units that make it :math:`|v|` where D is constant."""
        noise = self._noise_diagonal
        number = torch.finfo(noise.dtype)
        least = noise.min().clamp_min(number.eps * noise.max()).clamp_min(number.tiny)
        return (columns * (least / noise.clamp_min(least)).sqrt()).norm(dim=-2, keepdim=True)

    @cached_property
    def _inverse(self) -> Callable[[Tensor], Tensor] | None:
        return self.noisy.preconditioner_inverse()

    @property
    def _noise_diagonal(self) -> Tensor:
        return self.noisy._diag_tensor._diagonal().unsqueeze(-1)

    @property
    def noise(self) -> float:
        return float(self.noisy._diag_tensor.diag_values)

    @property
    def has_feature_space(self) -> bool:
        """Return whether exact inference in feature space applies: one kernel without loadings, one level of noise."""
        is_one = len(self.points) == 1 and self.points[0].loadings is None
        return is_one and isinstance(self.noisy._diag_tensor, ConstantDiagLinearOperator)


def _table_of(root: IncidenceLinearOperator, coefficients: Tensor) -> Tensor:
    """Return effects of the clusters (`p x kt`) from coefficients of a root's columns (`kq x t`)."""
    num_loadings = root.shape[-1] // root.factor.shape[-1]
    return root.scale * root.factor._matmul(torch.cat(coefficients.chunk(num_loadings, -2), -1))


def _drawn_effects(covariance: PartitionLinearOperator, num_samples: int, generator: torch.Generator | None) -> Tensor:
    factor, loadings = covariance.sparse_root().factor, covariance.left_loadings
    num_columns = num_samples * (1 if loadings is None else loadings.shape[-1])
    normal = _normal((factor.shape[-1], num_columns), covariance.cluster_operator, generator)
    return covariance.scale.sqrt() * factor._matmul(normal)


def _with_unseen(covariance: PartitionLinearOperator, table: Tensor, points: LoadedRows, own: Incidence) -> Tensor:
    """Sum effects over clusters, with independent ones for the clusters without training rows."""
    clusters = covariance.cluster_operator
    # An empty leaf of a tree has the effects of the nodes above, which the table holds.
    is_empty = _are_empty(covariance) & clusters.independent_clusters
    seen = points.row_values(table.masked_fill(is_empty.unsqueeze(-1), 0))
    places = points.rows.codes.long()
    deviations = table.new_zeros(own.num_clusters + 1, 1)
    deviations[own.codes.long(), 0] = (covariance.scale * clusters._diagonal()).sqrt()[places]
    deviations[-1] = 0  # for all clusters that training rows are in
    normal = _normal((own.num_clusters + 1, table.shape[-1]), table, None)
    normal[:-1] = clusters.correlated(normal[:-1])
    effects = deviations * normal
    codes = torch.where(is_empty[places], own.codes, own.num_clusters)
    return seen + points._replace(rows=Incidence(codes, own.num_clusters + 1)).row_values(effects)


def _are_empty(covariance: PartitionLinearOperator) -> Tensor:
    """Return which clusters (`p`, bool) have no training rows of any task."""
    ones = torch.ones(covariance.left.num_rows, 1, dtype=covariance.dtype, device=covariance.device)
    num_tasks = covariance.cluster_operator.num_tasks
    counts = covariance.left.cluster_sums(ones).view(-1, num_tasks).sum(-1)
    return (counts == 0).repeat_interleave(num_tasks)


def _mean_effects(covariance: PartitionLinearOperator, weights: Tensor) -> Tensor:
    """Return posterior means of effects (`p x kt`) from solutions of targets (`N x t`)."""
    return covariance.scale * covariance.cluster_product(covariance.cluster_sums(weights))


def _normal(shape: Sequence[int], like: Tensor | LinearOperator, generator: torch.Generator | None) -> Tensor:
    return torch.randn(*shape, dtype=like.dtype, device=like.device, generator=generator)


def cluster_posterior(noisy: LinearOperator, cross: LinearOperator, **options: Any) -> ClusterPosterior | None:
    """Return the posterior of cluster effects; None for batches, other terms, and points in another feature space."""
    if noisy.batch_shape or cross.batch_shape or not isinstance(noisy, PartitionAddedDiagLinearOperator):
        return None
    own, others = structured_terms(noisy._linear_op), structured_terms(cross)
    if len(own) != len(others) or not all(map(_share_effects, own, others)):
        return None
    return ClusterPosterior(noisy, tuple(LoadedRows(term.left, term.left_loadings) for term in others), **options)


def _share_effects(covariance: LinearOperator, cross: LinearOperator) -> bool:
    if not isinstance(covariance, PartitionLinearOperator) or not isinstance(cross, PartitionLinearOperator):
        return False
    loadings = (covariance.left_loadings, cross.right_loadings)
    counts = {0 if loading is None else loading.shape[-1] for loading in loadings}
    are_comparable = covariance.is_symmetric and cross.has_same_clusters and len(counts) == 1
    return are_comparable and same_codes(covariance.left, cross.right)


_CREATED = Lock()  # for threads that predict with one model: its draws are created by one of them


class KeptDraws:
    """
    Hold the draws of posterior effects of one model, from which variances of any points are sums.

    They are kept for later calls with the same number of samples, seed and tolerance: up to 2 GiB of samples, and as
    much of the draws beside local predictors, with the rows and the preconditioner that these were prepared with.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], list[list[Tensor]]] = {}
        self._targets: _KeptTargets | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_known": {}, "_targets": None}  # they are drawn again

    def of(self, posterior: ClusterPosterior, num_samples: int) -> Iterator[list[Tensor]]:
        """Return tables (`p x t`) for each term, in blocks of draws."""
        is_factored = posterior.noisy.knows_feature_factor
        key = (posterior.noisy, num_samples, probe_seed.value(), variance_tolerance.value(), is_factored)
        if key in self._known:
            return iter(self._known[key])
        drawn = posterior.drawn(num_samples)
        if posterior.num_bytes(num_samples) > _MOST_KEPT:
            return drawn
        tables = list(drawn)
        others = {**self._known}
        while others and posterior.num_bytes(sum(each[1] for each in (key, *others))) > _MOST_KEPT:
            del others[next(iter(others))]
        self._known = {**others, key: tables}
        return iter(tables)

    def of_targets(self, posterior: ClusterPosterior, num_samples: int) -> Iterator[TargetDraws]:
        """Return blocks of draws, each drawn when it is asked for; kept if those for so many samples can be."""
        if posterior.num_bytes(num_samples) * MOST_DRAWS > _MOST_KEPT:
            return posterior.drawn_targets()
        key = (posterior.noisy, probe_seed.value(), variance_tolerance.value())
        with _CREATED:
            if self._targets is None or self._targets.key != key:
                self._targets = _KeptTargets(key, posterior)
            return iter(self._targets)


class _KeptTargets:
    def __init__(self, key: tuple[Any, ...], posterior: ClusterPosterior) -> None:
        self.key, self._posterior = key, posterior
        self._fresh: Iterator[TargetDraws] | None = None
        self._known: list[TargetDraws] = []
        self._lock = Lock()

    def __iter__(self) -> Iterator[TargetDraws]:
        for number in count():
            with self._lock:
                if number == len(self._known):
                    self._draw(number)
            yield self._known[number]

    def _draw(self, number: int) -> None:
        fresh, self._fresh = self._fresh or self._posterior.drawn_targets(number), None
        self._known.append(next(fresh))
        self._fresh = fresh  # an iterator that was interrupted has ended


class EffectTables:
    r"""
    Hold the tables :math:`S Z^\top \alpha` of the terms of a covariance of new points and training rows.

    One is kept for each term while the training rows have the same codes and loadings. If new points open clusters of
    their own, S is applied anew.
    """

    def __init__(self) -> None:
        # By the term's number in the sum, and whether S is in the table.
        self._kept: dict[tuple[int, bool], tuple[LoadedRows, Tensor]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_kept": {}}  # they are computed again

    def of(self, place: int, term: PartitionLinearOperator, weights: Tensor) -> Tensor:
        """
        Return the table of a term without trained values, whose `row_values` is the product of term and weights.

        :param place: Number of the term in the sum.
        :param term: `*batch x N_test x N`.
        :param weights: `*batch x N x t`, the same in every call.
        """
        rows = LoadedRows(term.right, term.right_loadings)
        key = (place, term.has_same_clusters)
        known, kept = self._kept.get(key, (None, weights))
        if known is None or not known.are_same(rows):
            with torch.no_grad():
                kept = term.cluster_sums(weights)
                kept = term.cluster_product(kept) if term.has_same_clusters else kept
        self._kept[key] = (rows, kept)
        return kept if term.has_same_clusters else term.cluster_product(kept)
