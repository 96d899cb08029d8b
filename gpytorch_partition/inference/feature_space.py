r"""
The exact Gaussian process of a partition kernel in cluster space, whatever the number of rows.

:math:`K = Z S Z^\top` has rank p at most, the number of clusters. With :math:`S = F F^\top`, the eigenpairs
:math:`F^\top G F = V \Lambda V^\top` of co-occurrence counts :math:`G = Z^\top Z` give everything: evidence, means,
variances and samples for every outputscale and noise. The rows themselves are needed for nothing but counting.
"""

from __future__ import annotations

import torch
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.inference.spectral_likelihood import SpectralMeasure, with_ones
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.operators.remembered import remembered
from gpytorch_partition.partitions.co_occurrence import cluster_sums, count_co_occurrences


class FeatureSpace:
    r"""
    The eigenpairs of :math:`F^\top G F`: the nonzero ones are K's own.

    :math:`O(p^3)` time, once; holds `p^2` numbers (float64), four times that while it is built.

    :param counts: `p x p` G, float64.
    :param cluster_operator: `p x p` S, positive semidefinite.
    """

    def __init__(self, counts: Tensor, cluster_operator: LinearOperator) -> None:
        root = _root(cluster_operator)
        gram = counts * root * root.mT if root.shape[1] == 1 else root.mT @ counts @ root
        values, vectors = torch.linalg.eigh(gram)
        floor = values.numel() * torch.finfo(values.dtype).eps * float(values[-1].clamp_min(0))
        self.values = torch.where(values > floor, values, 0)  # Lambda
        self.basis = root * vectors if root.shape[1] == 1 else root @ vectors  # F V

    def measure(self, sums: Tensor, squares: Tensor) -> SpectralMeasure:
        r"""
        The exact spectral measure of targets, for the marginal likelihood.

        :param sums: `p x (t + 1)` :math:`Z^\top [Y, 1]`.
        :param squares: `(t + 1) x (t + 1)` :math:`[Y, 1]^\top [Y, 1]`.
        """
        found = self.values > 0
        seen = (self.basis[:, found].mT @ sums) / self.values[found].sqrt().unsqueeze(-1)
        # What lies outside the span of the features belongs to the eigenvalue 0.
        values, vectors = torch.linalg.eigh(squares - seen.mT @ seen)
        rest = (vectors * values.clamp_min(0).sqrt()).mT
        num_rows, num_found = round(float(squares[-1, -1])), int(found.sum())
        nodes = torch.cat([self.values[found], self.values.new_zeros(len(rest))])
        trace_nodes = torch.cat([self.values[found], self.values.new_zeros(1)])
        trace_weights = torch.cat([torch.ones_like(self.values[found]), self.values.new_tensor([num_rows - num_found])])
        return SpectralMeasure(
            nodes.cpu().numpy(),
            torch.cat([seen, rest]).cpu().numpy(),
            trace_nodes[None].cpu().numpy(),
            trace_weights[None].cpu().numpy(),
            num_rows,
        )

    def mean_weights(self, sums: Tensor, outputscale: float, noise: float) -> Tensor:
        r"""
        The posterior mean of the cluster effects, :math:`F V \frac{s}{s \Lambda + \sigma^2} V^\top F^\top Z^\top r`
        (`p x t`): a point's mean is the sum over its clusters.

        :param sums: `p x t` :math:`Z^\top r` of residuals r.
        """
        shrunk = outputscale / (outputscale * self.values + noise)
        return self.basis @ (shrunk.unsqueeze(-1) * (self.basis.mT @ sums))

    def covariance_root(self, outputscale: float, noise: float) -> Tensor:
        r"""
        A root (`p x p`) of the posterior covariance of the cluster effects, :math:`F V \frac{s \sigma^2}{s \Lambda +
        \sigma^2} V^\top F^\top`: sums of positive terms, no digits are lost.
        """
        return self.basis * (outputscale * noise / (outputscale * self.values + noise)).sqrt()


def feature_space_of(covariance: PartitionLinearOperator) -> FeatureSpace:
    """
    The feature space of the rows of a square covariance, its scale apart; remembered with the rows.

    :param covariance: Without batch dimensions and loadings.
    """
    unit, codes = covariance.without_scale(), covariance.left.codes

    def compute() -> FeatureSpace:
        size = covariance.left.num_clusters
        counts = torch.zeros(size, size, dtype=torch.float64, device=codes.device)
        count_co_occurrences(counts, codes)
        return FeatureSpace(counts, covariance.cluster_operator)

    return remembered(covariance.left.memo, "feature_space", unit, compute)


def measure_of(covariance: PartitionLinearOperator, targets: Tensor) -> SpectralMeasure:
    """
    The exact spectral measure of a covariance of unit scale and of targets.

    :param covariance: `N x N`.
    :param targets: `N x t`.
    """
    columns = with_ones(targets)
    sums = cluster_sums(covariance.left.codes, columns, covariance.left.num_clusters)
    return feature_space_of(covariance).measure(sums, columns.mT @ columns)


def _root(cluster_operator: LinearOperator) -> Tensor:
    """F with S = F F^T: a column of square roots if S is diagonal, a triangle if S is regular, or eigenvectors."""
    if isinstance(cluster_operator, DiagLinearOperator):
        return cluster_operator._diagonal().double().sqrt().unsqueeze(-1)
    dense = cluster_operator.to_dense().double()
    triangle, failed = torch.linalg.cholesky_ex(dense)
    if not failed:
        return triangle
    values, vectors = torch.linalg.eigh(dense)
    return vectors * values.clamp_min(0).sqrt()
