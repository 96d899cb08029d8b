"""Training rows as seen by solvers in cluster space, on one machine or in shards on many, whose products add up."""

from __future__ import annotations

from functools import cached_property, partial
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from gpytorch_partition.clusters.co_occurrence import streamed_cluster_sums
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.evidence.spectral_likelihood import with_level
from gpytorch_partition.linalg.random import solver_generator


class Moments(NamedTuple):
    """Hold sums (float64) of targets less reference values near their means, over each cluster and over all rows."""

    num_rows: int  # N
    sums: Tensor  # p x (t + 1), Z^T [Y - c, 1]
    squares: Tensor  # (t + 1) x (t + 1), [Y - c, 1]^T [Y - c, 1]
    centers: Tensor  # (t,) c

    def moved(self, centers: Tensor) -> Moments:
        """Return the moments of the same targets with other reference values (`t`), in :math:`O(p t)`."""
        shift = torch.eye(len(self.squares), dtype=self.squares.dtype, device=self.squares.device)
        shift[-1, :-1] = self.centers - centers
        return Moments(self.num_rows, self.sums @ shift, shift.mT @ self.squares @ shift, centers)

    def merged(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows, with the same clusters, and the reference values of the first."""
        centers = self.centers if self.num_rows else other.centers
        one, two = self.moved(centers), other.moved(centers)
        return Moments(self.num_rows + other.num_rows, one.sums + two.sums, one.squares + two.squares, centers)


@runtime_checkable
class Rows(Protocol):
    r"""
    A protocol of training rows, wherever they are, for solvers in cluster space.

    An implementation returns the same bits for the same call, whatever else runs: sums over shards are taken in a fixed
    order (a tree of additions over the numbers of the shards). It keeps no state between products. :class:`LocalRows`
    implements it for rows in memory, and for a shard.

    A fit asks for 20 to 300 products of a few columns, a prediction for some hundred products of 1 to some dozen.
    """

    @property
    def num_rows(self) -> int:
        """Return the number N of rows, 1 or more."""

    @property
    def num_clusters(self) -> int:
        """Return the number p of clusters: the columns of Z, and the rows of S."""

    def gram(self, effects: Tensor) -> Tensor:
        r"""
        Return :math:`Z^\top (Z C)`: the effects of a row's clusters are summed, and these sums over each cluster's
        rows.

        :param effects: `p x t` C, float64, which is not changed.
        :return: `p x t` float64, a new tensor.
        """

    def moments(self) -> Moments:
        """Return the sums of the targets, computed at the first call and kept."""

    def normal_sums(self, num_columns: int, seed: int) -> Tensor:
        r"""
        Return :math:`Z^\top E` (`p x k`, float64) for independent standard normal E (`N x k`); it is seldom called.

        The same seed, from 0 up, gives the same numbers. A shard's generator is seeded by this seed and the shard's
        number together, so shards are independent of each other.
        """


class LocalRows:
    """
    Hold training rows in memory: a product with t columns costs :math:`O(N m t)` and holds `N x t` numbers meanwhile.

    :param incidence: `N x p` Z, without batch dimensions; a shard may have no rows.
    :param targets: `N x t` finite targets Y; times `level` if that is given.
    :param level: `N` square roots of weights, by which Z and the column of ones are multiplied. (Default: ones.)
    """

    def __init__(self, incidence: Incidence, targets: Tensor, level: Tensor | None = None) -> None:
        self.incidence, self.targets = incidence, targets.detach().double()
        self.num_rows, self.num_clusters = incidence.num_rows, incidence.num_clusters
        self.level = None if level is None else level.detach().double().unsqueeze(-1)

    def gram(self, effects: Tensor) -> Tensor:
        values = self.incidence.row_values(effects)
        return self.incidence.cluster_sums(values if self.level is None else values * self.level.square())

    def moments(self) -> Moments:
        return self._moments

    def normal_sums(self, num_columns: int, seed: int) -> Tensor:
        generator, shape = solver_generator(seed, "rows", self.targets.device), (self.num_rows, 1)
        level = 1.0 if self.level is None else self.level
        normal = partial(torch.randn, shape, generator=generator, dtype=torch.float64, device=generator.device)
        return torch.cat([self.incidence.cluster_sums(level * normal()) for _ in range(num_columns)], -1)

    def __sizeof__(self) -> int:
        """Return the bytes of codes and targets: engines see that moving rows costs more than moving effects."""
        return object.__sizeof__(self) + self.incidence.codes.nbytes + self.targets.nbytes

    @cached_property
    def _moments(self) -> Moments:
        level = torch.ones_like(self.targets[:, :1]) if self.level is None else self.level
        centers = (level.mT @ self.targets).squeeze(0) / level.square().sum().clamp_min(torch.finfo(level.dtype).tiny)
        columns = with_level(self.targets - level * centers, level.squeeze(-1))
        weighted = columns if self.level is None else columns * self.level
        sums = streamed_cluster_sums(self.incidence.codes, weighted, self.num_clusters)
        return Moments(self.num_rows, sums, columns.mT @ columns, centers)
