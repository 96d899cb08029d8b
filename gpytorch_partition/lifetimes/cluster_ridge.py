r"""
Bayesian ridge regression on the clusters of flat partitions: marginal likelihood and posterior mean of the effects.

Outputscale and noise are given. With :math:`f(x) = \sum_r \theta_{\varrho_r(x)}` and independent effects of variance s
/ m, :math:`K = \tfrac sm Z Z^\top`. All follows from the regularized counts :math:`M = G + \lambda I` (`p x p`),
:math:`G = Z^\top Z, \lambda = m \sigma^2 / s` (Balog et al. 2016, section 4.2.1, with features divided by the square
root of m).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gpytorch_partition.clusters.co_occurrence import coarsened


@dataclass(frozen=True)
class Regression:
    r"""
    The quantities of the regression that do not depend on the clusters.

    :param outputscale: s.
    :param noise: :math:`\sigma^2`.
    :param num_partitions: m.
    :param num_rows: N.
    :param squares: :math:`y^\top y`, of targets less their prior mean.
    :param mean: The prior mean of the targets, if it is chosen. (Default: 0.)
    """

    outputscale: float
    noise: float
    num_partitions: int
    num_rows: int
    squares: float
    mean: float = 0.0

    @property
    def ridge(self) -> float:
        r""":math:`\lambda = m \sigma^2 / s`."""
        return self.num_partitions * self.noise / self.outputscale

    def log_marginal_likelihood(self, explained: float, log_determinant: float, num_clusters: int) -> float:
        r"""
        Return the log marginal likelihood of all rows, in nats.

        .. math::

            -\tfrac12 \left[\frac{y^\top y - b^\top M^{-1} b}{\sigma^2} + \log |M| - p \log \lambda
            + N \log 2 \pi \sigma^2 \right]

        :param explained: :math:`b^\top M^{-1} b` with :math:`b = Z^\top y`.
        :param log_determinant: :math:`\log |M|`.
        :param num_clusters: p.
        """
        misfit = (self.squares - explained) / self.noise
        complexity = log_determinant - num_clusters * math.log(self.ridge)
        return -0.5 * (misfit + complexity + self.num_rows * math.log(2 * math.pi * self.noise))


@dataclass(frozen=True, eq=False)
class ClusterRidge:
    r"""
    The regression on p clusters, by one Cholesky factor of M: :math:`p^3 / 3` operations, `16 p^2` bytes.

    :param regression: The quantities that do not depend on the clusters.
    :param counts: `p x p` G (float64).
    :param sums: `p` :math:`b = Z^\top y` (float64).

    Example:
        >>> counts = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
        >>> regression = Regression(outputscale=1.0, noise=0.5, num_partitions=1, num_rows=3, squares=14.0)
        >>> ridge = ClusterRidge(regression, counts, torch.tensor([3.0, 3.0], dtype=torch.float64))
        >>> ridge.effects
        tensor([1.2000, 2.0000], dtype=torch.float64)
        >>> K = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> A = K + 0.5 * torch.eye(3)
        >>> exact = torch.distributions.MultivariateNormal(torch.zeros(3), A).log_prob(torch.tensor([1.0, 2.0, 3.0]))
        >>> abs(ridge.log_marginal_likelihood - exact.item()) < 1e-5
        True
    """

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
            raise ValueError(f"a noise of {ratio:.2g} outputscales is lost in rounding: expected a larger noise")
        return factor

    @cached_property
    def effects(self) -> Tensor:
        r"""The posterior means :math:`\theta = M^{-1} b` of the effects (`p`), zero for clusters without rows."""
        return torch.cholesky_solve(self.sums.unsqueeze(-1), self._factor).squeeze(-1)

    @property
    def log_marginal_likelihood(self) -> float:
        """The log marginal likelihood, in nats, of all rows together."""
        explained = float(self.sums @ self.effects)
        return self.regression.log_marginal_likelihood(explained, self.log_determinant, self.sums.numel())

    @property
    def log_determinant(self) -> float:
        r""":math:`\log |M|`."""
        return 2 * float(self._factor.diagonal().log().sum())

    def with_regression(self, regression: Regression) -> ClusterRidge:
        r"""
        Return the regression of the same rows with other values; :math:`b = Z^\top (y - c)` for a mean c.

        :param regression: The values, with the squares of :math:`y - c`, where y has the present prior mean 0.
        """
        return ClusterRidge(regression, self.counts, self.sums - regression.mean * self.counts.diagonal())

    def coarsened(self, clusters: Tensor, num_clusters: int) -> ClusterRidge:
        r"""
        Return the regression on unions of clusters: sums of rows and columns of G, :math:`O(p^2)` for any N.

        :param clusters: `p` numbers of the union that each cluster lies in.
        :param num_clusters: Number of unions.
        """
        sums = self.sums.new_zeros(num_clusters).index_add_(0, clusters, self.sums)
        return ClusterRidge(self.regression, coarsened(self.counts, clusters, num_clusters), sums)
