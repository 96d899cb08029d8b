"""Preconditioned conjugate gradients for many right-hand sides, each stopped by its own residual."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

Closure = Callable[[Tensor], Tensor]

# Fewest steps of a Lanczos matrix, as in GPyTorch. More are needed only while the solve itself is inaccurate: with
# the residual of a probe at 0.1 the quadrature's error was below 2e-4 nats per datum on every kernel tried.
_MIN_LANCZOS_STEPS = 20
_MOST_HALVINGS = 60  # of a residual, down to the rounding of float64
_MAX_RESTARTS = 3  # most restarts from the true residual, where rounding has made the recursively updated one too small


class UnconvergedError(RuntimeError):
    """Report a solve that is less accurate than asked for; the message says how accurate it is, and what to do."""


class CGState(NamedTuple):
    """The argument of a stopping rule; norms and quadratic forms are `*batch x 1 x t`."""

    residual_norm: Tensor  # norm of the residual
    rhs_norm: Tensor  # norm of the right-hand side
    quadratic_form: Tensor  # current 2 b^T x - x^T A x (started from zero: b^T x), a lower bound of b^T A^{-1} b
    solution: Tensor  # *batch x N x t, current
    residual: Tensor  # *batch x N x t


Rule = Callable[[CGState], Tensor]  # which columns of a solve are accurate enough (`*batch x 1 x t`)


class CGResult(NamedTuple):
    solution: Tensor  # *batch x N x t
    # *batch x 1 x t, 2 b^T x - x^T A x, a lower bound of b^T A^{-1} b: started from zero, a sum of positive terms
    quadratic_form: Tensor
    tridiagonal: Tensor | None  # num_tridiag x *batch x k x k Lanczos matrices of P^{-1/2} A P^{-1/2}
    iterations: int
    converged: bool
    residual: Tensor  # *batch x N x t, b - A x; computed anew where the iterations ended by the stopping rule


def relative_residual(tolerance: float) -> Rule:
    """Return a rule that stops a column when its residual's norm is at most `tolerance` times its right-hand side's."""
    return lambda state: state.residual_norm <= tolerance * state.rhs_norm


def conjugate_gradients(
    matmul: Closure,
    rhs: Tensor,
    stop: Rule,
    *,
    preconditioner: Closure | None = None,
    initial_guess: Tensor | None = None,
    max_iterations: int = 1000,
    num_tridiag: int = 0,
    max_tridiag_iterations: int = 0,
    certain: Rule | None = None,
    gives_up: bool = False,
    warn: bool = True,
) -> CGResult:
    r"""
    Solve :math:`A X = B` for a symmetric positive definite A that is known by its products (Saad 2003).

    Every column stops by its own residual. No threshold is absolute, so scaling A, B or the preconditioner changes
    nothing. When all columns have stopped, the true residual is computed, and columns whose recursive residual is too
    small by rounding restart from their solution. Columns stay in the products until all have stopped.

    :param stop: A function of the :class:`CGState` that says which columns are done (`*batch x 1 x t`).
    :param preconditioner: :math:`V \mapsto P^{-1} V`. (Default: none.)
    :param initial_guess: The solution to start from, of a shape that expands to that of `rhs`. (Default: zero.)
    :param max_iterations: Most iterations; a :class:`NumericalWarning` then gives the residual reached.
    :param num_tridiag: Number of the first columns whose Lanczos matrix is returned too; they must not be all zero.
    :param max_tridiag_iterations: Largest size of these matrices; they have 20 rows or more where that and N allow it.
    :param certain: The accuracy asked for, where `stop` stops at the limit of rounding too, for true residuals, halved.
    :param gives_up: Whether to end after a third of the iterations where, at the rate so far, all would not suffice.
    :raises ValueError: If a right-hand side is not finite.
    """
    if not torch.isfinite(rhs).all():
        raise ValueError("expected finite right-hand sides, got NaN or infinity: check the targets and the means")
    run = _Run(matmul, rhs, stop, preconditioner, num_tridiag, max_tridiag_iterations, initial_guess)
    for _ in range(1 + _MAX_RESTARTS):
        run.iterate(max_iterations, gives_up)
        if run.iterations >= max_iterations or run.is_solved():
            break
    converged = bool(run.done.all()) and (certain is None or run.satisfies(certain))
    if not converged and warn:
        relative = run.residual.norm(dim=-2, keepdim=True) / run.rhs_norm.clamp_min(torch.finfo(rhs.dtype).tiny)
        worst = float(torch.where(run.done, 0, relative).max())
        told = (
            f"conjugate gradients stopped after {run.iterations} iterations with {int((~run.done).sum())} of "
            f"{run.done.numel()} columns unfinished, the worst at a relative residual of {worst:.1e}: raise "
            "max_cg_iterations, use float64, or ask for less accuracy."
        )
        warnings.warn(told, NumericalWarning, stacklevel=2)
    return CGResult(run.solution, run.quadratic_form, run.tridiagonal(), run.iterations, converged, run.residual)


class _Run:
    """The iteration's state; a restart keeps the solution and begins a new Krylov space."""

    def __init__(
        self,
        matmul: Closure,
        rhs: Tensor,
        stop: Rule,
        preconditioner: Closure | None,
        num_tridiag: int,
        max_tridiag: int,
        initial_guess: Tensor | None,
    ) -> None:
        # Contiguous, since mixed strides make every vector operation ten times as slow.
        rhs = rhs.contiguous()
        self.matmul, self.rhs, self.stop = matmul, rhs, stop
        self.precondition = preconditioner or torch.clone
        self.num_tridiag, self.max_tridiag = num_tridiag, max_tridiag if num_tridiag else 0
        self.is_first_run = True
        self.coefficients: list[tuple[Tensor, Tensor]] = []
        self.iterations = 0
        self.rhs_norm = rhs.norm(dim=-2, keepdim=True)
        self.quadratic_form = torch.zeros_like(self.rhs_norm)
        if initial_guess is None:
            self.solution = torch.zeros_like(rhs)
            self._begin(rhs.clone())
        else:
            self.solution = initial_guess.expand_as(rhs).clone()
            self._begin(rhs - matmul(self.solution))
            self.quadratic_form = (self.solution * (rhs + self.residual)).sum(-2, keepdim=True)
        self.done = self._finished()

    def _begin(self, residual: Tensor) -> None:
        self.residual, self.direction = residual, self.precondition(residual)
        self.energy = (residual * self.direction).sum(-2, keepdim=True)

    def iterate(self, max_iterations: int, gives_up: bool) -> None:
        trial, before = (max_iterations // 3, self._halvings()) if gives_up else (None, 0)
        while self.iterations < max_iterations and bool(self._active().any()):
            self._step()
            self.iterations += 1
            if self.iterations == trial and (left := self._halvings()) > 2 * (before - left):
                break

    def _halvings(self) -> int:
        """Return how many times residuals must be halved to satisfy the stopping rule; 0 if that is not enough."""
        return next((number for number in range(_MOST_HALVINGS) if self.satisfies(self.stop, 0.5**number)), 0)

    def _step(self) -> None:
        active = self._active()
        product = self.matmul(self.direction)
        curvature = (self.direction * product).sum(-2, keepdim=True)
        alpha = _ratio(self.energy, curvature, active)
        self.quadratic_form = self.quadratic_form + alpha * self.energy
        self.solution.addcmul_(self.direction, alpha)
        self.residual.addcmul_(product, alpha, value=-1)
        preconditioned = self.precondition(self.residual)
        energy = (self.residual * preconditioned).sum(-2, keepdim=True)
        beta = _ratio(energy, self.energy, active)
        self.direction = preconditioned.addcmul_(self.direction, beta)
        self.energy = torch.where(active, energy, self.energy)
        if self.is_first_run and len(self.coefficients) < self.max_tridiag:
            self.coefficients.append((alpha[..., : self.num_tridiag], beta[..., : self.num_tridiag]))
        self.done = self._finished()

    def _active(self) -> Tensor:
        active = ~self.done
        if self.is_first_run and self.iterations < min(_MIN_LANCZOS_STEPS, self.max_tridiag):
            exhausted = self.residual_norm <= 4 * torch.finfo(self.rhs.dtype).eps * self.rhs_norm
            active[..., : self.num_tridiag] |= ~exhausted[..., : self.num_tridiag]
        return active

    def _finished(self) -> Tensor:
        self.residual_norm = self.residual.norm(dim=-2, keepdim=True)
        state = CGState(self.residual_norm, self.rhs_norm, self.quadratic_form, self.solution, self.residual)
        return self.stop(state) | (self.residual_norm == 0)

    def satisfies(self, rule: Rule, share: float = 0.5) -> bool:
        """Return whether a share of the residual of every column satisfies a rule; restarts let residuals double."""
        norm = share * self.residual.norm(dim=-2, keepdim=True)
        state = CGState(norm, self.rhs_norm, self.quadratic_form, self.solution, share * self.residual)
        return bool((rule(state) | (norm == 0)).all())

    def is_solved(self) -> bool:
        """Return whether the true residual satisfies the stopping rule; if not, prepare a restart from it."""
        recursive_norm = self.residual_norm
        self.residual = self.rhs - self.matmul(self.solution)
        unsolved = ~self._finished() & (self.residual_norm > 2 * recursive_norm)
        if not bool(unsolved.any()):
            return True
        self.done, self.is_first_run = ~unsolved, False
        self._begin(self.residual)
        return False

    def tridiagonal(self) -> Tensor | None:
        """Return Lanczos matrices: T_kk = 1/a_k + b_{k-1}/a_{k-1}, T_k,k+1 = sqrt(b_k)/a_k (Saad 2003)."""
        if not self.num_tridiag:
            return None
        alpha = torch.cat([pair[0] for pair in self.coefficients], -2)  # *batch x k x num_tridiag
        beta = torch.cat([pair[1] for pair in self.coefficients], -2)
        live = alpha > 0
        inverse = torch.where(live, 1 / torch.where(live, alpha, 1), 0)
        diagonal = inverse.clone()
        diagonal[..., 1:, :] += beta[..., :-1, :] * inverse[..., :-1, :]
        # Steps after a column's Krylov space is exhausted become uncoupled 1s on the diagonal, whose logarithm is zero.
        diagonal = torch.where(live, diagonal, 1)
        off = (beta.sqrt() * inverse)[..., :-1, :] * live[..., 1:, :]
        diagonal, off = diagonal.movedim(-1, 0), off.movedim(-1, 0)
        return torch.diag_embed(diagonal) + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)


def _ratio(numerator: Tensor, denominator: Tensor, where: Tensor) -> Tensor:
    safe = where & (denominator > 0) & (numerator > 0)
    return torch.where(safe, numerator / torch.where(safe, denominator, 1), 0)
