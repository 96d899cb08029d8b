"""A covariance plus noise as a linear operator, which is solved as `choose_solver` says."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from linear_operator.operators import (
    AddedDiagLinearOperator,
    ConstantDiagLinearOperator,
    DiagLinearOperator,
    LinearOperator,
)
from linear_operator.utils.memoize import cached
from torch import Tensor

from gpytorch_partition.callers import not_compiled
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.operators.guards import CovarianceOperator
from gpytorch_partition.operators.sums_and_roots import exact_root, sum_of_roots
from gpytorch_partition.solvers.decision_table import choose_solver
from gpytorch_partition.solvers.direct import (
    DirectSolver,
    FeatureFactor,
    direct_solver,
    feature_factor,
    has_direct_solver,
)
from gpytorch_partition.solvers.factorizations import IndependentTasks, independent_tasks
from gpytorch_partition.solvers.iterative_solvers import check_entries, check_resolution, expected_iterations_of
from gpytorch_partition.solvers.preconditioners import (
    NystromPreconditioner,
    is_preconditioned,
    nystrom_preconditioner,
    partition_inverse,
    probe_vectors,
)
from gpytorch_partition.solvers.solver import Factorized, has_few_rows


class PartitionAddedDiagLinearOperator(CovarianceOperator, AddedDiagLinearOperator):
    """
    Add a diagonal to any operator K with a fast product, :math:`A = K + D` (`*batch x N x N`).

    Use it to solve with a covariance plus noise: `K.add_diagonal(noise)` returns it for an operator K of this package,
    and so do GPyTorch's likelihoods. For any other operator call `PartitionSumLinearOperator(K).add_diagonal(noise)`.

    :func:`choose_solver` has the table of its solvers, whose factors are kept. Conjugate gradients stop column by
    column at a relative residual of `cg_tolerance`, at most 1e-4 (1e-2 with log determinants, of 100 Lanczos steps or
    more), with the preconditioner of :class:`gpytorch_partition.settings.preconditioner`. Probe vectors are the same at
    every call. A dense factorization above `max_cholesky_size` rows is a `RuntimeError`.

    :param linear_ops: K and the diagonal D, in either order.
    :raises RuntimeError: If not exactly one of the two is a `DiagLinearOperator`.

    Example:
        >>> from gpytorch_partition.operators import FlatLinearOperator, PartitionLinearOperator
        >>> from gpytorch_partition.clusters.incidence import Incidence
        >>> Z = Incidence(torch.tensor([[0, 2], [0, 3], [1, 3]]), num_clusters=4)
        >>> S = FlatLinearOperator(torch.tensor([0.5]), num_clusters=4)
        >>> A = PartitionLinearOperator(torch.tensor(1.0), S, left=Z, right=Z).add_diagonal(torch.tensor(0.5))
        >>> type(A).__name__, A.solve(torch.tensor([2.0, 2.5, 2.0])).round(decimals=3)
        ('PartitionAddedDiagLinearOperator', tensor([1., 1., 1.]))
    """

    has_failed = False  #: whether conjugate gradients have not converged, so that they need not be tried again
    iterations: int | None = None  #: of the last solve by conjugate gradients, from which costs of others are expected
    _nystrom_preconditioner: NystromPreconditioner | None = None
    _larger_nystrom: NystromPreconditioner | None = None

    def evaluate_kernel(self) -> LinearOperator:
        return self._linear_op.evaluate_kernel() + self._diag_tensor

    def __add__(self, other: Any) -> LinearOperator:
        if isinstance(other, DiagLinearOperator):
            return self.__class__(self._linear_op, self._diag_tensor + other)
        if isinstance(other, AddedDiagLinearOperator):
            return self + other._diag_tensor + other._linear_op
        return self.__class__(self._sum_of(self._linear_op, other), self._diag_tensor)

    @property
    def _terms(self) -> tuple[LinearOperator, DiagLinearOperator]:
        parts, shape = (self._linear_op, self._diag_tensor), self.shape
        covariance, diagonal = (part if part.shape == shape else part.expand(shape) for part in parts)
        return covariance, diagonal

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        covariance, diagonal = (term._getitem(row_index, col_index, *batch_indices) for term in self._terms)
        return covariance + diagonal

    def restricted_to(self, rows: Tensor) -> PartitionAddedDiagLinearOperator:
        """Return the covariance plus noise (`*batch x n x n`) of some points, given their row numbers (`n`, int64)."""
        covariance, diagonal = self._terms
        covariance = covariance[..., rows, :][..., :, rows]
        if isinstance(diagonal, ConstantDiagLinearOperator):
            noise: DiagLinearOperator = ConstantDiagLinearOperator(diagonal.diag_values, covariance.size(-1))
        else:
            noise = DiagLinearOperator(diagonal._diag[..., rows])
        return self.__class__(covariance, noise)

    def _unsqueeze_batch(self, dim: int) -> LinearOperator:
        return self.__class__(*(term._unsqueeze_batch(dim) for term in self._terms))

    def _permute_batch(self, *dims: int) -> LinearOperator:
        return self.__class__(*(term._permute_batch(*dims) for term in self._terms))

    def _sum_batch(self, dim: int) -> LinearOperator:
        covariance, diagonal = self._terms
        return covariance._sum_batch(dim) + DiagLinearOperator(diagonal._diagonal().sum(dim))

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """Draw samples from N(0, K + D), `num_samples x *batch x N`, by the global random state."""
        covariance, diagonal = self._terms
        noise = torch.randn(num_samples, *self.shape[:-1], dtype=self.dtype, device=self.device)
        return covariance.zero_mean_mvn_samples(num_samples) + diagonal._diagonal().sqrt() * noise

    def sparse_root(self) -> LinearOperator:
        """Return the exact root (`*batch x N x (q + N)`) as an operator: the root of K beside that of the noise."""
        covariance, diagonal = self._terms
        return sum_of_roots(covariance.evaluate_kernel(), diagonal)

    def root_decomposition(self, method: str | None = None) -> LinearOperator:
        """Return a root: dense up to `max_cholesky_size` rows, the exact sparse one above."""
        return super().root_decomposition(method) if method is not None or has_few_rows(self) else exact_root(self)

    # What linear_operator asks for in its own solves, and preconditioning.

    def _preconditioner(self) -> tuple[Callable | None, LinearOperator | None, Tensor | None]:
        preconditioner = self.nystrom()
        if preconditioner is None:
            return None, None, None
        return preconditioner.inverse_closure(), preconditioner, preconditioner.log_determinant()

    def _solve_preconditioner(self) -> None:
        """None: solvers ask for theirs."""

    def _probe_vectors_and_norms(self) -> tuple[Tensor, Tensor]:
        return probe_vectors(self, self.nystrom())

    def preconditioner_inverse(self) -> Callable | None:
        """Return the preconditioner's inverse as a function V -> P^-1 V; None without a preconditioner."""
        if is_preconditioned(self, "partition"):
            return partition_inverse(self._linear_op.evaluate_kernel(), self._diag_tensor)
        preconditioner = self._nystrom_of_solves
        return None if preconditioner is None else preconditioner.inverse_closure()

    @property
    def _nystrom_of_solves(self) -> NystromPreconditioner | None:
        """The preconditioner, or one of a larger rank where that saves time; likelihoods keep the rank they had."""
        usual = self.nystrom()
        if usual is None or (rank := usual.larger_rank) is None:
            return usual
        if self._larger_nystrom is None:
            inputs = self._linear_op.evaluate_kernel(), self._diag_tensor
            self._larger_nystrom = nystrom_preconditioner(*inputs, larger_rank=rank)
        return self._larger_nystrom

    def nystrom(self) -> NystromPreconditioner | None:
        """Return the Nystrom preconditioner, which has a log determinant; None if another or none is set."""
        if not is_preconditioned(self, "nystrom"):
            return None
        if self._nystrom_preconditioner is None:
            self._nystrom_preconditioner = nystrom_preconditioner(self._linear_op.evaluate_kernel(), self._diag_tensor)
        return self._nystrom_preconditioner

    def _solve(
        self, rhs: Tensor, preconditioner: Callable[[Tensor], Tensor] | None = None, num_tridiag: int | None = 0
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        if num_tridiag:
            return super()._solve(rhs, preconditioner, num_tridiag)
        return choose_solver(self, "solve").solve(rhs)

    @not_compiled
    def inv_quad_logdet(
        self, inv_quad_rhs: Tensor | None = None, logdet: bool | None = False, reduce_inv_quad: bool | None = True
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the quadratic form and the log determinant by the chosen solver; parameters are linear_operator's."""
        has_both = inv_quad_rhs is not None and bool(logdet)
        solver = choose_solver(self, "likelihood" if has_both else "determinant" if logdet else "form")
        if not isinstance(solver, Factorized):
            check_entries(self)
        return solver.inv_quad_logdet(inv_quad_rhs, logdet, reduce_inv_quad)

    # What solvers need, computed once.

    @cached_property
    def independent_tasks(self) -> IndependentTasks | None:
        """Return the independent tasks, with their noise, to which this covariance is equal; None for others."""
        return independent_tasks(self._linear_op, self._diag_tensor)

    @property
    def in_double(self) -> PartitionAddedDiagLinearOperator:
        """Return the operator in float64, with its graph: the operator itself, if all its parts are float64."""
        return self if self.is_double else self._converted  # not cached: it would hold itself

    @cached_property
    @torch.enable_grad()  # it is kept, and may be wanted first by a solve, which has no graph
    def _converted(self) -> PartitionAddedDiagLinearOperator:
        total = self.evaluate_kernel()
        if not isinstance(total, PartitionAddedDiagLinearOperator):  # K is another library's
            total = PartitionAddedDiagLinearOperator(total._linear_op, total._diag_tensor)
        return total.to(dtype=torch.float64)

    @cached_property
    def is_double(self) -> bool:
        return all(part.dtype in (torch.float64, torch.int32, torch.int64) for part in self.representation())

    @cached_property
    def has_direct(self) -> bool:
        return has_direct_solver(self._linear_op.evaluate_kernel())

    @cached_property
    def direct(self) -> DirectSolver | None:
        """Return the solver by a factor in float64; None if matrices are too large or not positive definite."""
        return direct_solver(self._linear_op.evaluate_kernel(), self._diag_tensor._diagonal())

    @property
    def knows_direct(self) -> bool:
        double = self if self.is_double else self.__dict__.get("_converted")
        return double is not None and double.__dict__.get("direct") is not None

    @cached_property
    def feature_factor(self) -> FeatureFactor | None:
        """Return the factor L made from a sparse root of K; None if K has none, or float64 is too inexact for it."""
        return feature_factor(self._linear_op.evaluate_kernel(), self._diag_tensor._diagonal())

    @property
    def knows_feature_factor(self) -> bool:
        return self.__dict__.get("feature_factor") is not None

    @cached_property
    @torch.no_grad()
    def noise_share(self) -> float:
        """Return the smallest noise over the largest prior variance."""
        noise, prior = self._diag_tensor._diagonal(), self._linear_op.diagonal(dim1=-2, dim2=-1)
        return float(noise.min()) / max(float(prior.max()), torch.finfo(torch.float64).tiny)

    @cached_property
    def expected_iterations(self) -> float:
        return expected_iterations_of(self)

    @cached(name="dense_root")
    def dense_root(self) -> Tensor:
        """Return the Cholesky factor of A (`*batch x N x N`), with gradients."""
        check_resolution(self)
        return stable_cholesky(self.to_dense()).to(self.dtype)


CovarianceOperator._plus_noise = PartitionAddedDiagLinearOperator
