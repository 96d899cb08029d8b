"""The base class of all covariance operators: guards against dense matrices and inaccurate solves, `+` and `*`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from linear_operator import settings, to_linear_operator
from linear_operator.operators import (
    ConstantDiagLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    LinearOperator,
)
from torch import Tensor

from gpytorch_partition.linalg.conjugate_gradients import conjugate_gradients, relative_residual
from gpytorch_partition.operators.accuracy import (
    MOST_CHECKED_STEPS,
    check_determinant,
    current_check,
    num_lanczos_steps,
    solve_residual,
    training_residual,
)

_ITERATIVE = (
    "If iterative solves were meant, run inside gpytorch_partition.settings.iterative() (importing BoTorch or "
    "fast_computations(...) turns them off)"
)


def check_dense(operator: LinearOperator, task: str, remedy: str = _ITERATIVE) -> None:
    """Refuse dense work on more rows than `max_cholesky_size` by a `RuntimeError`, which names task and remedy."""
    num_rows, limit = operator.shape[-2], settings.max_cholesky_size.value()
    if num_rows > limit:
        raise RuntimeError(
            f"{task} of a {operator.shape[-2]:,} x {operator.shape[-1]:,} {type(operator).__name__} would be dense, "
            f"and max_cholesky_size is {limit:,}. {remedy}; if the dense matrix is wanted, raise "
            "linear_operator.settings.max_cholesky_size."
        )


class CovarianceOperator(LinearOperator):
    """
    A linear operator with accurate solves, whose factorizations and elementwise products do not silently become dense.

    Conjugate gradients stop column by column, at the residuals of :mod:`gpytorch_partition.operators.accuracy`.
    Factorizations and products over a batch dimension are dense up to `max_cholesky_size` rows, and errors above; so
    are elementwise products, except those of :mod:`gpytorch_partition.operators.algebra`.
    """

    points_require_grad = False  #: whether it was evaluated at points that require a gradient

    # Set by `algebra` and `solvers`, which import every class that a sum or a product can become.
    _sum_of: Callable[[LinearOperator, Any], LinearOperator]
    _product_with: Callable[[LinearOperator, LinearOperator], LinearOperator]
    _plus_noise: Callable[[LinearOperator, DiagLinearOperator], LinearOperator]

    def __add__(self, other: Any) -> LinearOperator:
        return self._sum_of(self, other)

    def add_diagonal(self, diag: Tensor) -> LinearOperator:
        """Return the covariance plus a diagonal (a number, `*batch x 1` or `*batch x N`), with our solvers."""
        return self + as_diagonal(diag, self.size(-1))

    def _solve(
        self, rhs: Tensor, preconditioner: Callable[[Tensor], Tensor] | None = None, num_tridiag: int | None = 0
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        batch_shape = torch.broadcast_shapes(rhs.shape[:-2], self.batch_shape)
        check = current_check() if num_tridiag else None
        result = conjugate_gradients(
            self._matmul,
            rhs.expand(*batch_shape, *rhs.shape[-2:]),
            relative_residual(training_residual() if num_tridiag else solve_residual()),
            preconditioner=preconditioner,
            max_iterations=check.most if check else settings.max_cg_iterations.value(),
            num_tridiag=num_tridiag or 0,
            max_tridiag_iterations=max(num_lanczos_steps(), MOST_CHECKED_STEPS if check else 0),
            warn=not (check and check.is_fatal),
        )
        if not num_tridiag:
            return result.solution
        check_determinant(result)
        return result.solution, result.tridiagonal

    def _cholesky(self, upper: bool = False) -> LinearOperator:
        check_dense(self, "a Cholesky factorization")
        return super()._cholesky(upper=upper)

    def _symeig(self, eigenvectors: bool = False, return_evals_as_lazy: bool | None = False) -> Any:
        check_dense(self, "an eigendecomposition")
        return super()._symeig(eigenvectors=eigenvectors, return_evals_as_lazy=return_evals_as_lazy)

    def diagonalization(self, method: str | None = None) -> tuple[Tensor, LinearOperator]:
        """Return eigenvalues and eigenvectors; by Lanczos, with large errors on these spectra, only if named."""
        if method is None:
            check_dense(self, "a diagonalization")
        return super().diagonalization(method=method)

    def root_decomposition(self, method: str | None = None) -> LinearOperator:
        """Return a dense root up to `max_cholesky_size` rows; by Lanczos, with large errors, only if named."""
        if method is None:
            check_dense(self, "a root")
        return super().root_decomposition(method=method)

    def _svd(self) -> tuple[LinearOperator, Tensor, LinearOperator]:
        check_dense(self, "a singular value decomposition")
        return super()._svd()

    def _mul_matrix(self, other: Tensor | LinearOperator) -> LinearOperator:
        constant = _constant_of(other)
        if constant is None:
            return self._product_with(self, to_linear_operator(other))
        batch_shape = torch.broadcast_shapes(self.batch_shape, constant.shape)
        return self.expand(*batch_shape, *self.matrix_shape)._mul_constant(constant.expand(batch_shape))

    def _prod_batch(self, dim: int) -> LinearOperator:
        """Exact and dense for few rows; the parent's product is wrong for odd batches."""
        check_dense(self, "a product over the batch", "Give each kernel of the batch a model of its own, or add them")
        return DenseLinearOperator(self.to_dense().prod(dim))


def involves_partitions(operator: LinearOperator) -> bool:
    """Return whether an operator, or one that it consists of, is one of this package's."""
    if isinstance(operator, CovarianceOperator):
        return True
    parts = getattr(operator, "_args", ())  # none yet while the operator is constructed
    return any(involves_partitions(part) for part in parts if isinstance(part, LinearOperator))


def _constant_of(matrix: Tensor | LinearOperator) -> Tensor | None:
    """The number (`*batch`) that fills a matrix, if the matrix was made by expanding it."""
    if matrix.shape[-2:] == (1, 1):
        return matrix.to_dense()[..., 0, 0]
    tensor = getattr(matrix, "tensor", matrix)
    return expanded_number(tensor) if torch.is_tensor(tensor) and is_constant(tensor) else None


def as_diagonal(values: Tensor, num_rows: int) -> DiagLinearOperator:
    """Return a diagonal matrix from the argument of `add_diagonal`; constant diagonals hold one number."""
    if values.dim() == 0 or values.shape[-1] == 1:
        return ConstantDiagLinearOperator(values.reshape(*values.shape[:-1], 1), diag_shape=num_rows)
    return DiagLinearOperator(values)


def is_constant(matrix: Tensor) -> bool:
    """Return whether a matrix is one number expanded, as GPyTorch's ConstantKernel returns it."""
    return matrix.numel() > 1 and matrix.stride()[-2:] == (0, 0)


def expanded_number(matrix: Tensor) -> Tensor:
    """Return the number (`*batch`) that was expanded, itself if known: an entry's gradient would be N x N."""
    base = matrix._base
    if base is not None and base.numel() == matrix.shape[:-2].numel():
        return base.reshape(matrix.shape[:-2])
    return matrix[..., 0, 0]
