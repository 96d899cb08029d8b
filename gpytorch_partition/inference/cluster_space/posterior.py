r"""
Means, variances and samples of the effects of clusters by conjugate gradients in cluster space.

With :math:`f = \Phi w`, :math:`w \sim N(0, s I)` and :math:`\lambda = \sigma^2 / s`, the posterior of w has the mean
:math:`(M + \lambda)^{-1} \Phi^\top (y - c)` and the covariance :math:`\sigma^2 (M + \lambda)^{-1}`, in which nothing
cancels; cluster effects are :math:`u = F w`. A residual r moves f at the training rows by
:math:`\Phi (M + \lambda)^{-1} r`, of length :math:`|r| / (2 \sqrt\lambda)` at most; solves stop by this bound.

For means to within 3e-4 at N = 50,000, m = 50 and a noise of .1, fast clusters (q = 2,881) took 171 iterations without
a preconditioner, 155 with the diagonal of M, and 72 with a Nystrom approximation of rank 100. Forests (q = 29,020) took
168, 430 and 79: nested clusters are far from orthogonal. Relative residuals are ten times smaller than among the rows
for the same error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import ConstantDiagLinearOperator
from torch import Tensor

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.cluster_space.rows import Rows
from gpytorch_partition.inference.cluster_space.spectrum import space_product, space_root
from gpytorch_partition.inference.evidence.profile_likelihood import Maximum
from gpytorch_partition.linalg.conjugate_gradients import (
    CGResult,
    CGState,
    UnconvergedError,
    conjugate_gradients,
    relative_residual,
)
from gpytorch_partition.linalg.nystrom import nystrom_factor
from gpytorch_partition.linalg.random import solver_generator
from gpytorch_partition.operators.accuracy import prediction_residual
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator
from gpytorch_partition.progress import doing, progress
from gpytorch_partition.settings import preconditioner_rank, probe_seed, variance_tolerance
from gpytorch_partition.solvers.preconditioners import NystromPreconditioner

Rule = Callable[[CGState], Tensor]

_RESIDUAL_FACTOR = 0.1  # relative residuals, over those among the rows for the same error of means
_SHARE = 0.03  # of the noise's standard deviation, that means of the training rows may be off by
_LARGEST_ERROR = 0.1  # the share above which means are refused
_COLUMNS = 32  # of a solve: a call of the rows costs little more for them than for one where shards are far away
_FEATURES_PER_RANK = 4  # at least; M has no more large eigenvalues, and partitions make some of them 0
_BLOCKS = 2**20  # seeds of blocks of samples that one seed stands for


class SpacePosterior:
    r"""
    The posterior of cluster effects given rows, at fixed outputscale, noise and mean.

    Each column of a solve takes 50 to 200 products of the rows; `6 q` numbers are held for each of up to 32 columns,
    and rank times q for the preconditioner (:class:`~gpytorch_partition.settings.preconditioner_rank`).

    :param rows: The rows and their targets.
    :param cluster_operator: `p x p` S, of unit scale.
    :param values: Outputscale s, noise and mean c.
    """

    def __init__(self, rows: Rows, cluster_operator: ClusterOperator, values: Maximum) -> None:
        self._rows, self._values, self._root = rows, values, space_root(cluster_operator)
        self._gram = space_product(rows, self._root)
        self._ratio = values.noise / values.outputscale  # lambda

    @cached_property
    def mean_effects(self) -> Tensor:
        """
        The posterior means of the cluster effects (`p x 1`, float64), computed once.

        :raises UnconvergedError: If means would be off by more than a tenth of the noise's standard deviation.
        """
        moments = self._rows.moments()
        sums = moments.sums[:, :1] - (self._values.mean - moments.centers[0]) * moments.sums[:, -1:]
        with doing("solving for means"):
            found = self._solve(self._root._t_matmul(sums), self._accurate_means(_SHARE), _LARGEST_ERROR)
        return self._root._matmul(found.solution)

    def variances(self, points: Incidence) -> Tensor:
        r"""
        Return latent variances (`n`) to within :class:`~gpytorch_partition.settings.variance_tolerance`, a solve for
        each.

        They are :math:`\sigma^2 \varphi^\top (M + \lambda)^{-1} \varphi` for the features :math:`\varphi = F^\top z` of
        a point.

        :param points: `n` one-hot rows of clusters.
        """
        found = [
            self._values.noise * self._form(self._features(codes))
            for codes in progress(points.codes.split(_COLUMNS), "predictive variances")
        ]
        return torch.cat(found)

    def deviations(self, num_samples: int, seed: int) -> Tensor:
        r"""
        Return joint samples of the cluster effects less their mean (`p x k`, float64), a solve for each.

        :math:`F (M + \lambda)^{-1} \sigma (\Phi^\top e + \sqrt\lambda e')` has their covariance, for normal e and e'.

        :param num_samples: k.
        :param seed: From 0 up.
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
        r""":math:`F^\top z` (`q x n`) of points."""
        one = torch.eye(len(codes), dtype=torch.float64, device=codes.device)
        return self._root._t_matmul(Incidence(codes, self._root.shape[-2]).cluster_sums(one))

    def _form(self, features: Tensor) -> Tensor:
        r""":math:`\varphi^\top A^{-1} \varphi` (`n`) as :math:`2 \varphi^\top x - x^\top A x`, never too large."""
        found = self._solve(features, self._accurate_forms)
        return (found.solution * (features + found.residual)).sum(0)

    def _solve(self, right: Tensor, stop: Rule, largest_error: float | None = None) -> CGResult:
        r""":math:`(M + \lambda)^{-1} B`, with a warning if the rule is missed, an error above the largest one."""
        found = conjugate_gradients(
            lambda columns: self._gram(columns) + self._ratio * columns,
            right,
            stop,
            preconditioner=self._inverse,
            max_iterations=linear_settings.max_cg_iterations.value(),
        )
        if largest_error is not None and not found.converged:
            error = float(self._error(found.residual.norm(dim=0)).max())
            if not error <= largest_error:
                raise UnconvergedError(_refused(error, found.iterations))
        return found

    def _error(self, residual_norm: Tensor) -> Tensor:
        """A bound of the root mean squared error of means at the training rows, over the noise's standard deviation."""
        return residual_norm / (4 * self._ratio * self._rows.num_rows * self._values.noise) ** 0.5

    def _accurate_means(self, share: float) -> Rule:
        is_small = relative_residual(_RESIDUAL_FACTOR * prediction_residual())
        return lambda state: is_small(state) & (self._error(state.residual_norm) <= share)

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
        """The inverse of a Nystrom approximation of M plus the ratio; None where there are too few features."""
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


def _refused(error: float, num_iterations: int) -> str:
    return (
        f"the predictive means would be wrong by up to {error:.2g} standard deviations of the noise: conjugate "
        f"gradients did not converge in {num_iterations} iterations. Raise the noise (bounds of the fit), raise "
        "linear_operator.settings.max_cg_iterations, or take a FeatureSpaceGP, exact for a few thousand clusters"
    )
