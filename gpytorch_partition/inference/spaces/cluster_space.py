r"""
The marginal likelihood, means, variances and samples by iterations in cluster space.

With :math:`S = F F^\top` and :math:`\Phi = Z F`, the covariance :math:`K = \Phi \Phi^\top` (`N x N`) has the nonzero
eigenvalues of :math:`M = \Phi^\top \Phi` (`q x q`), whose vectors have q numbers: one for each cluster, or node of a
tree. Lanczos steps on M from :math:`\Phi^\top v` give the same quadratic forms as those on K from v. Traces are better:
probe vectors of q numbers leave out the N - q zeros among K's eigenvalues. With q a twentieth of N, 4 probes leave a
third of the standard error.

With :math:`f = \Phi w`, :math:`w \sim N(0, s I)` and :math:`\lambda = \sigma^2 / s`, the posterior of w has the mean
:math:`(M + \lambda)^{-1} \Phi^\top (y - c)` and the covariance :math:`\sigma^2 (M + \lambda)^{-1}`; cluster effects are
:math:`u = F w`. A residual r moves f at the training rows by :math:`\Phi (M + \lambda)^{-1} r`, of length :math:`|r| /
(2 \sqrt\lambda)` at most; solves stop by this bound.

The preconditioner is a Nystrom approximation of M; its diagonal is none, as nested clusters are far from orthogonal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import ConstantDiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.evidence.profile_likelihood import Maximum
from gpytorch_partition.inference.evidence.spectral_likelihood import (
    CHECKPOINTS,
    SpectralMeasure,
    default_num_probes,
    lanczos_measure,
)
from gpytorch_partition.inference.spaces.cluster_rows import Moments, Rows
from gpytorch_partition.linalg.conjugate_gradients import (
    CGResult,
    CGState,
    Rule,
    UnconvergedError,
    conjugate_gradients,
    relative_residual,
)
from gpytorch_partition.linalg.factors import nystrom_factor, stable_eigh, symmetric_root
from gpytorch_partition.linalg.lanczos import LanczosRun
from gpytorch_partition.linalg.random import solver_generator
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator
from gpytorch_partition.operators.guards import LARGEST_MEAN_ERROR, MEAN_ERROR, prediction_residual
from gpytorch_partition.progress import doing, progress
from gpytorch_partition.settings import preconditioner_rank, probe_seed, variance_tolerance
from gpytorch_partition.solvers.preconditioners import NystromPreconditioner

_MOST_EXACT = 1_000  # features whose matrix M is decomposed: half a second of one core
_COLUMNS = 32  # at once: a call of the rows costs little more for them than for one where shards are far away
_ROUNDING = 1e-12  # of eigenvalues, over the largest: coefficients below belong to the eigenvalue 0
_RESIDUAL_FACTOR = 0.1  # relative residuals, over those among the rows for the same error of means
_FEATURES_PER_RANK = 4  # at least; M has no more large eigenvalues, and partitions make some of them 0
_BLOCKS = 2**20  # seeds of blocks of samples that one seed stands for


def space_product(rows: Rows, root: LinearOperator) -> Callable[[Tensor], Tensor]:
    r"""Return the function :math:`C \mapsto M C = F^\top Z^\top Z F C` (`q x t`), one product of the rows."""
    return lambda effects: root._t_matmul(rows.gram(root._matmul(effects)))


def space_root(cluster_operator: ClusterOperator) -> LinearOperator:
    """Return the root F (`p x q`) of S in float64."""
    return cluster_operator.detach().to(dtype=torch.float64).root()


def space_width(cluster_operator: ClusterOperator) -> int:
    """Return the length q of a vector in cluster space: clusters of flat partitions, nodes of trees."""
    return cluster_operator.root().shape[-1]


def space_measures(
    rows: Rows, cluster_operator: ClusterOperator, num_probes: int | None, seed: int
) -> Iterator[SpectralMeasure]:
    """
    Yield measures of increasing accuracy from one Lanczos run on M, after 20, 30, 40, ... and at most 300 steps.

    Without a given number of probe vectors, yield the exact measure for up to 1,000 features, if these are no more than
    the columns of 20 steps: it takes :math:`O(q^3)`, holds `3 q` numbers for each column, and may have any N. Each step
    is one product of the rows with `t + 1 + num_probes` columns. About `64 + 4 (t + 1 + num_probes)` numbers are held
    for each of the q columns of F. Use it where q < N; above, probe vectors of rows are better.

    :param cluster_operator: `p x p` S, of unit scale.
    :param num_probes: Number of probe vectors for the traces. (None: as many as among rows, for a smaller error, or
        exact traces.)
    """
    root, moments = space_root(cluster_operator), rows.moments()
    num_features, device, is_free = root.shape[-1], moments.sums.device, num_probes is None
    num_probes = num_probes or default_num_probes(rows.num_rows)
    columns_of_lanczos = CHECKPOINTS[0] * (moments.sums.shape[1] + num_probes)
    if is_free and num_features <= min(_MOST_EXACT, columns_of_lanczos):
        yield _exact_measure(rows, root)
        return
    generator = solver_generator(seed, "probes", device)
    probes = torch.randn(num_features, num_probes, generator=generator, dtype=torch.float64, device=device)
    sizes = _sizes(moments)
    run = LanczosRun(space_product(rows, root), root._t_matmul(moments.sums / sizes), probes, generator)
    for num_steps in CHECKPOINTS:
        run.extend(num_steps - run.num_steps)
        nodes, inside = _of_rows(*run.lower_block_quadrature(), moments, sizes)
        lower_nodes, lower_inside = _lower_form(nodes, inside, len(run.diagonal), run.generator)
        back = _of_targets(sizes, moments.centers)
        yield lanczos_measure(run, moments.num_rows, (nodes, inside @ back), (lower_nodes, lower_inside @ back))


def _exact_measure(rows: Rows, root: LinearOperator) -> SpectralMeasure:
    moments = rows.moments()
    sizes, product = _sizes(moments), space_product(rows, root)
    identity = torch.eye(root.shape[-1], dtype=torch.float64, device=moments.sums.device)
    matrix = torch.cat([product(columns.contiguous()) for columns in identity.split(_COLUMNS, -1)], -1)
    values, vectors = stable_eigh(0.5 * (matrix + matrix.mT))
    nodes, inside = _of_rows(values, vectors.mT @ root._t_matmul(moments.sums / sizes), moments, sizes)
    coefficients = inside @ _of_targets(sizes, moments.centers)
    traces = torch.where(values > _ROUNDING * values[-1], values, 0)[None]
    num_zeros = moments.num_rows - traces.numel()
    return SpectralMeasure.of((nodes, coefficients), (traces, torch.ones_like(traces)), moments.num_rows, num_zeros)


def _sizes(moments: Moments) -> Tensor:
    """Return norms of the centred targets and the level (`t + 1`): columns of very different sizes lose digits."""
    sizes = moments.squares.diagonal().clamp_min(0).sqrt()
    return torch.where(sizes > 0, sizes, 1)


def _of_rows(nodes: Tensor, coefficients: Tensor, moments: Moments, sizes: Tensor) -> tuple[Tensor, Tensor]:
    r"""
    Return the quadrature of :math:`V^\top f(K) V` from that of :math:`(\Phi^\top V)^\top f(M)\, \Phi^\top V`.

    The rest of :math:`V^\top V`, outside of the span of the features, belongs to the eigenvalue 0. This is the
    Gauss-Radau quadrature of as many steps among the rows, an upper bound of forms in the inverse.
    """
    squares, kept = moments.squares / sizes / sizes.unsqueeze(-1), nodes > _ROUNDING * nodes[-1]
    inside = coefficients[kept] / nodes[kept].sqrt().unsqueeze(-1)
    outside = symmetric_root(squares - inside.mT @ inside).mT
    return torch.cat([nodes[kept], nodes.new_zeros(len(outside))]), torch.cat([inside, outside])


def _lower_form(
    nodes: Tensor, coefficients: Tensor, num_steps: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """A lower bound, the Gauss quadrature of a measure after that many steps: Lanczos on its own nodes."""
    no_probes = coefficients.new_zeros(len(nodes), 0)
    run = LanczosRun(lambda vectors: nodes.unsqueeze(-1) * vectors, coefficients, no_probes, generator)
    run.extend(num_steps)
    return run.lower_block_quadrature()


def _of_targets(sizes: Tensor, centers: Tensor) -> Tensor:
    """The matrix from coefficients of centred columns of length 1 to those of the targets and the level."""
    back = torch.diag(sizes)
    back[-1, :-1] = sizes[-1] * centers
    return back


class SpacePosterior:
    """
    Hold the posterior of cluster effects given rows and S (`p x p`), at fixed outputscale s, noise and mean c.

    Each column of a solve takes 50 to 200 products of the rows; `6 q` numbers are held for each of up to 32 columns,
    and rank times q for the preconditioner (:class:`~gpytorch_partition.settings.preconditioner_rank`).
    """

    def __init__(self, rows: Rows, cluster_operator: ClusterOperator, values: Maximum) -> None:
        self._rows, self._values, self._root = rows, values, space_root(cluster_operator)
        self._gram = space_product(rows, self._root)
        self._ratio = values.noise / values.outputscale  # lambda

    @cached_property
    def mean(self) -> Tensor:
        """Return the posterior means of the cluster effects (`p x 1`); an UnconvergedError if they are too inexact."""
        moments = self._rows.moments()
        sums = moments.sums[:, :1] - (self._values.mean - moments.centers[0]) * moments.sums[:, -1:]
        with doing("solving for means"):
            found = self._solve(self._root._t_matmul(sums), self._accurate_means)
        error = float(self._error(found.residual.norm(dim=0)).max())
        if not found.converged and not error <= LARGEST_MEAN_ERROR:
            raise UnconvergedError(
                f"the predictive means would be wrong by up to {error:.2g} standard deviations of the noise: conjugate "
                f"gradients did not converge in {found.iterations} iterations. Raise the noise (bounds of the fit), "
                "raise linear_operator.settings.max_cg_iterations, or take a FeatureSpaceGP, exact for a few thousand "
                "clusters"
            )
        return self._root._matmul(found.solution)

    def variances(self, points: Incidence) -> Tensor:
        r"""
        Return latent variances (`n`) of points to within :class:`~gpytorch_partition.settings.variance_tolerance`.

        They are :math:`\sigma^2 \varphi^\top (M + \lambda)^{-1} \varphi` for the features :math:`\varphi = F^\top z` of
        a point, a solve for each.
        """
        blocks = progress(points.codes.split(_COLUMNS), "predictive variances")
        return torch.cat([self._values.noise * self._form(self._features(codes)) for codes in blocks])

    def deviations(self, num_samples: int, seed: int) -> Tensor:
        r"""
        Return joint samples of the cluster effects less their mean (`p x k`, float64), by a seed from 0 up.

        :math:`F (M + \lambda)^{-1} \sigma (\Phi^\top e + \sqrt\lambda e')` has their covariance, for normal e and e', a
        solve for each.
        """
        starts = progress(range(0, num_samples, _COLUMNS), "posterior samples")
        blocks = [self._drawn(min(_COLUMNS, num_samples - first), seed * _BLOCKS + first) for first in starts]
        return torch.cat(blocks, -1)

    def _drawn(self, size: int, seed: int) -> Tensor:
        among_rows = self._root._t_matmul(self._rows.normal_sums(size, seed))
        generator = solver_generator(seed, "samples", among_rows.device)
        own = torch.randn(among_rows.shape, generator=generator, dtype=torch.float64, device=among_rows.device)
        right = self._values.noise**0.5 * (among_rows + self._ratio**0.5 * own)
        return self._root._matmul(self._solve(right, self._accurate_samples(right)).solution)

    def _features(self, codes: Tensor) -> Tensor:
        one = torch.eye(len(codes), dtype=torch.float64, device=codes.device)
        return self._root._t_matmul(Incidence(codes, self._root.shape[-2]).cluster_sums(one))

    def _form(self, features: Tensor) -> Tensor:
        r"""Return :math:`\varphi^\top A^{-1} \varphi` (`n`) as :math:`2 \varphi^\top x - x^\top A x`."""
        found = self._solve(features, self._accurate_forms)
        return (found.solution * (features + found.residual)).sum(0)

    def _solve(self, right: Tensor, stop: Rule) -> CGResult:
        return conjugate_gradients(
            lambda columns: self._gram(columns) + self._ratio * columns,
            right,
            stop,
            preconditioner=self._inverse,
            max_iterations=linear_settings.max_cg_iterations.value(),
        )

    def _error(self, residual_norm: Tensor) -> Tensor:
        """Bound the root mean squared error of means at the training rows, over the noise's standard deviation."""
        return residual_norm / (4 * self._ratio * self._rows.num_rows * self._values.noise) ** 0.5

    def _accurate_means(self, state: CGState) -> Tensor:
        is_small = relative_residual(_RESIDUAL_FACTOR * prediction_residual())
        return is_small(state) & (self._error(state.residual_norm) <= MEAN_ERROR)

    def _accurate_forms(self, state: CGState) -> Tensor:
        r"""Whether :math:`\varphi^\top (M + \lambda)^{-1} \varphi` is near its lower bound, the form."""
        return state.residual_norm.square() <= self._ratio * variance_tolerance.value() * state.quadratic_form

    def _accurate_samples(self, right: Tensor) -> Rule:
        """Whether a sample's error, averaged over the training rows, is a small share of its variance."""

        def is_accurate(state: CGState) -> Tensor:
            fit = right - state.residual - self._ratio * state.solution  # M w
            variance = (state.solution * fit).sum(-2, keepdim=True)
            return state.residual_norm.square() <= 4 * self._ratio * variance_tolerance.value() * variance

        return is_accurate

    @cached_property
    def _inverse(self) -> Callable[[Tensor], Tensor] | None:
        """Invert a Nystrom approximation of M plus the ratio; None where there are too few features."""
        num_features = self._root.shape[-1]
        rank = min(preconditioner_rank.value(), num_features // _FEATURES_PER_RANK)
        if not rank:
            return None
        device = self._rows.moments().sums.device
        generator = solver_generator(probe_seed.value(), "sketch", device)
        factor = nystrom_factor(self._gram, torch.Size((num_features,)), rank, generator, torch.float64)
        ratio = torch.tensor([self._ratio], dtype=torch.float64, device=device)
        noise = ConstantDiagLinearOperator(ratio, num_features)
        return NystromPreconditioner(torch.ones_like(ratio[0]), noise, factor=factor).inverse_closure()
