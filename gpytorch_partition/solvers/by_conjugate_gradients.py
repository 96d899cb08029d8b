"""Preconditioned conjugate gradients in the operator's own dtype, which most covariances of many rows are solved by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import AddedDiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.linalg.conjugate_gradients import CGResult, UnconvergedError, relative_residual
from gpytorch_partition.operators import guards
from gpytorch_partition.operators.guards import checked_determinants, solve_residual
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.solvers.direct import is_small
from gpytorch_partition.solvers.in_double import InDouble, terms_of
from gpytorch_partition.solvers.solver import Rule, Terms, expanded

# Iterations after which a factor, where there can be one, takes less time than more of them.
FEWEST_ITERATIONS = 300

# Iterations for a few digits: 23 to 37 were measured for samples of 50,000 rows, 35 to 100 at a noise of .01.
_ITERATIONS = 10  # for `_ITERATIONS_ROWS` rows and `_ITERATIONS_NOISE`
_ITERATIONS_ROWS = 5_000
_ITERATIONS_NOISE = 0.1  # in outputscales
_ITERATIONS_GROWTH = 0.45  # exponent of the number of rows


@dataclass(frozen=True)
class ConjugateGradients:
    """A solver by conjugate gradients and Lanczos quadrature; failures are remembered, for :class:`.InDouble`."""

    noisy: AddedDiagLinearOperator

    def solve(self, rhs: Tensor) -> Tensor:
        r"""Return :math:`A^{-1} V` (`*batch x N x t`), without a graph."""
        try:
            return self.within(expanded(self.noisy, rhs), relative_residual(solve_residual())).solution
        except UnconvergedError:
            return InDouble(self.noisy).solve(rhs)

    def within(self, columns: Tensor, stop: Rule, certain: Rule | None = None, **options: Any) -> CGResult:
        """Return :math:`A^{-1} V` as :meth:`.InDouble.within` does; an `UnconvergedError` where that is needed."""
        noisy = self.noisy
        if not is_hard(noisy):
            options = {"preconditioner": noisy.preconditioner_inverse(), **options}
            found = guards.conjugate_gradients(
                noisy._matmul,
                columns,
                stop,
                certain=certain,
                max_iterations=most_iterations(noisy),
                warn=False,
                **options,
            )
            if found.converged:
                return found
            noisy.has_failed = True
        raise UnconvergedError("conjugate gradients do not converge: solve in float64")

    def inv_quad_logdet(self, rhs: Tensor | None, logdet: bool | None, reduce: bool | None) -> Terms:
        """Return both terms with gradients, whose log determinant is bounded from both sides."""
        noisy = self.noisy
        if not logdet:
            return LinearOperator.inv_quad_logdet(noisy, rhs, logdet, reduce)
        most, is_fatal = most_iterations(noisy), noisy.has_direct
        try:
            with checked_determinants(_least_eigenvalue(noisy), is_fatal=is_fatal, most=most):
                return LinearOperator.inv_quad_logdet(noisy, rhs, logdet, reduce)
        except UnconvergedError:
            return InDouble(noisy).inv_quad_logdet(rhs, logdet, reduce)


def is_hard(noisy: AddedDiagLinearOperator) -> bool:
    """Return whether iterations are not tried: they have failed, or a factor is expected to take less time."""
    return noisy.has_failed or (is_small(noisy) and noisy.expected_iterations > FEWEST_ITERATIONS)


def most_iterations(noisy: AddedDiagLinearOperator) -> int:
    """Return the number of iterations after which a better method is tried."""
    most = linear_settings.max_cg_iterations.value()
    return min(most, FEWEST_ITERATIONS) if is_small(noisy) else most


@torch.no_grad()
def expected_iterations_of(noisy: AddedDiagLinearOperator) -> float:
    """Return about how many iterations a solve takes; terms with a single cluster are left to the preconditioner."""
    terms = [term for term in terms_of(noisy) if not _has_one_cluster(term)] or terms_of(noisy)
    prior = sum(float(term.diagonal(dim1=-2, dim2=-1).mean()) for term in terms)
    share = float(noisy._diag_tensor._diagonal().min()) / max(prior, torch.finfo(torch.float64).tiny)
    return expected_iterations(noisy.size(-1), max(share, torch.finfo(torch.float64).tiny))


def expected_iterations(num_rows: int, noise_share: float) -> float:
    """Return about how many iterations a solve takes for N rows and a noise, in prior variances of the hard terms."""
    growth = (num_rows / _ITERATIONS_ROWS) ** _ITERATIONS_GROWTH
    return _ITERATIONS * growth * (_ITERATIONS_NOISE / noise_share) ** 0.5


def _has_one_cluster(term: LinearOperator) -> bool:
    return isinstance(term, PartitionLinearOperator) and term.left.num_clusters == 1


def _least_eigenvalue(noisy: AddedDiagLinearOperator) -> float:
    r"""A lower bound of the eigenvalues of :math:`P^{-1/2} A P^{-1/2}`, as :math:`A \succeq P - s \lambda_\ell I`."""
    noise, preconditioner = noisy._diag_tensor._diagonal().detach(), noisy.nystrom()
    if preconditioner is None:
        return max(float(noise.min()), torch.finfo(torch.float64).tiny)
    shift = (preconditioner.scale * preconditioner.factor.shift).detach().unsqueeze(-1)
    return max(float((noise / (noise + shift)).min()), torch.finfo(torch.float64).tiny)
