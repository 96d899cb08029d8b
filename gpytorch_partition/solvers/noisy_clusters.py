r"""
A covariance plus noise :math:`A = s Z S Z^\top + \sigma^2 I` in the span of its clusters, exactly.

With the counts :math:`G = Z^\top Z = U \Gamma U^\top` (rank r) and :math:`R = U \Gamma^{1/2}`, the columns of
:math:`W = Z U \Gamma^{-1/2}` are orthonormal and :math:`Z = W R^\top`, so that

.. math::

    A = W B W^\top + \sigma^2 (I - W W^\top), \qquad B = s R^\top S R + \sigma^2 I.

B (`r x r`) is as well conditioned as A itself. It gives the log determinant, solves, traces and the diagonal of the
inverse, which leave-one-out predictions need (Rasmussen & Williams 2006, section 5.4.2), with gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from linear_operator.operators import ConstantDiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.clusters.cache import Key
from gpytorch_partition.clusters.co_occurrence import co_occurrences, streamed_cluster_sums
from gpytorch_partition.clusters.incidence import Incidence, LinearProduct, same_codes
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.solvers.factorizations import kept_co_occurrences
from gpytorch_partition.solvers.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator

_MOST_CLUSTERS = 5_000  # whose eigenvectors take half a minute on one core, and 200 MB
_ROUNDING = 1e-10  # share of a row outside the span of the clusters that is rounding


@dataclass(frozen=True, eq=False)
class ClusterSpan:
    r"""Hold the span of N rows: an orthonormal basis :math:`W = Z V` with :math:`Z = W R^\top` (R and V: `p x r`)."""

    rows: Incidence
    root: Tensor
    basis: Tensor

    @classmethod
    def of(cls, rows: Incidence) -> ClusterSpan:
        """Return the span of some rows, kept with them: O(N m^2 + p^3) once."""
        return rows.cache.get(_SPAN, None, lambda: cls.computed(rows))

    @classmethod
    def computed(cls, rows: Incidence) -> ClusterSpan:
        values, vectors = torch.linalg.eigh(kept_co_occurrences(rows))
        is_positive = values > len(values) * torch.finfo(values.dtype).eps * values[-1]
        lengths = values[is_positive].sqrt()
        return cls(rows, vectors[:, is_positive] * lengths, vectors[:, is_positive] / lengths)

    @property
    def rank(self) -> int:
        return self.root.shape[1]

    def inside(self, values: Tensor) -> Tensor:
        r"""Return the coordinates :math:`W^\top v` (`r x t`) of values of rows (`N x t`)."""
        return self.basis.mT @ LinearProduct.apply(self.rows, _streamed_sums, Incidence.row_values, values)

    def values(self, coordinates: Tensor) -> Tensor:
        """Return the values of rows, W c (`N x t`), from coordinates (`r x t`)."""
        return self.rows.row_values(self.basis @ coordinates)

    def forms(self, matrix: Tensor) -> Tensor:
        r"""Return :math:`w_i^\top M w_i` for each row i of W (`N`) and a symmetric M (`r x r`)."""
        return _RowForms.apply(self.basis @ matrix @ self.basis.mT, self.rows)

    @cached_property
    def shares_outside(self) -> Tensor:
        """Return the share of each row that the span misses, :math:`1 - |w_i|^2` (`N`)."""
        with torch.no_grad():
            outside = 1 - self.forms(torch.eye(self.rank, dtype=self.root.dtype, device=self.root.device))
        return torch.where(outside > _ROUNDING, outside, 0)


_SPAN: Key[ClusterSpan] = Key("span of the clusters")


@dataclass(frozen=True, eq=False)
class NoisyClusters:
    r"""Solve with :math:`A = s Z S Z^\top + \sigma^2 I` (`N x N`, float64), held by its signal :math:`s R^\top S R`."""

    span: ClusterSpan
    signal: Tensor
    noise: Tensor

    @property
    def _num_outside(self) -> int:
        return self.span.rows.num_rows - self.span.rank

    @cached_property
    def inner(self) -> Tensor:
        """Return B (`r x r`)."""
        return self.signal + self.noise * torch.eye(len(self.signal), dtype=torch.float64, device=self.signal.device)

    @cached_property
    def _factor(self) -> Tensor:
        return stable_cholesky(self.inner)

    def log_determinant(self) -> Tensor:
        r"""Return :math:`\log |A|`."""
        return self._num_outside * self.noise.log() + 2 * self._factor.diagonal().log().sum()

    def solve(self, rhs: Tensor) -> Tensor:
        """Return :math:`A^{-1} V` (`N x t`)."""
        inside = self.span.inside(rhs.double())
        outside = rhs.double() - self.span.values(inside)
        return outside / self.noise + self.span.values(torch.cholesky_solve(inside, self._factor))

    def inverse_diagonal(self) -> Tensor:
        r"""Return the diagonal of :math:`A^{-1}` (`N`), one over the variances of leave-one-out predictions."""
        return self.span.shares_outside / self.noise + self.span.forms(torch.cholesky_inverse(self._factor))

    def trace_of_solve(self, other: NoisyClusters) -> Tensor:
        r"""Return :math:`\mathrm{tr}(A^{-1} A')` for another covariance A' in the same span."""
        inside = torch.cholesky_solve(other.inner, self._factor).diagonal().sum()
        return inside + self._num_outside * other.noise / self.noise


