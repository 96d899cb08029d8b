"""The transpose of an operator that has a product and a transposed product."""

from __future__ import annotations

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor


class TransposedLinearOperator(LinearOperator):
    r"""
    The transpose :math:`A^\top` of an operator A, whose `_t_matmul` is then the product.

    :param base: `*batch x n x p` A.
    """

    def __init__(self, base: LinearOperator) -> None:
        super().__init__(base)
        self.base = base

    def _size(self) -> torch.Size:
        *batch, rows, columns = self.base.shape
        return torch.Size((*batch, columns, rows))

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.base._t_matmul(rhs)

    def _transpose_nonbatch(self) -> LinearOperator:
        return self.base

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> LinearOperator:
        return TransposedLinearOperator(self.base._expand_batch(batch_shape))

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        return self.base._get_indices(col_index, row_index, *batch_indices)

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        return self.base._bilinear_derivative(right_vecs, left_vecs)
