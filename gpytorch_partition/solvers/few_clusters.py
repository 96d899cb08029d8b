r"""
Flat partitions with few clusters: solves and log determinants of :math:`s Z S Z^\top + \sigma^2 I` by p x p matrices.

With :math:`S = F^2` diagonal and the counts :math:`G = Z^\top Z`,

.. math::

    B = I + \tfrac{s}{\sigma^2} F G F, \qquad \log |A| = N \log \sigma^2 + \log |B|, \qquad
    A^{-1} = \tfrac{1}{\sigma^2} \left(I - \tfrac{s}{\sigma^2} Z F B^{-1} F Z^\top\right)

(Rasmussen & Williams 2006, appendix A.3). The counts are kept. A step of training the weights in S costs
:math:`O(N m + p^3)`, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import ConstantDiagLinearOperator, DiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.clusters.cache import Key
from gpytorch_partition.clusters.co_occurrence import count_co_occurrences, zero_counts
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator

_COUNTS: Key[Tensor] = Key("counts of co-occurrence")
_FEWEST_ROWS = 2  # for a cluster: with fewer, a factor of the rows' own matrix is as cheap


@dataclass(frozen=True)
class FewClusters:
    r"""The covariance :math:`A = s Z S Z^\top + \sigma^2 I` (`N x N`, S diagonal) by its clusters, in float64."""

    covariance: PartitionLinearOperator
    noise: Tensor

    @cached_property
    @torch.enable_grad()  # it is kept, and wanted first by a solve, which has no graph
    def effects(self) -> Tensor:
        r"""The standard deviations :math:`F \sqrt s / \sigma` of cluster effects (`p`), in units of the noise's."""
        variances = self.covariance.cluster_operator._diagonal().double() * self.covariance.scale / self.noise.double()
        return variances.clamp_min(torch.finfo(variances.dtype).tiny).sqrt()  # which has no derivative at 0

    @cached_property
    @torch.enable_grad()
    def factor(self) -> Tensor:
        """The Cholesky factor of B (`p x p`)."""
        inner = self.effects.unsqueeze(-1) * co_occurrences(self.covariance.left) * self.effects
        return stable_cholesky(inner + torch.eye(len(inner), dtype=inner.dtype, device=inner.device))

    @torch.no_grad()
    def solve(self, rhs: Tensor) -> Tensor:
        """Return :math:`A^{-1} V` (`N x t`), without a graph."""
        rows, values, effects = self.covariance.left, rhs.double(), self.effects.unsqueeze(-1)
        inner = torch.cholesky_solve(effects * rows.cluster_sums(values), self.factor)
        return ((values - rows.row_values(effects * inner)) / self.noise).to(rhs.dtype)

    def log_determinant(self) -> Tensor:
        r"""Return :math:`\log |A|`, with gradients."""
        noise = self.covariance.left.num_rows * self.noise.double().log()
        return (noise + 2 * self.factor.diagonal().log().sum()).to(self.covariance.dtype)


def few_clusters(covariance: LinearOperator, noise: DiagLinearOperator) -> FewClusters | None:
    """
    Return a covariance of flat partitions plus the same noise at every row by its clusters; None for others.

    S must have trained weights, and clusters be half as many as rows, and `max_cholesky_size`, at most.
    """
    if not isinstance(noise, ConstantDiagLinearOperator) or noise.dim() > 2:
        return None
    if not isinstance(covariance, PartitionLinearOperator) or not _is_of_trained_flat_partitions(covariance):
        return None
    most = min(covariance.left.num_rows // _FEWEST_ROWS, linear_settings.max_cholesky_size.value())
    is_one_matrix = covariance.is_symmetric and covariance.dim() == 2 and covariance.left_loadings is None
    if not is_one_matrix or covariance.left.num_clusters > most:
        return None
    return FewClusters(covariance, noise.diag_values.squeeze(-1))


def _is_of_trained_flat_partitions(covariance: PartitionLinearOperator) -> bool:
    inner = covariance.cluster_operator
    return inner.is_flat and inner.num_tasks == 1 and inner.requires_grad


def co_occurrences(rows: Incidence) -> Tensor:
    """Return the number of rows that each pair of clusters shares (`p x p`, float64); kept with the rows."""

    def counted() -> Tensor:
        counts = zero_counts(rows.num_clusters, rows.codes.device)
        count_co_occurrences(counts, rows.codes)
        return counts

    return rows.cache.get(_COUNTS, None, counted)
