"""The block-diagonal operator S of a mixture of kernels, a block for each kernel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from linear_operator.operators import LinearOperator
from scipy.sparse import block_diag, csr_matrix
from torch import Tensor

from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator, of_columns
from gpytorch_partition.operators.cluster_operators.flat_linear_operator import FlatLinearOperator


class SideBySideLinearOperator(ClusterOperator):
    r"""
    The block-diagonal covariance :math:`S = \mathrm{diag}(w_1 S_1, \ldots, w_k S_k)` of blocks of any sizes.

    :class:`~gpytorch_partition.PartitionMixtureKernel` uses it, unless all its parts are flat. Construct it yourself
    for a kernel whose clusters are of several kinds, such as flat ones and leaves of trees, in one feature space: it is
    a mixture of their kernels.

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
