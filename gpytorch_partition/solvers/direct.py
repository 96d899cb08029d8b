r"""
Factors in float64 of :math:`A = K + D`, or of the smaller matrix of a sparse root: solves, variances, and samples.

With :math:`K = \Phi \Phi^\top` known by a sparse root of q columns, :math:`f = \Phi w` with :math:`w \sim N(0, I)`, and

.. math::

    B = I + \Phi^\top D^{-1} \Phi = L L^\top, \qquad
    A^{-1} = D^{-1} (I - \Phi B^{-1} \Phi^\top D^{-1}), \qquad \log |A| = \log |D| + \log |B|

(Rasmussen & Williams 2006, appendix A.3), where the eigenvalues that are the noise alone, at least N - q, are exact. A
:class:`DirectSolver` takes the place of conjugate gradients that do not converge: up to 10,000 rows by a factor of A
itself, above by one of B, for a root of 6,000 columns at most.

Given the noisy rows, w has the covariance :math:`B^{-1}` (eq. 2.8), so :math:`\Phi_* L^{-\top}` is a root of the
posterior covariance at any points, without a solve for N rows. Sums of smooth kernels through inducing points, linear
kernels and coarse trees are predicted by this :class:`FeatureFactor`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add

import torch
from linear_operator.operators import LinearOperator, SumLinearOperator
from torch import Tensor

from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.linalg.random import solver_generator
from gpytorch_partition.operators.guards import MOST_ROWS
from gpytorch_partition.operators.loadings import LoadedRows
from gpytorch_partition.operators.partition_linear_operator import (
    KEPT_ROWS,
    IncidenceLinearOperator,
    PartitionLinearOperator,
)
from gpytorch_partition.operators.sums_and_roots import PartitionSumLinearOperator

# Most columns of a root whose B is factorized, and most rows of dense matrices with gradients or eigenvectors.
MOST_COLUMNS = 6_000
_BLOCK_ROWS = 2**14  # rows that are held in float64 at once
_BLOCK_COLUMNS = 64  # columns of their root held at once
_LARGEST_ERROR = 1e-3  # relative error of a variance that rounding may leave
_STEPS = 10  # of the inverse iteration for the smallest eigenvalue
_MARGIN = 10  # by which the eigenvalue may be less than the one found


class FeatureFactor:
    """Hold the factor L for a covariance K with a sparse root, plus noise; a `LinAlgError` if B has none."""

    def __init__(self, covariance: LinearOperator, noise: Tensor) -> None:
        first = torch.zeros(1, dtype=torch.long, device=noise.device)
        self.roots = sparse_roots(_of_rows(covariance, first)) or []  # only their scales and factors are needed
        self._precision = root_precision(covariance, noise, _BLOCK_ROWS)
        self._factor = torch.linalg.cholesky(self._precision)

    def deviations(self, normal: Tensor) -> list[Tensor]:
        r"""Return draws :math:`L^{-\top} E` of the coefficients, for each root, from standard normal E (`q x t`)."""
        drawn = torch.linalg.solve_triangular(self._factor.mT, normal.double(), upper=True)
        return list(drawn.split(_widths(self.roots), -2))

    def root(self, points: Sequence[LoadedRows]) -> Tensor:
        r"""Return :math:`\Phi_* L^{-\top}` (`N_test x q`, float64) at points in the feature space of each root."""
        return torch.cat(list(self._root_blocks(points)), -1)

    def variances(self, points: Sequence[LoadedRows]) -> Tensor:
        """Return variances at points (`N_test`, float64), with a block of columns of the root held at once."""
        return reduce(add, (block.square().sum(-1) for block in self._root_blocks(points)))

    def _root_blocks(self, points: Sequence[LoadedRows]) -> Iterator[Tensor]:
        roots = []
        for root, at in zip(self.roots, points):
            loadings = None if at.loadings is None else at.loadings.to(root.factor.dtype)
            roots.append(IncidenceLinearOperator(root.scale, root.factor, rows=at.rows, loadings=loadings))
        identity = torch.eye(self.num_columns, dtype=torch.float64, device=self._factor.device)
        for block in identity.split(_BLOCK_COLUMNS, -1):
            yield root_values(roots, torch.cat(self.deviations(block), -2))

    @property
    def num_columns(self) -> int:
        return len(self._factor)

    def resolves(self) -> bool:
        r"""
        Return whether rounding leaves variances a relative error of a thousandth at most.

        It is at most :math:`q \epsilon / \lambda`, with the least eigenvalue of a scaled B (Higham 2002, theorem 10.5).
        """
        units = self._precision.diagonal().sqrt().unsqueeze(-1)
        generator = solver_generator(0, "probes", units.device)
        vector = torch.randn(len(units), 1, dtype=torch.float64, device=units.device, generator=generator)
        growth = torch.ones(())
        for _ in range(_STEPS):
            vector = units * torch.cholesky_solve(units * (vector / vector.norm()), self._factor)
            growth = vector.norm()
        error = _MARGIN * len(units) * torch.finfo(torch.float64).eps * float(growth)
        return error <= _LARGEST_ERROR


def feature_factor(covariance: LinearOperator, noise: Tensor) -> FeatureFactor | None:
    """Return the factor L made from a sparse root, without gradients; None without a root, or if it is too inexact."""
    if not has_feature_factor(covariance) or not bool((noise > 0).all()):
        return None
    try:
        with torch.no_grad():
            factor = FeatureFactor(covariance, noise)
            return factor if factor.resolves() else None
    except torch.linalg.LinAlgError:
        return None


def has_feature_factor(covariance: LinearOperator) -> bool:
    """Return whether the covariance has a sparse root of at most 6,000 columns, and no more columns than rows."""
    return num_columns(covariance) <= min(MOST_COLUMNS, covariance.size(-1))


def num_columns(covariance: LinearOperator) -> float:
    """Return the number q of columns of the sparse root; infinity without one."""
    roots = sparse_roots(covariance)
    return float("inf") if roots is None else sum(_widths(roots))


def sparse_roots(covariance: LinearOperator) -> list[IncidenceLinearOperator] | None:
    """Return the sparse roots of the terms of a covariance; None if one has none, or for batch dimensions."""
    terms = covariance.linear_ops if isinstance(covariance, PartitionSumLinearOperator) else [covariance]
    if covariance.dim() > 2 or not all(isinstance(term, PartitionLinearOperator) for term in terms):
        return None
    if not all(term.is_symmetric and bool(term.scale >= 0) for term in terms):
        return None
    return [term.sparse_root() for term in terms]


def root_values(roots: list[IncidenceLinearOperator], table: Tensor) -> Tensor:
    r"""Return :math:`\Phi C` (`N x t`) from a table of coefficients (`q x t`)."""
    return torch.stack([root._matmul(part) for root, part in zip(roots, table.split(_widths(roots), -2))]).sum(0)


def root_sums(roots: list[IncidenceLinearOperator], values: Tensor) -> Tensor:
    r"""Return :math:`\Phi^\top V` (`q x t`) of values of rows (`N x t`)."""
    return torch.cat([root._t_matmul(values) for root in roots], -2)


def root_precision(covariance: LinearOperator, noise: Tensor, most_rows: int) -> Tensor:
    """Return B (`q x q`, float64), summed over blocks of at most `most_rows` rows, one of them in float64 at a time."""
    total = torch.eye(int(num_columns(covariance)), dtype=torch.float64, device=noise.device)
    for rows in torch.arange(covariance.size(-1), device=noise.device).split(most_rows):
        roots = sparse_roots(_of_rows(covariance, rows)) or []
        variances = noise[rows].double().unsqueeze(-1)
        for start in range(0, len(total), _BLOCK_COLUMNS):
            block = total[:, start : start + _BLOCK_COLUMNS]
            units = torch.zeros(block.shape, dtype=block.dtype, device=block.device)
            units[start:].fill_diagonal_(1)
            block += root_sums(roots, root_values(roots, units) / variances)
    return 0.5 * (total + total.mT)


def _of_rows(covariance: LinearOperator, rows: Tensor) -> LinearOperator:
    return covariance[..., rows, :][..., :, rows].to(torch.float64)


def _widths(roots: list[IncidenceLinearOperator]) -> list[int]:
    return [root.shape[-1] for root in roots]


_ENTRY_ROWS = 2**11  # rows of A whose entries are computed at once, where K is not kept with the rows
_MOST_REFINEMENTS = 10


class DirectSolver:
    """Hold a Cholesky factor for solves with :math:`A = K + D` (`*batch x N x N`, float64) and its log determinant."""

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
        r"""Return :math:`A^{-1} V` and its residual (`*batch x N x t` each), refined as long as that helps."""
        solution = self._solve(rhs)
        if self.roots is None:  # A's own factor leaves a residual that is only rounding
            return solution, torch.zeros_like(solution)
        residual = self._residual(rhs, solution)
        for _ in range(_MOST_REFINEMENTS):
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
        size = dense.shape[-1] if dense.shape[-1] <= KEPT_ROWS else _ENTRY_ROWS
        for start in range(0, dense.shape[-1], size):
            rows = slice(start, min(start + size, dense.shape[-1]))
            _add_dense(dense[..., rows, : rows.stop], self.covariance[..., rows, : rows.stop])
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


def _add_dense(total: Tensor, covariance: LinearOperator) -> None:
    """Add a covariance to a matrix (`*batch x N x N'`) in place, term by term."""
    if isinstance(covariance, SumLinearOperator):
        for term in covariance.linear_ops:
            _add_dense(total, term)
    elif isinstance(covariance, PartitionLinearOperator) and covariance.dim() == 2:
        covariance.add_dense_to(total)
    else:
        total += covariance.to_dense()


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
