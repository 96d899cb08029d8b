r"""
Online updates of the exact posterior of cluster effects as rows arrive (Balog et al. 2016, section 5, supplement C).

The paper keeps the inverse, or a Cholesky factor, of the regularized counts. This module keeps the posterior: the mean
w of the effects and a root R of their covariance, :math:`C = R R^\top`. New rows Z with residuals r lead to

.. math::

    w' = w + C Z^\top B^{-1} (r - Z w), \qquad C' = C - C Z^\top B^{-1} Z C, \qquad B = Z C Z^\top + \sigma^2 I,

and with :math:`B = L L^\top, X = L^{-1} Z R` the root of C' is :math:`R (I - X^\top M X)` with
:math:`M = (I + (I - X X^\top)^{1/2})^{-1}`, where :math:`I - X X^\top = \sigma^2 L^{-1} L^{-\top}` without any
cancellation. (For a single row this is Potter's square root filter.)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.linalg.factors import stable_cholesky, stable_eigh


class EffectsPosterior(NamedTuple):
    r"""
    The posterior of the effects of p clusters.

    :param mean: `p x 1` w.
    :param root: `p x q` R.

    Example:
        >>> prior = EffectsPosterior(torch.zeros(2, 1, dtype=torch.float64), torch.eye(2, dtype=torch.float64))
        >>> rows = Incidence(torch.tensor([[0], [0]]), num_clusters=2)
        >>> posterior = prior.updated(rows, torch.tensor([[1.0], [2.0]], dtype=torch.float64), noise=1.0)
        >>> posterior.mean.T, (posterior.root @ posterior.root.T).round(decimals=4)
        (tensor([[1., 0.]], dtype=torch.float64), tensor([[0.3333, 0.0000],
                [0.0000, 1.0000]], dtype=torch.float64))
    """

    mean: Tensor
    root: Tensor

    def extended(self, places: Tensor, num_clusters: int, deviation: float) -> EffectsPosterior:
        """
        Return the posterior with clusters without rows added, of zero mean and the prior deviation.

        :param places: `p` new codes of the present clusters.
        :param num_clusters: Number of clusters, new ones included.
        :param deviation: The prior standard deviation of an effect.
        """
        is_new = torch.ones(num_clusters, dtype=torch.bool).index_fill_(0, places, False).nonzero().squeeze(-1)
        if not len(is_new):
            return EffectsPosterior(*(torch.empty_like(part).index_copy_(0, places, part) for part in self))
        size = self.root.shape[1]
        root = self.root.new_zeros(num_clusters, size + len(is_new))
        root[places, :size] = self.root
        root[is_new, size + torch.arange(len(is_new))] = deviation
        return EffectsPosterior(self.mean.new_zeros(num_clusters, 1).index_copy_(0, places, self.mean), root)

    def updated(self, rows: Incidence, residuals: Tensor, noise: float) -> EffectsPosterior:
        r"""
        Return the posterior after n more rows, in :math:`O(n p q + n^3)`.

        :param rows: The rows' clusters, Z (`n x p`).
        :param residuals: `n x 1` targets less the constant mean.
        :param noise: :math:`\sigma^2`.
        """
        seen = rows.row_values(self.root)  # Z R
        innovation = seen @ seen.mT  # B
        innovation.diagonal().add_(noise)
        factor = stable_cholesky(innovation)  # L
        spread = torch.linalg.solve_triangular(factor, seen, upper=False)  # X
        whitened = torch.linalg.solve_triangular(factor, residuals - rows.row_values(self.mean), upper=False)
        weighted = self.root @ spread.mT  # C Z^T L^-T
        root = self.root - weighted @ (_inner(factor, noise) @ spread)
        return EffectsPosterior(self.mean + weighted @ whitened, root)


def _inner(factor: Tensor, noise: float) -> Tensor:
    r"""M, from the eigenvectors of :math:`I - X X^\top = \sigma^2 L^{-1} L^{-\top}`."""
    inverse = torch.linalg.solve_triangular(factor, torch.eye(len(factor), dtype=factor.dtype), upper=False)
    values, vectors = stable_eigh(noise * inverse @ inverse.mT)
    return vectors / (1 + values.clamp_min(0).sqrt()) @ vectors.mT
