r"""
Linear maps of points before Mondrian trees cut them: none, one map for all trees, or one for each tree.

A Mondrian process cuts across axes. Drawn over :math:`U^\top x` instead of x, it cuts across the columns of U (O'Reilly
& Tran 2022, "Stochastic geometry to generalize the Mondrian process"), and its limiting kernel
:math:`\exp(-\lambda \lVert x - x' \rVert_1)` becomes :math:`\exp(-\lambda \lVert U^\top (x - x') \rVert_1)`.

Maps are sums over columns, elementwise in float64: the rounding of a matrix product depends on its size, but a label
must not depend on the other points of a call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import ortho_group
from torch import Tensor

from gpytorch_partition.partitions.sites import LARGEST, weighted_sum

ROTATIONS = "rotations"


class Projections(NamedTuple):
    """Hold linear maps of points around a center; without matrices, trees see the columns unchanged."""

    matrices: Tensor  # (r, D, K), or (r, 1, D) for diagonals, float64: r = 0 for none, 1 for all trees, or m
    center: Tensor  # (D,) float64, the point that is mapped to the origin

    @classmethod
    def of(
        cls, x: Tensor, projection: Tensor | str | None, num_trees: int, random: np.random.RandomState
    ) -> Projections:
        """Build maps around the center of the rows' box from a projection that :func:`check_projection` accepts."""
        if projection is None:
            return cls(x.new_empty(0, 0, 0), x.new_empty(0))
        rows = x.clamp(-LARGEST, LARGEST)
        center = rows.amin(0) / 2 + rows.amax(0) / 2
        if isinstance(projection, str):
            return cls(rotations(num_trees, x.shape[1], random).to(x.device), center)
        matrices = projection.detach().to(center, copy=True)
        if projection.dim() < 3:
            matrices = matrices.reshape(1, -1, projection.shape[-1])
        return cls(matrices.contiguous(), center)

    @property
    def differ(self) -> bool:
        return len(self.matrices) > 1

    @property
    def _is_diagonal(self) -> bool:
        return self.matrices.shape[1] != self.center.numel()

    def seen(self, x: Tensor, trees: slice) -> Tensor:
        """Return the mapped points (`n x D`): `1 x n x K` if all trees share a map, else `trees x n x K`, float64."""
        if not len(self.matrices):
            return x.to(torch.float64).unsqueeze(0)
        columns, matrices = self._centered(x), self.matrices[trees] if self.differ else self.matrices
        if self._is_diagonal:
            return columns * matrices
        return weighted_sum(columns.T.unsqueeze(-1), matrices.transpose(0, 1).unsqueeze(2))

    def walls(self, x: Tensor) -> Tensor:
        """Return bounds (`2 x K`) of mapped rows (`N x D`), around the origin if the trees' maps differ."""
        if not self.differ:
            seen = self.seen(x, slice(0, 1))[0]
            return torch.stack([seen.amin(0), seen.amax(0)])
        reach = weighted_sum(self._centered(x).abs().amax(0), self.matrices.abs().transpose(0, 1)).amax(0)
        return torch.stack([-reach, reach])

    def coordinates(self, x: Tensor, row: Tensor, dimension: Tensor, tree: Tensor) -> Tensor:
        """Return single mapped coordinates (`M`) of points, columns and trees, with the bits of :meth:`seen`."""
        if not len(self.matrices):
            return x[row, dimension].to(torch.float64)
        tree = tree if self.differ else torch.zeros_like(tree)
        if self._is_diagonal:
            return (self._clamped(x[row, dimension]) - self.center[dimension]) * self.matrices[tree, 0, dimension]
        return weighted_sum(self._centered(x[row]).T, self.matrices[tree, :, dimension].T)

    def _centered(self, x: Tensor) -> Tensor:
        return self._clamped(x) - self.center

    @staticmethod
    def _clamped(x: Tensor) -> Tensor:
        return x.to(torch.float64).clamp(-LARGEST, LARGEST)


def check_projection(projection: Tensor | str | None, num_columns: int, num_trees: int) -> None:
    if projection is None or (isinstance(projection, str) and projection == ROTATIONS):
        return
    if not torch.is_tensor(projection) or not projection.is_floating_point():
        got = projection.dtype if torch.is_tensor(projection) else repr(projection)
        raise ValueError(f"expected a projection as a floating point tensor, {ROTATIONS!r} or None, got {got}")
    shape, each = tuple(projection.shape), (num_trees, num_columns)
    if not projection.numel() or (shape != each[1:] and shape[:-1] not in (each[1:], each)):
        raise ValueError(
            f"expected a projection of the {num_columns} columns of the trees: a number for each, a matrix "
            f"({num_columns} x K) or one for every tree ({num_trees} x {num_columns} x K), got shape {shape}"
        )
    if not bool(torch.isfinite(projection).all()):
        raise ValueError("expected a finite projection, got NaN or infinity")


def rotations(number: int, num_columns: int, random: np.random.RandomState) -> Tensor:
    """Return orthogonal matrices (`number x D x D`, float64), uniform in the Haar measure."""
    matrices = ortho_group.rvs(num_columns, number, random)
    return torch.from_numpy(matrices.reshape(number, num_columns, num_columns))
