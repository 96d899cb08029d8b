r"""
The covariance of some entries of `N x T` targets plus noise, with a preconditioner that uses their structure.

Entries are pairs of a row and a task, of covariance :math:`k(x, x') B_{tt'}`. If every entry is known, T independent
tasks are solved (:mod:`gpytorch_partition.solvers.factorizations`). With missing entries the same structure
preconditions conjugate gradients. With a Nystrom factor :math:`K \approx L L^\top + \lambda I` of the N rows and a root
:math:`B = C C^\top`,

.. math::

    P = (L L^\top \otimes C C^\top) + (\lambda I \otimes B) + D

restricted to the entries, where the second and third terms are a block of at most T entries for each row.

If the errors of a row are correlated, with covariance S, the entries of each row are whitened: multiplied by the
inverse of a Cholesky factor of S's block of the known entries. Noise is then I, and an entry is a combination of
functions, with loadings in place of its task.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import torch
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.linalg.factors import stable_cholesky, tall_product, transposed_product
from gpytorch_partition.solvers.direct import DirectSolver, direct_solver, is_small
from gpytorch_partition.solvers.iterative_solvers import iterations_by_noise
from gpytorch_partition.solvers.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator
from gpytorch_partition.solvers.preconditioners import is_preconditioned, nystrom_factor_of

_MOST_DIRECTIONS = 2_000  # of the low-rank part, a dense matrix of which is decomposed
_LEAST_SIGNAL = 1.0  # of an independent task, in noises, summed over all rows: below, it needs no low-rank part


class Entries(NamedTuple):
    """Hold the known entries (`n`) of `N x T` targets: covariances of rows and tasks, noise, their rows and tasks."""

    covariance: LinearOperator
    task_covariance: Tensor
    noise: Tensor
    rows: Tensor
    tasks: Tensor
    loadings: Tensor | None = None  # n x T, in place of tasks, of entries that combine the functions of several

    def select(self, numbers: Tensor) -> Entries:
        """Return some of the entries, by their numbers."""
        loadings = None if self.loadings is None else self.loadings[numbers]
        return Entries(*self[:3], self.rows[numbers], self.tasks[numbers], loadings)

    def patterns(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return u kinds of rows: known entries (`u x T`), loadings (`u x T x T`), and the kind of each row (`N`)."""
        own = torch.eye(len(self.noise), dtype=torch.float64, device=self.rows.device)
        loadings = own[self.tasks] if self.loadings is None else self.loadings.double()
        grid = self.to_grid(torch.cat([loadings, torch.ones_like(loadings[:, :1])], -1))
        kinds, numbers = torch.unique(grid, dim=0, return_inverse=True)
        return kinds[..., -1] > 0, kinds[..., :-1], numbers

    def to_dense(self) -> Tensor:
        """Return the covariance of the entries (`n x n`, float64), from that of the rows."""
        own = self.covariance.to(dtype=torch.float64).to_dense()[self.rows][:, self.rows]
        if self.loadings is None:
            return own.mul_(self.task_covariance.double()[self.tasks][:, self.tasks])
        loadings = self.loadings.double()
        return own.mul_(loadings @ self.task_covariance.double() @ loadings.mT)

    def to_grid(self, values: Tensor) -> Tensor:
        """Return values of entries (`n x t`) as `N x T x t`, 0 in missing cells."""
        grid = values.new_zeros(self.covariance.shape[-1], len(self.noise), values.shape[-1])
        grid[self.rows, self.tasks] = values
        return grid


class EntriesPlusNoise(PartitionAddedDiagLinearOperator):
    """Multiply by the covariance of entries plus noise (`n x n`), and solve with the preconditioner of this module."""

    def __init__(self, *linear_ops: LinearOperator, entries: Entries, **options: Any) -> None:
        super().__init__(*linear_ops, **options)
        self._nondifferentiable_kwargs["entries"] = entries
        self.entries = entries
        self._inverses: dict[int, _Inverse] = {}

    def restricted_to(self, rows: Tensor) -> EntriesPlusNoise:
        """Return the covariance plus noise of some of the entries, given their numbers (int64)."""
        covariance, noise = self._linear_op[rows, :][:, rows], DiagLinearOperator(self._diag_tensor._diagonal()[rows])
        return EntriesPlusNoise(covariance, noise, entries=self.entries.select(rows))

    @cached_property
    def _converted(self) -> EntriesPlusNoise:
        parts = (part.to(dtype=torch.float64) for part in (self._linear_op.evaluate_kernel(), self._diag_tensor))
        covariance = self.entries.covariance.to(dtype=torch.float64)
        return EntriesPlusNoise(*parts, entries=self.entries._replace(covariance=covariance))

    @cached_property
    def direct(self) -> DirectSolver | None:
        """Return the parent's solver, from the dense covariance of the rows: ten times as fast for 5,600 entries."""
        if not is_small(self):
            return direct_solver(self._linear_op.evaluate_kernel(), self._diag_tensor._diagonal())
        with torch.no_grad():
            covariance = DenseLinearOperator(self.entries.to_dense())
        return direct_solver(covariance, self._diag_tensor._diagonal())

    @cached_property
    def expected_iterations(self) -> float:
        return iterations_by_noise(self)  # the parent's preconditioner, whose spectrum tells, is not that of solves

    def preconditioner_inverse(self) -> Callable[[Tensor], Tensor] | None:
        """Return the inverse of this module's preconditioner where a Nystrom one is chosen, else the parent's."""
        if not is_preconditioned(self, "nystrom"):
            return super().preconditioner_inverse()
        rank = settings.preconditioner_rank.value()
        if rank not in self._inverses:
            self._inverses[rank] = _Inverse(self.entries)
        return self._inverses[rank]


