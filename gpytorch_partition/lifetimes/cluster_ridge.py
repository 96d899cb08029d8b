r"""
Bayesian ridge regression on the clusters of flat partitions: marginal likelihood and posterior mean of the effects.

Outputscale and noise are given. With :math:`f(x) = \sum_r \theta_{\varrho_r(x)}` and independent effects of variance s
/ m, :math:`K = \tfrac sm Z Z^\top`. All follows from the regularized counts :math:`M = G + \lambda I` (`p x p`),
:math:`G = Z^\top Z, \lambda = m \sigma^2 / s` (Balog et al. 2016, section 4.2.1, with features divided by the square
root of m).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from gpytorch_partition.clusters.co_occurrence import coarsened
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.partitions.mondrian.mondrian_trees import Cells, MondrianTrees
from gpytorch_partition.progress import progress


@dataclass(frozen=True)
class Regression:
    """The numbers of the regression without the clusters; targets are less their prior mean, which may be chosen."""

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
        Return the log marginal likelihood in nats, from :math:`b^\top M^{-1} b`, :math:`\log |M|` and p.

        .. math::

            -\tfrac12 \left[\frac{y^\top y - b^\top M^{-1} b}{\sigma^2} + \log |M| - p \log \lambda
            + N \log 2 \pi \sigma^2 \right]
        """
        misfit = (self.squares - explained) / self.noise
        complexity = log_determinant - num_clusters * math.log(self.ridge)
        return -0.5 * (misfit + complexity + self.num_rows * math.log(2 * math.pi * self.noise))


@dataclass(frozen=True, eq=False)
class ClusterRidge:
    r"""The regression on p clusters, from G and :math:`b = Z^\top y`, by a Cholesky factor of M: `16 p^2` bytes."""

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
        explained = float(self.sums @ self.effects)
        return self.regression.log_marginal_likelihood(explained, self.log_determinant, self.sums.numel())

    @property
    def log_determinant(self) -> float:
        return 2 * float(self._factor.diagonal().log().sum())

    def with_regression(self, regression: Regression) -> ClusterRidge:
        """Return the regression with other values, whose squares are those of :math:`y - c` for their mean c."""
        return ClusterRidge(regression, self.counts, self.sums - regression.mean * self.counts.diagonal())

    def coarsened(self, clusters: Tensor, num_clusters: int) -> ClusterRidge:
        """Return the regression on unions of clusters (`p` numbers), at :math:`O(p^2)` for any N."""
        sums = self.sums.new_zeros(num_clusters).index_add_(0, clusters, self.sums)
        return ClusterRidge(self.regression, coarsened(self.counts, clusters, num_clusters), sums)


class Step(NamedTuple):
    """The regression after a cut, or, at time 0, before the first one."""

    time: float
    cells: Cells
    log_marginal_likelihood: float  # in nats, of all rows together
    effects: Tensor  # (p,) posterior means of the effects of the cells, by their codes


def along_cuts(terminal: ClusterRidge, cells: Cells, trees: MondrianTrees) -> Iterator[Step]:
    r"""
    Yield the regression after every single cut, in ascending order (Balog et al. 2016, section 4.2.1).

    A cut deletes a row and a column of M and appends two. Updates of :math:`M^{-1}` lose a digit every few cuts.
    Instead, cuts are taken in blocks of :math:`\sqrt C` for C cells at the terminal lifetime. Cells that no cut of a
    block splits are eliminated once. This leaves a small Schur complement on the parts into which the others are split
    by the end of the block. The cells after each of its cuts are unions of these parts, and M is linear in G: their
    Schur complement is that of the parts, summed over rows and columns. Costs :math:`O(C^{3.5})` operations in all,
    most of them in Cholesky factors, and `24 C^2` bytes.
    """
    times = torch.sort(trees.cut_times[trees.cut_times < math.inf]).values
    size = math.isqrt(len(times)) + 1
    for start in progress(range(0, max(1, len(times)), size), "following cuts"):
        block = times[start : start + size].tolist()
        before = trees.cells(float(times[start - 1]) if start else 0.0)
        after = trees.cells(block[-1] if block else 0.0)
        ridge = terminal.coarsened(cells.place_in(after), after.num_clusters)
        complement = _SchurComplement(ridge, _is_cut(before, after))
        for time in block if start else [0.0, *block]:
            now = trees.cells(time)
            yield complement.at(time, now, after.place_in(now))


def _is_cut(before: Cells, after: Cells) -> Tensor:
    """Whether each later cell (by its code) is part of an earlier cell that was cut in between."""
    place = after.place_in(before)
    return torch.bincount(place, minlength=before.num_clusters)[place] > 1


class _SchurComplement:
    """The regression on cells that cuts split; effects of the others are `alone` less `spread` times theirs."""

    def __init__(self, ridge: ClusterRidge, is_cut: Tensor) -> None:
        self.regression, counts, sums = ridge.regression, ridge.counts, ridge.sums
        self.kept, self.eliminated = is_cut.nonzero().squeeze(-1), (~is_cut).nonzero().squeeze(-1)
        among, across = counts[self.eliminated][:, self.eliminated], counts[self.eliminated][:, self.kept]
        among.diagonal().add_(self.regression.ridge)
        factor = stable_cholesky(among)
        solved = torch.cholesky_solve(torch.cat([across, sums[self.eliminated].unsqueeze(-1)], -1), factor)
        self.spread, self.alone = solved[:, :-1], solved[:, -1]
        self.counts = counts[self.kept][:, self.kept] - across.mT @ self.spread
        self.sums = sums[self.kept] - across.mT @ self.alone
        self.explained = float(sums[self.eliminated] @ self.alone)
        self.log_determinant = 2 * float(factor.diagonal().log().sum())

    def at(self, time: float, cells: Cells, place: Tensor) -> Step:
        """Return the regression at a time, given its cells and the cell of each cell at the block's end."""
        unions, union = place[self.kept].unique(return_inverse=True)
        ridge = ClusterRidge(self.regression, self.counts, self.sums).coarsened(union, len(unions))
        effects = ridge.sums.new_zeros(cells.num_clusters)
        effects[unions] = ridge.effects
        effects[place[self.eliminated]] = self.alone - self.spread @ ridge.effects[union]
        explained = self.explained + float(ridge.sums @ ridge.effects)
        log_determinant = self.log_determinant + ridge.log_determinant
        num_clusters = len(self.eliminated) + len(unions)
        value = self.regression.log_marginal_likelihood(explained, log_determinant, num_clusters)
        return Step(time, cells, value, effects)
