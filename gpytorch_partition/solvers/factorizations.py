r"""
Exact factorizations of a covariance plus noise: by its few clusters, and of several tasks as independent ones.

**Few clusters.** Flat partitions, :math:`A = s Z S Z^\top + \sigma^2 I`, need `p x p` matrices. With :math:`S = F^2`
diagonal and the counts :math:`G = Z^\top Z`, which are kept,

.. math::

    B = I + \tfrac{s}{\sigma^2} F G F, \qquad \log |A| = N \log \sigma^2 + \log |B|, \qquad
    A^{-1} = \tfrac{1}{\sigma^2} \left(I - \tfrac{s}{\sigma^2} Z F B^{-1} F Z^\top\right)

(Rasmussen & Williams 2006, appendix A.3). A step of training the weights in S costs :math:`O(N m + p^3)`.

**Several tasks.** With generalized eigenvectors W of B and the noise :math:`\Sigma`, :math:`W^\top \Sigma W = I` and
:math:`W^\top B W = \mathrm{diag}(\lambda)`, the matrix is block diagonal between tasks:

.. math::

    (I \otimes W)^\top (K \otimes B + I \otimes \Sigma) (I \otimes W) = K \otimes \mathrm{diag}(\lambda) + I

(Rakitsch, Lippert, Borgwardt & Stegle 2013, *It is all in the noise*, NIPS). The T systems of N rows need fewer
iterations than one of N T, and noise between tasks may be ill-conditioned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import ConstantDiagLinearOperator, DiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.clusters.cache import Key
from gpytorch_partition.clusters.co_occurrence import co_occurrences
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.operators.sums_and_roots import PartitionSumLinearOperator
from gpytorch_partition.operators.tasks import RepeatedDiagLinearOperator, SingleRows, single_task

_COUNTS: Key[Tensor] = Key("counts of co-occurrence")
_FEWEST_ROWS = 2  # for a cluster: with fewer, a factor of the rows' own matrix is as cheap


@dataclass(frozen=True)
class FewClusters:
    r"""Solve with :math:`A = s Z S Z^\top + \sigma^2 I` (`N x N`, S diagonal) by its clusters, in float64."""

    covariance: PartitionLinearOperator
    noise: Tensor

    @cached_property
    @torch.enable_grad()  # it is kept, and wanted first by a solve, which has no graph
    def effects(self) -> Tensor:
        r"""Return standard deviations of cluster effects, in units of the noise's: :math:`F \sqrt s / \sigma` (`p`)."""
        variances = self.covariance.cluster_operator._diagonal().double() * self.covariance.scale / self.noise.double()
        return variances.clamp_min(torch.finfo(variances.dtype).tiny).sqrt()  # which has no derivative at 0

    @cached_property
    @torch.enable_grad()
    def factor(self) -> Tensor:
        """Return the Cholesky factor of B (`p x p`)."""
        inner = self.effects.unsqueeze(-1) * kept_co_occurrences(self.covariance.left) * self.effects
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
    """Return a covariance of few flat clusters with trained weights, plus equal noise, by its clusters; else None."""
    is_constant = isinstance(noise, ConstantDiagLinearOperator) and noise.dim() == 2
    if not is_constant or not isinstance(covariance, PartitionLinearOperator):
        return None
    inner = covariance.cluster_operator
    if not inner.is_flat or inner.num_tasks > 1 or not inner.requires_grad:
        return None
    most = min(covariance.left.num_rows // _FEWEST_ROWS, linear_settings.max_cholesky_size.value())
    is_one_matrix = covariance.is_symmetric and covariance.dim() == 2 and covariance.left_loadings is None
    if not is_one_matrix or covariance.left.num_clusters > most:
        return None
    return FewClusters(covariance, noise.diag_values.squeeze(-1))


def kept_co_occurrences(rows: Incidence) -> Tensor:
    """Return the number of rows that each pair of clusters shares (`p x p`, float64); kept with the rows."""
    return rows.cache.get(_COUNTS, None, lambda: co_occurrences(rows.codes, rows.num_clusters))


@dataclass(frozen=True)
class IndependentTasks:
    r"""Solve with :math:`A = K \otimes B + I \otimes \Sigma` (`NT x NT`) as T of :math:`\lambda_t K + I`."""

    covariance: PartitionLinearOperator
    task_covariance: Tensor
    noise: Tensor

    @cached_property
    def rotation(self) -> Tensor:
        r"""Return the matrix W (`T x T`), a constant, whose columns are the independent tasks."""
        with torch.no_grad():
            noise, tasks = self.noise.double(), self.task_covariance.double()
            whitening = torch.linalg.inv(stable_cholesky(noise))
            vectors = torch.linalg.eigh(whitening @ tasks @ whitening.mT).eigenvectors
            return (whitening.mT @ vectors).to(self.covariance.dtype)

    @cached_property
    def mixing(self) -> Tensor:
        r"""Return the matrix that maps independent tasks to tasks, :math:`W^{-\top}` (`T x T`)."""
        return self.noise.detach().to(self.rotation.dtype) @ self.rotation

    @cached_property
    @torch.enable_grad()  # it is kept, and may be wanted first by a solve, which has no graph
    def signal_variances(self) -> Tensor:
        r"""Return :math:`\lambda_t = w_t^\top B w_t` (`T`), whose derivatives hold where eigenvalues are equal too."""
        return self._forms(self.task_covariance).clamp_min(0)

    @cached_property
    @torch.enable_grad()
    def covariances(self) -> LinearOperator:
        r"""Return :math:`\lambda_t K + \nu_t I` (`T x N x N`), with gradients by :math:`\nu_t = w_t^\top\Sigma w_t`."""
        scaled = self.covariance._with(scale=self.covariance.scale * self.signal_variances)
        return scaled.add_diagonal(self._forms(self.noise).unsqueeze(-1))

    def _forms(self, matrix: Tensor) -> Tensor:
        return torch.einsum("it,ij,jt->t", self.rotation, matrix.to(self.rotation.dtype), self.rotation)

    @torch.no_grad()
    def solve(self, rhs: Tensor) -> Tensor:
        """Return :math:`A^{-1} V` (`*batch x NT x t`), without a graph."""
        columns = torch.einsum("...ntc,ts->...snc", rhs.unflatten(-2, (-1, len(self.rotation))), self.rotation)
        solutions = self.covariances.solve(columns)
        return torch.einsum("...snc,ts->...ntc", solutions, self.rotation).flatten(-3, -2)

    def log_determinant(self) -> Tensor:
        r"""Return :math:`\log |A| = N \log |\Sigma| + \sum_t \log |\lambda_t K + \nu_t I|`; the sum has gradients."""
        first = self.covariance.shape[-1] * torch.logdet(self.noise.detach())
        return first + self.covariances.inv_quad_logdet(logdet=True)[1].sum()


@torch.enable_grad()
def independent_tasks(covariance: LinearOperator, noise: DiagLinearOperator) -> IndependentTasks | None:
    r"""Return the independent tasks of :math:`K \otimes B` plus the same noise at every point; None for others."""
    terms = covariance.linear_ops if isinstance(covariance, PartitionSumLinearOperator) else [covariance]
    split = [single_task(term) if term.dim() == 2 else None for term in terms]
    found = [parts for parts in split if parts is not None]
    signals = [parts for parts in found if not isinstance(parts[0].left, SingleRows)]
    if len(found) < len(terms) or len(signals) != 1:
        return None
    own = _own_noise(noise, len(signals[0][1]))
    if own is None:
        return None
    for single, tasks in found:
        if isinstance(single.left, SingleRows):
            own = own + single.diagonal(dim1=-2, dim2=-1)[0] * tasks
    return IndependentTasks(*signals[0], own)


def _own_noise(noise: DiagLinearOperator, num_tasks: int) -> Tensor | None:
    """The diagonal noise of a point (`T x T`), if it is the same at all points by construction."""
    if isinstance(noise, ConstantDiagLinearOperator) and noise.dim() == 2:
        return noise.diag_values.expand(num_tasks).diag_embed()
    if isinstance(noise, RepeatedDiagLinearOperator) and noise.period == num_tasks:
        return noise._diag[:num_tasks].diag_embed()
    return None
