"""Operators S made of others: a block for each kernel of a mixture, and a covariance of tasks for each cluster."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from linear_operator.operators import LinearOperator
from scipy.sparse import block_diag, csr_matrix
from torch import Tensor

from gpytorch_partition.linalg.factors import symmetric_root
from gpytorch_partition.operators.cluster_operators.cluster_operator import (
    ClusterOperator,
    FlatLinearOperator,
    as_columns,
    of_columns,
)


class SideBySideLinearOperator(ClusterOperator):
    r"""
    Multiply by a block-diagonal covariance :math:`S = \mathrm{diag}(w_1 S_1, \ldots, w_k S_k)` of blocks of any sizes.

    :class:`~gpytorch_partition.PartitionMixtureKernel` uses it. Construct it yourself for clusters of several kinds.

    :param weights: `k` nonnegative weights w.
    :param blocks: `p_b x q_b` operators :math:`S_b`; those of a root may be rectangular.

    Example:
        >>> blocks = [FlatLinearOperator(torch.tensor(w), num_clusters=len(w)) for w in ([1.0, 2.0], [3.0])]
        >>> SideBySideLinearOperator(torch.tensor([0.5, 2.0]), *blocks).to_dense()
        tensor([[0.5000, 0.0000, 0.0000],
                [0.0000, 1.0000, 0.0000],
                [0.0000, 0.0000, 6.0000]])
    """

    def __init__(self, weights: Tensor, *blocks: LinearOperator) -> None:
        super().__init__(weights, *blocks)
        self.weights, self.blocks = weights, blocks

    def root(self) -> LinearOperator:
        return SideBySideLinearOperator(self.weights.sqrt(), *(block.root() for block in self.blocks))

    def root_rows(self, clusters: Tensor) -> csr_matrix:
        ends = torch.tensor([*accumulate(self._heights)], device=clusters.device)
        parts = clusters.split(torch.searchsorted(clusters, ends).diff(prepend=ends.new_zeros(1)).tolist())
        starts, weights = accumulate(self._heights, initial=0), self.weights.detach().double().sqrt().tolist()
        pieces = zip(weights, self.blocks, parts, starts)
        rows = [weight * block.root_rows(part - start) for weight, block, part, start in pieces]
        return block_diag(rows, format="csr")

    @property
    def structure(self) -> tuple[Any, ...]:
        return (type(self), *(block.structure for block in self.blocks))

    @property
    def independent_clusters(self) -> Tensor:
        return torch.cat([block.independent_clusters for block in self.blocks])

    @property
    def num_nodes(self) -> int:
        return sum(block.num_nodes for block in self.blocks)

    def _size(self) -> torch.Size:
        return torch.Size((sum(self._heights), sum(self._widths)))

    @property
    def _heights(self) -> list[int]:
        return [block.shape[-2] for block in self.blocks]

    @property
    def _widths(self) -> list[int]:
        return [block.shape[-1] for block in self.blocks]

    def _transpose_nonbatch(self) -> LinearOperator:
        blocks = [block._transpose_nonbatch() for block in self.blocks]
        is_own = all(new is old for new, old in zip(blocks, self.blocks))
        return self if is_own else SideBySideLinearOperator(self.weights, *blocks)

    @of_columns
    def _matmul(self, rhs: Tensor) -> Tensor:
        parts = zip(self.weights, self.blocks, rhs.split(self._widths, -2))
        return torch.cat([weight * block._matmul(part) for weight, block, part in parts], -2)

    @of_columns
    def _t_matmul(self, rhs: Tensor) -> Tensor:
        parts = zip(self.weights, self.blocks, rhs.split(self._heights, -2))
        return torch.cat([weight * block._t_matmul(part) for weight, block, part in parts], -2)

    def _diagonal(self) -> Tensor:
        return torch.cat([weight * block._diagonal() for weight, block in zip(self.weights, self.blocks)])

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        rows, columns = torch.broadcast_tensors(row_index.long(), col_index.long())
        entries = torch.zeros(rows.shape, dtype=self.dtype, device=self.device)
        starts = zip(accumulate(self._heights, initial=0), accumulate(self._widths, initial=0))
        for weight, block, (top, left) in zip(self.weights, self.blocks, starts):
            below, right = rows - top, columns - left
            height, width = block.shape
            inside = (below >= 0) & (below < height) & (right >= 0) & (right < width)
            entries = entries.index_put((inside,), weight * block._get_indices(below[inside], right[inside]))
        return entries

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        lefts, rights = left_vecs.split(self._heights, -2), right_vecs.split(self._widths, -2)
        gradients: list[Tensor | None] = []
        for weight, block, left, right in zip(self.weights, self.blocks, lefts, rights):
            is_trained = block.requires_grad
            none = (None,) * len(block.representation())
            gradients += block._bilinear_derivative(weight * left, right) if is_trained else none
        if not self.weights.requires_grad:
            return (None, *gradients)
        parts = zip(self.blocks, lefts, rights)
        return (torch.stack([(left * block._matmul(right)).sum() for block, left, right in parts]), *gradients)


def side_by_side(weights: Tensor, blocks: Sequence[ClusterOperator]) -> ClusterOperator:
    """Return the block-diagonal operator, a flat one if all blocks are flat."""
    joint = SideBySideLinearOperator(weights, *blocks)
    if not all(block.is_flat for block in blocks):
        return joint
    return FlatLinearOperator(joint._diagonal(), num_clusters=joint.shape[-1])


class TaskLinearOperator(ClusterOperator):
    r"""
    Multiply by :math:`S \otimes B` (`pT x p'T`): cluster c has an effect on each of T tasks, numbered `c T + t`.

    Use it for several tasks: GPyTorch's `MultitaskKernel` around kernels of this package, and `IndexKernel`, have it.

    With it the kernel of a point x and a task t is :math:`k(x, x') B_{tt'}` (Bonilla, Chai & Williams 2008, eq. 1), at
    the cost of one partition kernel: a row is in as many clusters as before.

    :param task_covariance: `T x T` B, symmetric (or the root of one).
    :param base: `p x p'` S.

    Example:
        >>> from gpytorch_partition.operators import FlatLinearOperator
        >>> S = FlatLinearOperator(torch.tensor([0.5]), num_clusters=2)
        >>> TaskLinearOperator(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), S).to_dense()
        tensor([[1.0000, 0.5000, 0.0000, 0.0000],
                [0.5000, 1.0000, 0.0000, 0.0000],
                [0.0000, 0.0000, 1.0000, 0.5000],
                [0.0000, 0.0000, 0.5000, 1.0000]])
    """

    def __init__(self, task_covariance: Tensor, base: LinearOperator) -> None:
        super().__init__(task_covariance, base)
        self.task_covariance, self.base = task_covariance, base
        self.num_tasks = task_covariance.shape[-1]

    def root(self) -> LinearOperator:
        r"""Return the root :math:`F \otimes C` of :math:`F F^\top \otimes C C^\top`; B may be singular."""
        return TaskLinearOperator(symmetric_root(self.task_covariance), self.base.root())

    @property
    def has_same_clusters(self) -> bool:
        return self.base.has_same_clusters

    @property
    def structure(self) -> tuple[Any, ...]:
        return (type(self), self.base.structure)

    @property
    def independent_clusters(self) -> Tensor:
        return self.base.independent_clusters.repeat_interleave(self.num_tasks)

    @property
    def num_nodes(self) -> int:
        return self.num_tasks * self.base.num_nodes

    def correlated(self, normal: Tensor) -> Tensor:
        deviations = self.task_covariance.diagonal().clamp_min(torch.finfo(self.dtype).tiny).sqrt()
        root = symmetric_root(self.task_covariance / deviations / deviations.unsqueeze(-1))
        return (root @ normal.unflatten(0, (-1, self.num_tasks))).flatten(0, 1)

    def _size(self) -> torch.Size:
        return torch.Size(side * self.num_tasks for side in self.base.shape)

    def _transpose_nonbatch(self) -> LinearOperator:
        return TaskLinearOperator(self.task_covariance.mT, self.base._transpose_nonbatch())

    @of_columns
    def _matmul(self, rhs: Tensor) -> Tensor:
        effects = self.task_covariance @ self._by_task(rhs)
        return self.base._matmul(effects.flatten(1)).view(-1, *effects.shape[1:]).flatten(0, 1)

    @of_columns
    def _t_matmul(self, rhs: Tensor) -> Tensor:
        effects = self.task_covariance.mT @ self._by_task(rhs)
        return self.base._t_matmul(effects.flatten(1)).view(-1, *effects.shape[1:]).flatten(0, 1)

    def _by_task(self, table: Tensor) -> Tensor:
        return table.unflatten(0, (-1, self.num_tasks))

    def _diagonal(self) -> Tensor:
        return (self.base._diagonal().unsqueeze(-1) * self.task_covariance.diagonal()).flatten()

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        row_index, col_index = row_index.long(), col_index.long()
        (row, row_task), (column, column_task) = (
            (index.div(self.num_tasks, rounding_mode="floor"), index % self.num_tasks)
            for index in (row_index, col_index)
        )
        return self.base._get_indices(row, column) * self.task_covariance[row_task, column_task]

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        left, right = self._by_task(as_columns(left_vecs)), self._by_task(as_columns(right_vecs))
        spread = self.base._matmul(right.flatten(1)).view(-1, *right.shape[1:])
        gradients: list[Tensor | None] = [torch.einsum("cit,cjt->ij", left, spread)]
        if not self.base.requires_grad:
            return (*gradients, *[None] * len(self.base.representation()))
        weighted = self.task_covariance.mT @ left
        return (*gradients, *self.base._bilinear_derivative(weighted.flatten(1), right.flatten(1)))
