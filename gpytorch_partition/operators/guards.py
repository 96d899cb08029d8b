"""Errors in place of dense N x N work that nobody asked for."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import settings
from linear_operator.operators import DenseLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.operators.addition import is_constant, the_constant


def check_dense(operator: LinearOperator, task: str) -> None:
    """
    Refuse dense work on more rows than linear_operator's `max_cholesky_size` (Default: 800).

    :param operator: `*batch x N x M`, what would become dense.
    :param task: What was asked of it, for the error.
    :raises RuntimeError: If N is larger, with the remedy.
    """
    num_rows, limit = operator.shape[-2], settings.max_cholesky_size.value()
    if num_rows > limit:
        raise RuntimeError(
            f"{task} of a {operator.shape[-2]:,} x {operator.shape[-1]:,} {type(operator).__name__} would be dense, "
            f"and max_cholesky_size is {limit:,}. If iterative solves were meant, run inside "
            "gpytorch_partition.settings.iterative() (importing BoTorch or fast_computations(...) turns them off); "
            "if the dense matrix is wanted, raise linear_operator.settings.max_cholesky_size or call to_dense()."
        )


class Guarded(LinearOperator):
    """
    A linear operator whose factorizations and elementwise products refuse to become dense silently.

    Cholesky, eigen- and singular value decompositions, elementwise products and products over a batch dimension are
    dense up to `max_cholesky_size` rows, and a `RuntimeError` above; an elementwise product with a constant is none.
    """

    def _cholesky(self, upper: bool = False) -> LinearOperator:
        check_dense(self, "a Cholesky factorization")
        return super()._cholesky(upper=upper)

    def _symeig(self, eigenvectors: bool = False, return_evals_as_lazy: bool | None = False) -> Any:
        check_dense(self, "an eigendecomposition")
        return super()._symeig(eigenvectors=eigenvectors, return_evals_as_lazy=return_evals_as_lazy)

    def _svd(self) -> tuple[LinearOperator, Tensor, LinearOperator]:
        check_dense(self, "a singular value decomposition")
        return super()._svd()

    def _mul_matrix(self, other: Tensor | LinearOperator) -> LinearOperator:
        """Elementwise product: exact and dense while small; the default's rank-100 factors are 94 % wrong here."""
        constant = _constant_of(other)
        if constant is not None:
            batch_shape = torch.broadcast_shapes(self.batch_shape, constant.shape)
            return self.expand(*batch_shape, *self.matrix_shape)._mul_constant(constant.expand(batch_shape))
        check_dense(self, "an elementwise product")
        return DenseLinearOperator(self.to_dense() * other.to_dense())

    def _prod_batch(self, dim: int) -> LinearOperator:
        """Product over a batch dimension, exact and dense while small; the default is wrong for odd batches."""
        check_dense(self, "a product over the batch")
        return DenseLinearOperator(self.to_dense().prod(dim))


def _constant_of(matrix: Tensor | LinearOperator) -> Tensor | None:
    """The number (`*batch`) that all entries of a matrix are, if they were made as one."""
    if matrix.shape[-2:] == (1, 1):
        return matrix.to_dense()[..., 0, 0]
    tensor = getattr(matrix, "tensor", matrix)
    return the_constant(tensor) if torch.is_tensor(tensor) and is_constant(tensor) else None
