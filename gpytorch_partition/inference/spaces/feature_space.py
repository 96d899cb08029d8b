r"""
The exact Gaussian process of a partition kernel by p x p matrices in feature space, for any number of rows.

With :math:`S = F F^\top` and co-occurrence counts :math:`G = Z^\top Z`, the eigenpairs :math:`F^\top G F = V \Lambda
V^\top` suffice for evidence, means, variances and samples of :math:`K = Z S Z^\top` at every outputscale and noise.

As rows arrive (Balog et al. 2016, section 5, supplement C), the posterior is updated: the mean w of the effects and a
root R of their covariance, :math:`C = R R^\top`. New rows Z with residuals r lead to

.. math::

    w' = w + C Z^\top B^{-1} (r - Z w), \qquad C' = C - C Z^\top B^{-1} Z C, \qquad B = Z C Z^\top + \sigma^2 I,

and with :math:`B = L L^\top, X = L^{-1} Z R` the root of C' is :math:`R (I - X^\top M X)` with :math:`M = (I + (I - X
X^\top)^{1/2})^{-1}`, where :math:`I - X X^\top = \sigma^2 L^{-1} L^{-\top}` without any cancellation. (For a single row
this is Potter's square root filter.)
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.clusters.cache import Key
from gpytorch_partition.clusters.co_occurrence import co_occurrences, streamed_cluster_sums
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralMeasure, with_level
from gpytorch_partition.linalg.factors import stable_cholesky, stable_eigh, symmetric_root
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.progress import progress

logger = logging.getLogger(__name__)

_MANY_CLUSTERS = 10_000  # whose eigenvectors take two minutes
_BLOCK_COLUMNS = 64  # columns of a root whose sums over clusters are taken at once, at most
_BLOCK_ENTRIES = 2**24  # numbers (rows times columns) that these sums are, at most


class FeatureSpace:
    r"""
    Hold the p x p matrix :math:`F^\top G F`, with its eigenpairs (the nonzero ones are K's own) and Cholesky factors.

    Eigenpairs serve every outputscale and noise, at some :math:`10 p^3` operations once; a factor serves one
    outputscale and noise, at :math:`\tfrac23 p^3`. Each is computed at its first use, and kept: up to `3 p^2` numbers
    (float64).

    :param counts: `p x p` G, float64.
    :param cluster_operator: `p x p` S, positive semidefinite.
    """

    def __init__(self, counts: Tensor, cluster_operator: ClusterOperator) -> None:
        self._root = cluster_operator.square_root()  # F
        self._gram = self._root._t_matmul(self._root._t_matmul(counts).mT).mT
        self._factored: tuple[tuple[float, float], Tensor] | None = None

    @cached_property
    def _eigenpairs(self) -> tuple[Tensor, Tensor]:
        if (size := len(self._gram)) > _MANY_CLUSTERS:
            logger.warning("eigenvectors of %s clusters take minutes", f"{size:,}")
        values, vectors = stable_eigh(self._gram)
        floor = values.numel() * torch.finfo(values.dtype).eps * float(values[-1].clamp_min(0))
        return torch.where(values > floor, values, 0), self._root._matmul(vectors)

    @property
    def values(self) -> Tensor:
        r"""Return the eigenvalues :math:`\Lambda` (`p`), set to zero where they are zero up to rounding."""
        return self._eigenpairs[0]

    @property
    def basis(self) -> Tensor:
        """Return the eigenvectors as effects of the clusters, F V (`p x p`)."""
        return self._eigenpairs[1]

    @property
    def is_decomposed(self) -> bool:
        return "_eigenpairs" in self.__dict__

    def has_root(self, outputscale: float, noise: float) -> bool:
        """Return whether :meth:`covariance_root` is computed already, or takes only a scaling of eigenvectors."""
        return self.is_decomposed or (self._factored is not None and self._factored[0] == (outputscale, noise))

    def measure(self, sums: Tensor, squares: Tensor) -> SpectralMeasure:
        r"""Return the exact spectral measure; sums are :math:`Z^\top [Y, 1]`, squares :math:`[Y, 1]^\top [Y, 1]`."""
        is_positive = self.values > 0
        positive = self.values[is_positive]
        inside = (self.basis[:, is_positive].mT @ sums) / positive.sqrt().unsqueeze(-1)
        # The part of the targets outside the span of the features belongs to the eigenvalue 0.
        outside = symmetric_root(squares - inside.mT @ inside).mT
        num_rows = round(float(squares[-1, -1]))
        nodes = torch.cat([positive, positive.new_zeros(len(outside))])
        trace_nodes = torch.cat([positive, positive.new_zeros(1)])
        trace_weights = torch.cat([torch.ones_like(positive), positive.new_tensor([num_rows - len(positive)])])
        coefficients = torch.cat([inside, outside])
        return SpectralMeasure.of((nodes, coefficients), (trace_nodes[None], trace_weights[None]), num_rows)

    def mean_weights(self, sums: Tensor, outputscale: float, noise: float) -> Tensor:
        r"""Return posterior means of effects, :math:`R R^\top Z^\top r / \sigma^2` (`p x t`), for residuals r."""
        root = self.covariance_root(outputscale, noise)
        return root @ (root.mT @ sums) / noise

    def covariance_root(self, outputscale: float, noise: float) -> Tensor:
        r"""
        Return a root (`p x p`) of the posterior covariance of the cluster effects; variances are sums of squares.

        With computed eigenpairs it is :math:`F V (s \sigma^2 / (s \Lambda + \sigma^2))^{1/2}`. Otherwise it is
        :math:`\sqrt s F L^{-\top}` with :math:`L L^\top = I + \tfrac{s}{\sigma^2} F^\top G F`, unless the noise is too
        small for a Cholesky factorization in float64.
        """
        if not self.has_root(outputscale, noise) and (root := self._factored_root(outputscale, noise)) is not None:
            self._factored = (outputscale, noise), root
        if self._factored is not None and self._factored[0] == (outputscale, noise):
            return self._factored[1]
        return self.basis * (outputscale * noise / (outputscale * self.values + noise)).sqrt()

    def _factored_root(self, outputscale: float, noise: float) -> Tensor | None:
        inner = self._gram * (outputscale / noise)
        inner.diagonal().add_(1)
        inner, failed = torch.linalg.cholesky_ex(inner)
        if failed:
            return None
        scaled = torch.eye(len(inner), dtype=inner.dtype, device=inner.device).mul_(outputscale**0.5)
        return self._root._matmul(torch.linalg.solve_triangular(inner, scaled, upper=False).mT)


def summed_variances(rows: Incidence, root: Tensor) -> Tensor:
    r"""Return the variances :math:`|z_i^\top R|^2` (`N`) of sums of effects with a root R (`p x q`), in O(N m q)."""
    variances = root.new_zeros(rows.num_rows)
    size = max(1, min(_BLOCK_COLUMNS, _BLOCK_ENTRIES // max(1, rows.num_rows)))
    for columns in progress(root.split(size, -1), "predictive variances"):
        variances += rows.row_values(columns.contiguous()).square().sum(-1)
    return variances


_FEATURE_SPACE: Key[FeatureSpace] = Key("feature space")


def cached_feature_space(rows: Incidence) -> FeatureSpace | None:
    """Return the feature space last built from these rows, or None."""
    return rows.cache.peek(_FEATURE_SPACE)


def feature_space_of(covariance: PartitionLinearOperator) -> FeatureSpace:
    """Return the feature space of a covariance without batch dimensions and loadings; it is kept with the rows."""
    unit, rows = covariance.without_scale(), covariance.left

    def compute() -> FeatureSpace:
        return FeatureSpace(co_occurrences(rows.codes, rows.num_clusters), covariance.cluster_operator)

    return rows.cache.get(_FEATURE_SPACE, unit, compute, unit.cluster_operator.structure)


def measure_of(covariance: PartitionLinearOperator, targets: Tensor) -> SpectralMeasure:
    """
    Return the exact spectral measure of targets (`N x t`) and a covariance of unit scale (`N x N`), from its clusters.

    Costs :math:`O(N m^2 + p^3)` for p clusters. Targets are centred and scaled meanwhile, so that rounding stays small.
    """
    targets = targets.detach().double()
    centres = targets.mean(0)
    sizes = (targets - centres).norm(dim=0)
    sizes = torch.where(sizes > 0, sizes, 1)
    columns = with_level((targets - centres) / sizes)
    sums = streamed_cluster_sums(covariance.left.codes, columns, covariance.left.num_clusters)
    measure = feature_space_of(covariance).measure(sums, columns.mT @ columns)
    scaled, ones = measure.coefficients[:, :-1], measure.coefficients[:, -1:]
    original = scaled * sizes.cpu().numpy() + ones * centres.cpu().numpy()
    return replace(measure, coefficients=np.concatenate([original, ones], -1))


class EffectsPosterior(NamedTuple):
    """Hold the posterior of the effects of p clusters."""

    mean: Tensor  # p x 1, w
    root: Tensor  # p x q, R

    def extended(self, places: Tensor, num_clusters: int, deviation: float) -> EffectsPosterior:
        """Return the posterior with new clusters of a prior deviation; `places` (`p`) are the codes of the old ones."""
        is_new = torch.ones(num_clusters, dtype=torch.bool).index_fill_(0, places, False).nonzero().squeeze(-1)
        if not len(is_new):
            return EffectsPosterior(*(torch.empty_like(part).index_copy_(0, places, part) for part in self))
        size = self.root.shape[1]
        root = self.root.new_zeros(num_clusters, size + len(is_new))
        root[places, :size] = self.root
        root[is_new, size + torch.arange(len(is_new))] = deviation
        return EffectsPosterior(self.mean.new_zeros(num_clusters, 1).index_copy_(0, places, self.mean), root)

    def updated(self, rows: Incidence, residuals: Tensor, noise: float) -> EffectsPosterior:
        r"""Return the posterior after n more rows Z (`n x p`) with residuals (`n x 1`), in :math:`O(n p q + n^3)`."""
        seen = rows.row_values(self.root)  # Z R
        innovation = seen @ seen.mT  # B
        innovation.diagonal().add_(noise)
        factor = stable_cholesky(innovation)  # L
        spread = torch.linalg.solve_triangular(factor, seen, upper=False)  # X
        whitened = torch.linalg.solve_triangular(factor, residuals - rows.row_values(self.mean), upper=False)
        weighted = self.root @ spread.mT  # C Z^T L^-T
        inverse = torch.linalg.solve_triangular(factor, torch.eye(len(factor), dtype=factor.dtype), upper=False)
        values, vectors = stable_eigh(noise * inverse @ inverse.mT)  # of I - X X^T
        inner = vectors / (1 + values.clamp_min(0).sqrt()) @ vectors.mT  # M
        return EffectsPosterior(self.mean + weighted @ whitened, self.root - weighted @ (inner @ spread))
