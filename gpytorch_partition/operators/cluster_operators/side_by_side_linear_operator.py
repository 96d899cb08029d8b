"""Feature spaces side by side: the operator S of partitions of different kinds, and its root."""

from __future__ import annotations

from itertools import accumulate

import torch
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.operators.cluster_operators.path_sum_linear_operator import PathSumLinearOperator, as_columns


class SideBySideLinearOperator(LinearOperator):
    r"""
    The block-diagonal :math:`S = \mathrm{diag}(w_1 S_1, \ldots, w_k S_k)` of blocks of any sizes.

    With S the covariance of cluster effects of several kinds of partitions, :math:`Z S Z^\top = \sum_b w_b Z_b S_b
    Z_b^\top` is a mixture of their kernels. Products, entries and the root are those of the blocks.

    :param weights: `k` nonnegative weights w.
    :param blocks: `p_b x q_b` operators :math:`S_b`, diagonal, path sums, or of this kind; roots may be rectangular.

    Example:
        >>> blocks = [DiagLinearOperator(torch.tensor([1.0, 2.0])), DiagLinearOperator(torch.tensor([3.0]))]
        >>> SideBySideLinearOperator(torch.tensor([0.5, 2.0]), *blocks).to_dense()
        tensor([[0.5000, 0.0000, 0.0000],
                [0.0000, 1.0000, 0.0000],
                [0.0000, 0.0000, 6.0000]])
    """

    def __init__(self, weights: Tensor, *blocks: LinearOperator) -> None:
        super().__init__(weights, *blocks)
        self.weights, self.blocks = weights, blocks

    def root(self) -> LinearOperator:
        r"""The exact root :math:`F` with :math:`S = F F^\top`: those of the blocks."""
        return SideBySideLinearOperator(self.weights.sqrt(), *map(cluster_root, self.blocks))

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

    def _matmul(self, rhs: Tensor) -> Tensor:
        parts = zip(self.weights, self.blocks, as_columns(rhs).split(self._widths, -2))
        product = torch.cat([weight * block._matmul(part) for weight, block, part in parts], -2)
        return product.squeeze(-1) if rhs.dim() == 1 else product

    def _t_matmul(self, rhs: Tensor) -> Tensor:
        parts = zip(self.weights, self.blocks, as_columns(rhs).split(self._heights, -2))
        product = torch.cat([weight * block._t_matmul(part) for weight, block, part in parts], -2)
        return product.squeeze(-1) if rhs.dim() == 1 else product

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


def cluster_root(operator: LinearOperator) -> LinearOperator:
    r"""The exact root :math:`F` (`p x q`) of an operator in feature space, :math:`S = F F^\top`."""
    return operator.sqrt() if isinstance(operator, DiagLinearOperator) else operator.root()


def has_own_effects(operator: LinearOperator) -> Tensor:
    """Which clusters (`p`, bool) have effects independent of all others': those of flat partitions, none of a tree."""
    if isinstance(operator, SideBySideLinearOperator):
        return torch.cat([has_own_effects(block) for block in operator.blocks])
    is_flat = isinstance(operator, DiagLinearOperator)
    return torch.full(operator.shape[-1:], is_flat, dtype=torch.bool, device=operator.device)


def num_tree_nodes(operator: LinearOperator) -> int:
    """How many nodes of trees a product with an operator in feature space visits."""
    if isinstance(operator, SideBySideLinearOperator):
        return sum(map(num_tree_nodes, operator.blocks))
    return operator.layout.num_nodes if isinstance(operator, PathSumLinearOperator) else 0