class _Inverse:
    r""":math:`V \mapsto P^{-1} V` (`n x t`), by the matrix inversion lemma, with blocks' inverses for each pattern."""

    def __init__(self, entries: Entries) -> None:
        with torch.no_grad():
            dtype = entries.covariance.dtype
            self.entries, root = entries, _root_of_tasks(entries)
            rank = max(1, min(settings.preconditioner_rank.value(), _MOST_DIRECTIONS // max(1, root.shape[-1])))
            self.factor, _, shift = nystrom_factor_of(entries.covariance, rank)
            known, loadings, patterns = entries.patterns()
            blocks, roots = _own_blocks(entries, known, loadings, float(shift)), loadings @ root
            self.blocks = blocks.to(dtype)[patterns]
            self.roots = roots.to(dtype)[patterns]
            capacitance = _capacitance(self.factor, roots.mT @ blocks @ roots, patterns)
            self.cholesky = stable_cholesky(capacitance).to(capacitance.dtype)

    @torch.no_grad()
    def __call__(self, values: Tensor) -> Tensor:
        solved = self.blocks @ self.entries.to_grid(values)  # N x T x t
        inner = transposed_product(self.factor, (self.roots.mT @ solved).flatten(1))  # rank x (q t)
        size = (self.roots.shape[-1], values.shape[-1])
        inner = torch.cholesky_solve(inner.unflatten(1, size).flatten(0, 1), self.cholesky)
        function = tall_product(self.factor, inner.reshape(-1, size[0] * size[1])).unflatten(1, size)
        return (solved - self.blocks @ (self.roots @ function))[self.entries.rows, self.entries.tasks]


def _root_of_tasks(entries: Entries) -> Tensor:
    """C (`T x q`, float64), without the independent tasks that are only noise."""
    root = entries.noise.double().sqrt()
    values, vectors = torch.linalg.eigh(entries.task_covariance.double() / root / root.unsqueeze(-1))
    counts = values * entries.covariance.shape[-1] > _LEAST_SIGNAL
    counts[-1] = True
    return root.unsqueeze(-1) * vectors[:, counts] * values[counts].clamp_min(0).sqrt()


def _own_blocks(entries: Entries, known: Tensor, loadings: Tensor, shift: float) -> Tensor:
    r"""Inverses of :math:`\lambda L B L^\top + D` for each kind of rows (`u x T x T`), 0 for missing entries."""
    noise = torch.where(known, entries.noise.double(), 1.0)
    blocks = loadings @ (shift * entries.task_covariance.double()) @ loadings.mT + torch.diag_embed(noise)
    return known.unsqueeze(-1) * known.unsqueeze(-2) * torch.linalg.inv(blocks)


def _capacitance(factor: Tensor, forms: Tensor, patterns: Tensor) -> Tensor:
    r"""The matrix :math:`I + \sum_i l_i l_i^\top \otimes F_i`, with F (`u x q x q`) of each row's pattern."""
    rank, size = factor.shape[-1], forms.shape[-1]
    found = torch.empty(rank, size, rank, size, dtype=factor.dtype, device=factor.device)
    for first in range(size):
        for second in range(first + 1):
            weights = forms[:, first, second].to(factor.dtype)[patterns].unsqueeze(-1)
            found[:, first, :, second] = found[:, second, :, first] = factor.mT @ (weights * factor)
    found = found.view(rank * size, rank * size)
    found.diagonal().add_(1)
    return found


class WhiteEntries(NamedTuple):
    """Hold the known entries of each row times the inverse of a Cholesky factor of their errors' covariance."""

    rows: Tensor
    whitening: Tensor
    num_rows: int

    @classmethod
    def of(cls, known: Tensor, noise: Tensor) -> WhiteEntries:
        """Return whitened entries of known targets (`N x T`, bool), given the covariance of a row's errors, `noise`."""
        rows, tasks = known.nonzero(as_tuple=True)
        patterns, numbers = torch.unique(known, dim=0, return_inverse=True)
        both = patterns.unsqueeze(-1) & patterns.unsqueeze(-2)
        # Missing entries count as independent of the others, so the factor's block is that of the others.
        blocks = torch.where(both, noise, torch.eye(len(noise)).to(noise))
        whitening = both * torch.linalg.inv(stable_cholesky(blocks)).to(blocks.dtype)
        return cls(rows, whitening[numbers[rows], tasks], len(known))

    def of_targets(self, targets: Tensor) -> Tensor:
        """Return the entries (`n`) of targets (`N x T`, NaN in missing cells)."""
        return (self.whitening * targets.nan_to_num()[self.rows]).sum(-1)

    def to_targets(self, weights: Tensor) -> Tensor:
        """Return the weights of the targets (`N x T`) from weights of the entries (`n`)."""
        found = weights.new_zeros(self.num_rows, self.whitening.shape[-1])
        return found.index_add_(0, self.rows, weights.unsqueeze(-1) * self.whitening)
