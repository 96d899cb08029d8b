"""
Conjugate gradients in the operator's own dtype, which most covariances of many rows are solved by, and the last resort:
everything in float64, by a factor where matrices are small enough.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import (
    AddedDiagLinearOperator,
    CholLinearOperator,
    LinearOperator,
    SumLinearOperator,
    TriangularLinearOperator,
)
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from gpytorch_partition.linalg.conjugate_gradients import CGResult, CGState, Rule, UnconvergedError, relative_residual
from gpytorch_partition.linalg.random import solver_generator
from gpytorch_partition.operators import guards
from gpytorch_partition.operators.guards import checked_determinants, expanded, solve_residual
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.settings import probe_seed
from gpytorch_partition.solvers.direct import MOST_COLUMNS, DirectSolver, is_small
from gpytorch_partition.solvers.solver import Terms, quadratic_forms

_REMEDY = "Raise the noise (a constraint of the likelihood), or make the outputscale smaller."

# The least noise, as a share of the prior variance, at which dense algebra in float32 gives posterior variances to a
# percent, and the share that float64 resolves, in units of its roundoff and rows.
_LEAST_SHARE = 1e-2
_RESOLVED = 100.0
_ROUNDED = 10.0  # the same for entries in float32, in units of its roundoff and the root of the rows
_LEAST_USE = 1e-6  # relative residual of a factor above which it is of no use


@dataclass(frozen=True)
class InDouble:
    """A solver by a float64 factor (:mod:`.direct`), else by conjugate gradients, which warns where they fail."""

    noisy: AddedDiagLinearOperator

    def solve(self, rhs: Tensor) -> Tensor:
        columns = expanded(self.noisy, rhs).double()
        return self.within(columns, relative_residual(solve_residual())).solution.to(rhs.dtype)

    @torch.no_grad()
    def within(self, columns: Tensor, stop: Rule, certain: Rule | None = None, **options: Any) -> CGResult:
        """
        Return :math:`A^{-1} V` for V (`*batch x N x t`) as accurate as a rule says, all in float64.

        :param certain: A rule for the accuracy asked for, if `stop` also stops at the limit of rounding.
        :param options: `preconditioner` or `initial_guess` of :func:`.conjugate_gradients`.
        :raises UnconvergedError: If a factor is of no use.
        """
        noisy = self.noisy.in_double
        if noisy.direct is not None:
            return self._factored(noisy.direct, columns, stop if certain is None else certain)
        options = {"preconditioner": noisy.preconditioner_inverse(), **options}
        most = linear_settings.max_cg_iterations.value()
        options |= {"certain": certain, "max_iterations": most}
        found = guards.conjugate_gradients(noisy._matmul, columns, stop, **options)
        if not found.converged:
            check_resolution(noisy)
        return found

    def _factored(self, direct: DirectSolver, columns: Tensor, certain: Rule) -> CGResult:
        """Solve by a factor of A, which is backward stable, or of clusters, whose residual is checked."""
        noisy = self.noisy.in_double
        check_resolution(noisy)
        solution, residual = direct.refined(columns)
        form = ((columns + residual) * solution).sum(-2, keepdim=True)
        if direct.roots is None:
            return CGResult(solution, form, None, 0, True, residual)
        norm, size = (each.norm(dim=-2, keepdim=True) for each in (residual, columns))
        if bool((norm > _LEAST_USE * size).any()):
            raise UnconvergedError(f"{_too_little(noisy)}. {_REMEDY}")
        is_certain = bool(certain(CGState(norm, size, form, solution, residual)).all())
        if not is_certain:
            told = f"{_too_little(noisy)}: means and variances may be wrong. {_REMEDY}"
            warnings.warn(told, NumericalWarning, stacklevel=2)
        return CGResult(solution, form, None, 0, is_certain, residual)

    def inv_quad_logdet(self, rhs: Tensor | None, logdet: bool | None, reduce: bool | None) -> Terms:
        """Return both terms, with gradients: exact for up to 6,000 rows, from probe vectors for more."""
        noisy, columns, dtype = self.noisy.in_double, None if rhs is None else rhs.double(), self.noisy.dtype
        check_resolution(self.noisy)
        if is_small(self.noisy) and self.noisy.shape.numel() <= MOST_COLUMNS**2:
            factor = CholLinearOperator(TriangularLinearOperator(noisy.dense_root()))
            form, determinant = factor.inv_quad_logdet(columns, logdet, reduce)
        else:
            form, determinant = _by_probes(noisy, columns, reduce)
        return None if form is None else form.to(dtype), None if determinant is None else determinant.to(dtype)


def _by_probes(noisy: AddedDiagLinearOperator, rhs: Tensor | None, reduce: bool | None) -> Terms:
    if (direct := noisy.direct) is None:
        raise UnconvergedError(f"{_too_little(noisy)}. {_REMEDY}")
    generator = solver_generator(probe_seed.value(), "probes", noisy.device)
    size = (noisy.size(-1), linear_settings.num_trace_samples.value())
    probes = torch.randn(size, generator=generator, dtype=noisy.dtype, device=noisy.device)
    with torch.no_grad():
        value, weights = direct.log_determinant(), direct.solve(probes)
    trace = (weights * noisy.matmul(probes)).sum() / size[-1]
    determinant = value + trace - trace.detach()
    return None if rhs is None else quadratic_forms(noisy, rhs, direct, reduce), determinant


def terms_of(noisy: AddedDiagLinearOperator) -> list[LinearOperator]:
    covariance = noisy._linear_op.evaluate_kernel()
    return list(covariance.linear_ops) if isinstance(covariance, SumLinearOperator) else [covariance]


def is_delicate(noisy: AddedDiagLinearOperator) -> bool:
    """Return whether rounding of dense algebra may change posterior variances by more than a percent."""
    return noisy.dtype != torch.float64 and noisy.noise_share < _LEAST_SHARE


def _too_little(noisy: AddedDiagLinearOperator) -> str:
    return f"the noise is {noisy.noise_share:.1e} of the prior variance, too little for a factor in float64"


def check_resolution(noisy: AddedDiagLinearOperator) -> None:
    """Warn if the noise is too small a share of the prior variance for float64, where rounding would hide it."""
    least = _RESOLVED * noisy.size(-1) * torch.finfo(torch.float64).eps
    _check_noise(noisy, least, f"{noisy.size(-1):,} rows resolve {least:.0e} of it in float64", _REMEDY)


def check_entries(noisy: AddedDiagLinearOperator) -> None:
    """Warn if the noise is below the rounding of a covariance in float32, unless all terms are partition kernels."""
    if noisy.dtype == torch.float64 or all(isinstance(term, PartitionLinearOperator) for term in terms_of(noisy)):
        return
    least = _ROUNDED * torch.finfo(noisy.dtype).eps * noisy.size(-1) ** 0.5
    reason = f"a sum with a kernel whose entries are rounded to {noisy.dtype} resolves {least:.0e} of it"
    _check_noise(noisy, least, reason, "Use float64, or raise the noise (a constraint of the likelihood).")


def _check_noise(noisy: AddedDiagLinearOperator, least: float, reason: str, remedy: str) -> None:
    if noisy.noise_share < least:
        share = f"the noise is {noisy.noise_share:.1e} of the prior variance"
        told = f"{share}, and {reason}: means and variances may be wrong. {remedy}"
        warnings.warn(told, NumericalWarning, stacklevel=3)


# Iterations after which a factor, where there can be one, takes less time than more of them.
FEWEST_ITERATIONS = 300

_ITERATIONS = 10  # for a few digits, `_ITERATIONS_ROWS` rows and `_ITERATIONS_NOISE`
_ITERATIONS_ROWS = 5_000
_ITERATIONS_NOISE = 0.1  # in outputscales
_ITERATIONS_GROWTH = 0.45  # exponent of the number of rows


@dataclass(frozen=True)
class ConjugateGradients:
    """A solver by conjugate gradients and Lanczos quadrature; if they fail once, :class:`.InDouble` takes over."""

    noisy: AddedDiagLinearOperator

    def solve(self, rhs: Tensor) -> Tensor:
        r"""Return :math:`A^{-1} V` (`*batch x N x t`), without a graph."""
        try:
            return self.within(expanded(self.noisy, rhs), relative_residual(solve_residual())).solution
        except UnconvergedError:
            return InDouble(self.noisy).solve(rhs)

    def within(self, columns: Tensor, stop: Rule, certain: Rule | None = None, **options: Any) -> CGResult:
        """Return :math:`A^{-1} V` as :meth:`.InDouble.within` does; an `UnconvergedError` if float64 is needed."""
        noisy = self.noisy
        if not is_hard(noisy):
            options = {"preconditioner": noisy.preconditioner_inverse(), "certain": certain, **options}
            options |= {"max_iterations": most_iterations(noisy), "gives_up": is_small(noisy), "warn": False}
            found = guards.conjugate_gradients(noisy._matmul, columns, stop, **options)
            if found.converged:
                noisy.iterations = found.iterations
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
    """Return about how many iterations a solve takes, by the preconditioner's spectrum; without one, by the noise."""
    if (preconditioner := noisy.nystrom()) is None:
        return iterations_by_noise(noisy)
    return preconditioner.iterations - (preconditioner.saved_iterations if preconditioner.larger_rank else 0)


