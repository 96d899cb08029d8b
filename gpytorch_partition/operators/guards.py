"""
The base class of all covariance operators: guards against dense matrices and inaccurate solves, `+` and `*`.

Accuracy of solves and log determinants is that of GPyTorch's settings, within limits. GPyTorch's defaults (a relative
residual of 1 in training and of .01 in prediction, 20 Lanczos steps) leave means 1e-2 off, covariances tens of percent,
gradients 28 % and likelihoods .05 nats per datum. Settings that ask for more accuracy than the limits below are
followed; those that ask for less are not.

A log determinant by Lanczos quadrature is bounded from both sides: Gauss quadrature of the logarithm is never too
small, and Gauss-Radau quadrature with a node at a lower bound of the spectrum never too large (Golub & Meurant 2010,
theorem 6.4). Where the noise is tiny, their difference is a larger error than the variance of the probe vectors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import Any, NamedTuple

import gpytorch
import torch
from linear_operator import settings, to_linear_operator
from linear_operator.operators import ConstantDiagLinearOperator, DiagLinearOperator, LinearOperator, RootLinearOperator
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from gpytorch_partition.linalg.conjugate_gradients import UnconvergedError, conjugate_gradients, relative_residual
from gpytorch_partition.linalg.lanczos import radau_matrix
from gpytorch_partition.settings import predictions

LARGEST_TRAINING_RESIDUAL = 1e-2
LARGEST_RESIDUAL = 1e-4
MEAN_ERROR = 0.03  # of means of training rows, in standard deviations of the noise
LARGEST_MEAN_ERROR = 0.1  # the same above which means are refused
FEWEST_LANCZOS_STEPS = 100
MOST_CHECKED_STEPS = 300  # of Lanczos, where log determinants are checked
LARGEST_BIAS = 5e-3  # of the log marginal likelihood, in nats per datum, without a warning or an exact computation
# Most rows of a matrix that is dense where nothing else is exact: 800 MB in float64, and ten seconds for a factor.
MOST_ROWS = 10_000
_NUM_PROBES = 3  # probe vectors for the bias: it is an average over all eigenvalues, and nearly the same for each


def solve_residual() -> float:
    """Return the relative residual of solves without a log determinant: `cg_tolerance`, at most 1e-4."""
    return min(LARGEST_RESIDUAL, settings.cg_tolerance.value())


def prediction_residual() -> float:
    """Return the relative residual of solves for predictions: `eval_cg_tolerance`, at most 1e-4."""
    return min(LARGEST_RESIDUAL, gpytorch.settings.eval_cg_tolerance.value())


class _Check(NamedTuple):
    least: float
    is_fatal: bool
    most: int


_CHECK: ContextVar[_Check | None] = ContextVar("the check of log determinants", default=None)


@contextmanager
def checked_determinants(least: float, *, is_fatal: bool, most: int) -> Iterator[None]:
    """Check the log determinants computed inside, given a lower bound of the spectrum of the preconditioned matrix."""
    token = _CHECK.set(_Check(least, is_fatal, most))
    try:
        yield
    finally:
        _CHECK.reset(token)


def _check_determinant(check: _Check, tridiagonal: Tensor, converged: bool) -> None:
    """Check the Lanczos matrices of probe vectors, and whether their solves have converged."""
    if check.is_fatal and not converged:
        raise UnconvergedError("conjugate gradients do not converge: solve in float64")
    bias = 0.5 * float(log_bias(tridiagonal[:_NUM_PROBES], check.least).mean(0).max())
    if bias <= LARGEST_BIAS:
        return
    if check.is_fatal:
        raise UnconvergedError(f"the log determinant may be off by {bias:.1e} nats per datum: factorize")
    told = (
        f"the log marginal likelihood may be off by up to {bias:.1e} nats per datum: Lanczos quadrature has not "
        "converged at a noise so small. Raise the noise, or max_lanczos_quadrature_iterations and max_cg_iterations."
    )
    warnings.warn(told, NumericalWarning, stacklevel=2)


def log_bias(tridiagonal: Tensor, least: float) -> Tensor:
    r"""Return bounds (`q x *batch`) of the error of :math:`e_1^\top \log(T) e_1` for Lanczos matrices T."""
    matrices = tridiagonal.detach().double()
    pairs = [torch.linalg.eigh(each) for each in (matrices, radau_matrix(matrices, least))]
    upper, lower = ((vectors[..., 0, :].square() * values.clamp_min(least).log()).sum(-1) for values, vectors in pairs)
    return (upper - lower).clamp_min(0)


_ITERATIVE = (
    "If iterative solves were meant, run inside gpytorch_partition.settings.iterative() (importing BoTorch or "
    "fast_computations(...) turns them off)"
)


def check_dense(operator: LinearOperator, task: str, remedy: str = _ITERATIVE) -> None:
    """Refuse dense work on more rows than `max_cholesky_size` by a `RuntimeError`, which names task and remedy."""
    num_rows, limit = operator.shape[-2], settings.max_cholesky_size.value()
    if num_rows > limit:
        raise RuntimeError(
            f"{task} of a {num_rows:,} x {operator.shape[-1]:,} {type(operator).__name__} would be dense, and "
            f"max_cholesky_size is {limit:,}. {remedy}; if the dense matrix is wanted, raise "
            "linear_operator.settings.max_cholesky_size."
        )


class CovarianceOperator(LinearOperator):
    """A linear operator with accurate solves, whose factorizations above `max_cholesky_size` rows are errors."""

    points_require_grad = False  #: whether it was evaluated at points that require a gradient

    # Set by `algebra` and `solvers`, which import every class that a sum or a product can become.
    _sum_of: Callable[[LinearOperator, Any], LinearOperator]
    _product_with: Callable[[LinearOperator, LinearOperator], LinearOperator]
    _plus_noise: Callable[[LinearOperator, DiagLinearOperator], LinearOperator]

    def __add__(self, other: Any) -> LinearOperator:
        return self._sum_of(self, other)

    def add_diagonal(self, diag: Tensor) -> LinearOperator:
        """Return the covariance plus a diagonal (a number, `*batch x 1` or `*batch x N`), with our solvers."""
        if diag.dim() == 0 or diag.shape[-1] == 1:
            return self + ConstantDiagLinearOperator(diag.reshape(*diag.shape[:-1], 1), diag_shape=self.size(-1))
        return self + DiagLinearOperator(diag)

    def _solve(
        self, rhs: Tensor, preconditioner: Callable[[Tensor], Tensor] | None = None, num_tridiag: int | None = 0
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        check = _CHECK.get() if num_tridiag else None
        most_steps = max(FEWEST_LANCZOS_STEPS, settings.max_lanczos_quadrature_iterations.value())
        largest = min(LARGEST_TRAINING_RESIDUAL, predictions.tolerance_outside()) if num_tridiag else solve_residual()
        result = conjugate_gradients(
            self._matmul,
            expanded(self, rhs),
            relative_residual(largest),
            preconditioner=preconditioner,
            max_iterations=check.most if check else settings.max_cg_iterations.value(),
            num_tridiag=num_tridiag or 0,
            max_tridiag_iterations=max(most_steps, MOST_CHECKED_STEPS) if check else most_steps,
            warn=not (check and check.is_fatal),
        )
        if not num_tridiag:
            return result.solution
        if check and result.tridiagonal is not None:
            _check_determinant(check, result.tridiagonal, result.converged)
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

    def root_inv_decomposition(
        self, method: str | None = None, initial_vectors: Tensor | None = None, test_vectors: Tensor | None = None
    ) -> LinearOperator:
        """Return a root of the inverse, for up to `max_cholesky_size` rows: Lanczos roots have large errors here."""
        check_dense(self, "a root of the inverse")
        return super().root_inv_decomposition(method, initial_vectors, test_vectors)

    def add_low_rank(self, low_rank_mat: Tensor | LinearOperator, *args: Any, **kwargs: Any) -> LinearOperator:
        r"""Return the sum with :math:`B B^\top`, without the roots of both that linear_operator computes."""
        return self + RootLinearOperator(low_rank_mat)

    def cat_rows(self, cross_mat: Tensor, new_mat: Tensor, *args: Any, **kwargs: Any) -> LinearOperator:
        """Return the operator with new rows and columns; above `max_cholesky_size` rows without a root of it."""
        if self.size(-1) <= settings.max_cholesky_size.value():
            return super().cat_rows(cross_mat, new_mat, *args, **kwargs)
        without_roots = self.representation_tree()(*self.representation())
        return LinearOperator.cat_rows(without_roots, cross_mat, new_mat, False, False)

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
        covariance = self.evaluate_kernel()  # kernels that are indexed lose gradients
        elements = [covariance[(slice(None),) * dim + (element,)] for element in range(self.shape[dim])]
        return reduce(self._product_with, elements)


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


def expanded(operator: LinearOperator, rhs: Tensor) -> Tensor:
    """Return right-hand sides with all batch dimensions of an operator."""
    batch_shape = torch.broadcast_shapes(rhs.shape[:-2], operator.batch_shape)
    return rhs.expand(*batch_shape, *rhs.shape[-2:])


def is_constant(matrix: Tensor) -> bool:
    """Return whether a matrix is one number expanded, as GPyTorch's ConstantKernel returns it."""
    return matrix.numel() > 1 and matrix.stride()[-2:] == (0, 0)


def expanded_number(matrix: Tensor) -> Tensor:
    """Return the number (`*batch`) that was expanded to a matrix; not an entry, whose gradient would be N x N."""
    base = matrix._base
    if base is not None and base.numel() == matrix.shape[:-2].numel():
        return base.reshape(matrix.shape[:-2])
    return matrix[..., 0, 0]