def noisy_clusters(*noisy: LinearOperator) -> list[NoisyClusters] | None:
    """Return covariances of one kernel of few clusters plus equal noise in one span of rows; None for others."""
    parts = [_parts(each) for each in noisy]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    all_rows: list[Incidence] = []
    for covariance, _ in known:
        if not any(same_codes(covariance.left, rows) for rows in all_rows):
            all_rows.append(covariance.left)
    sizes = [rows.num_clusters for rows in all_rows]
    if sum(sizes) > min(_MOST_CLUSTERS, all_rows[0].num_rows - 1):
        return None
    span = ClusterSpan.of(all_rows[0]) if len(all_rows) == 1 else ClusterSpan.computed(_joint(all_rows))
    roots = span.root.split(sizes)
    result = []
    for covariance, noise in known:
        (place,) = (place for place, rows in enumerate(all_rows) if same_codes(covariance.left, rows))
        root = roots[place].contiguous()
        signal = covariance.scale * (root.mT @ covariance.cluster_operator.matmul(root))
        result.append(NoisyClusters(span, 0.5 * (signal + signal.mT), noise))
    return result


def _parts(noisy: LinearOperator) -> tuple[PartitionLinearOperator, Tensor] | None:
    """The covariance and the noise, in float64; None for other kinds."""
    if not isinstance(noisy, PartitionAddedDiagLinearOperator) or noisy.dim() > 2:
        return None
    covariance, noise = noisy._linear_op.evaluate_kernel(), noisy._diag_tensor
    if not isinstance(covariance, PartitionLinearOperator) or not isinstance(noise, ConstantDiagLinearOperator):
        return None
    is_plain = covariance.is_symmetric and covariance.left_loadings is None and not covariance.left.batch_shape
    if not is_plain or covariance.cluster_operator.num_tasks > 1:
        return None
    return covariance.to(dtype=torch.float64), noise.diag_values.squeeze(-1).double()


def _joint(all_rows: list[Incidence]) -> Incidence:
    codes, start = [], 0
    for rows in all_rows:
        codes.append(rows.codes.long() + start)
        start += rows.num_clusters
    return Incidence(torch.cat(codes, -1), start)


def _streamed_sums(rows: Incidence, values: Tensor) -> Tensor:
    return streamed_cluster_sums(rows.codes, values, rows.num_clusters)


class _RowForms(torch.autograd.Function):
    r""":math:`z_i^\top Q z_i` of every row (`N`) for a symmetric Q (`p x p`), by the pairs of its clusters."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, rows: Incidence) -> Tensor:
        ctx.rows = rows
        columns = rows.codes.long().mT.contiguous()
        forms = matrix.diagonal()[columns].sum(0)
        for number, first in enumerate(columns):
            for second in columns[number + 1 :]:
                forms += 2 * matrix[first, second]
        return forms

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return co_occurrences(ctx.rows.codes, ctx.rows.num_clusters, gradient.contiguous()), None