@torch.no_grad()
def iterations_by_noise(noisy: AddedDiagLinearOperator) -> float:
    """
    Return about how many iterations a solve takes, by the noise over the prior variance.

    Terms with a single cluster do not count, which have few large eigenvalues.
    """
    every = terms_of(noisy)
    terms = [term for term in every if not isinstance(term, PartitionLinearOperator) or term.left.num_clusters > 1]
    terms = terms or every
    prior = sum(float(term.diagonal(dim1=-2, dim2=-1).mean()) for term in terms)
    tiny = torch.finfo(torch.float64).tiny
    share = max(float(noisy._diag_tensor._diagonal().min()) / max(prior, tiny), tiny)
    growth = (noisy.size(-1) / _ITERATIONS_ROWS) ** _ITERATIONS_GROWTH
    return _ITERATIONS * growth * (_ITERATIONS_NOISE / share) ** 0.5


def _least_eigenvalue(noisy: AddedDiagLinearOperator) -> float:
    r"""A lower bound of the eigenvalues of :math:`P^{-1/2} A P^{-1/2}`, as :math:`A \succeq P - s \lambda_\ell I`."""
    noise, preconditioner = noisy._diag_tensor._diagonal().detach(), noisy.nystrom()
    if preconditioner is None:
        return max(float(noise.min()), torch.finfo(torch.float64).tiny)
    shift = (preconditioner.scale * preconditioner.factor.shift).detach().unsqueeze(-1)
    return max(float((noise / (noise + shift)).min()), torch.finfo(torch.float64).tiny)
