r"""
Direct solves where conjugate gradients do not converge: a float64 factor of A or of a smaller matrix.

With :math:`K = \Phi \Phi^\top` known by a sparse root of q columns, and :math:`B = I + \Phi^\top D^{-1} \Phi`,

.. math::

    A^{-1} = D^{-1} (I - \Phi B^{-1} \Phi^\top D^{-1}), \qquad \log |A| = \log |D| + \log |B|

(Rasmussen & Williams 2006, appendix A.3), where the eigenvalues that are the noise alone, at least N - q, are exact. Up
to 10,000 rows A itself is factorized, above B, for a root of 6,000 columns at most.
"""

from __future__ import annotations

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.solvers.feature_factor import (
    MOST_COLUMNS,
    num_columns,
    root_precision,
    root_sums,
    root_values,
    sparse_roots,
)

# Most rows of A to factorize: 800 MB twice, one of them for a moment, and ten seconds on one core.
MOST_ROWS = 10_000
_BLOCK_ROWS = 512  # rows of A that are computed at once
_MOST_REFINEMENTS = 10


class DirectSolver:
    """
    A Cholesky factor in float64 for solves with :math:`A = K + D` (`*batch x N x N`) and its log determinant.

    K and the diagonal of D are float64; `torch.linalg.LinAlgError` says that B is not positive definite there.
    """

    def __init__(self, covariance: LinearOperator, noise: Tensor) -> None:
        self.covariance, self.noise = covariance, noise.unsqueeze(-1)
        # A's own factor is backward stable; in the other identity differences of large numbers lose digits.
        self.roots = None if is_small(covariance) else sparse_roots(covariance)
        if self.roots is None:
            self.factor = stable_cholesky(self._dense())
        else:
            self.factor = torch.linalg.cholesky(root_precision(covariance, noise, most_rows=len(noise)))

    def solve(self, rhs: Tensor) -> Tensor:
        r"""Return :math:`A^{-1} V` (`*batch x N x t`) for V in float64."""
        return self.refined(rhs)[0]

    def refined(self, rhs: Tensor) -> tuple[Tensor, Tensor]:
        r"""
        Return :math:`A^{-1} V` and the residual (`*batch x N x t` each), with B refined as long as that helps.

        Each step leaves a share of the residual that grows with the rows and with one over the noise: 3e-5 for 50,000
        rows and a noise of 5e-6 of the prior variance; at most 1e-8 is left in the end.
        """
        solution = self._solve(rhs)
        residual = self._residual(rhs, solution)
        for _ in range(0 if self.roots is None else _MOST_REFINEMENTS):
            better = solution + self._solve(residual)
            left = self._residual(rhs, better)
            if not bool((left.norm(dim=-2) < 0.5 * residual.norm(dim=-2)).any()):
                break
            solution, residual = better, left
        return solution, residual

    def _residual(self, rhs: Tensor, solution: Tensor) -> Tensor:
        return rhs - self.covariance.matmul(solution) - self.noise * solution

    def log_determinant(self) -> Tensor:
        r"""Return :math:`\log |A|` (`*batch`)."""
        inner = 2 * self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return inner if self.roots is None else inner + self.noise.log().sum((-2, -1))

    def _dense(self) -> Tensor:
        """A, in its lower triangle, computed by blocks of rows."""
        dense = torch.zeros(self.covariance.shape, dtype=self.noise.dtype, device=self.noise.device)
        for start in range(0, dense.shape[-1], _BLOCK_ROWS):
            rows = slice(start, min(start + _BLOCK_ROWS, dense.shape[-1]))
            dense[..., rows, : rows.stop] = self.covariance[..., rows, : rows.stop].to_dense()
        dense.diagonal(dim1=-2, dim2=-1).add_(self.noise.squeeze(-1))
        return dense

    def _solve(self, rhs: Tensor) -> Tensor:
        if self.roots is None:
            return self._substituted(rhs)
        scaled = rhs / self.noise
        inner = self._substituted(root_sums(self.roots, scaled))
        return scaled - root_values(self.roots, inner) / self.noise

    def _substituted(self, rhs: Tensor) -> Tensor:
        """Two triangular solves: `torch.cholesky_solve` copies the factor, for 64 columns four times as slow."""
        half = torch.linalg.solve_triangular(self.factor, rhs, upper=False)
        return torch.linalg.solve_triangular(self.factor.mT, half, upper=True)


def is_small(covariance: LinearOperator) -> bool:
    """Return whether the matrix (`*batch x N x N`) is small enough to factorize."""
    return covariance.shape.numel() <= (MOST_ROWS if covariance.dim() == 2 else MOST_COLUMNS) ** 2


def has_direct_solver(covariance: LinearOperator) -> bool:
    """Return whether A or B is small enough to factorize."""
    return is_small(covariance) or num_columns(covariance) <= MOST_COLUMNS


def direct_solver(covariance: LinearOperator, noise: Tensor) -> DirectSolver | None:
    """Return the solver, without a graph; None where matrices are too large, or not positive definite in float64."""
    if not has_direct_solver(covariance) or not bool((noise > 0).all()):
        return None
    try:
        with torch.no_grad():
            return DirectSolver(covariance.to(torch.float64), noise.double())
    except torch.linalg.LinAlgError:
        return None
