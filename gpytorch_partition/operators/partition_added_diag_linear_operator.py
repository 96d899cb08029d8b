"""A covariance plus noise as a linear operator: its solves, log determinants, preconditioners and samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import (
    AddedDiagLinearOperator,
    ConstantDiagLinearOperator,
    DiagLinearOperator,
    LinearOperator,
)
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.memoize import cached
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.linalg.random import solver_generator
from gpytorch_partition.operators.cluster_operators.cluster_operator import as_columns
from gpytorch_partition.operators.few_clusters import FewClusters, few_clusters
from gpytorch_partition.operators.guards import CovarianceOperator, check_dense
from gpytorch_partition.operators.independent_tasks import IndependentTasks, independent_tasks
from gpytorch_partition.operators.preconditioners import (
    NystromPreconditioner,
    nystrom_preconditioner,
    partition_inverse,
)
from gpytorch_partition.operators.roots import exact_root, sum_of_roots


class PartitionAddedDiagLinearOperator(CovarianceOperator, AddedDiagLinearOperator):
    r"""
    :math:`A = K + D` for any operator K with a fast product (`*batch x N x N`).

    Differs from its parent in that

    - conjugate gradients stop column by column and have no absolute threshold (GPyTorch's stalls at a relative
      residual near 1e-5), at a relative residual of `cg_tolerance` or 1e-4, whichever is smaller; together with log
      determinants, of `cg_tolerance` or 1e-2;
    - log determinants take `max_lanczos_quadrature_iterations` Lanczos steps or 100, whichever are more;
    - the preconditioner is the one chosen in :class:`gpytorch_partition.settings.preconditioner`, from
      `min_preconditioning_size` rows on, with gradients through both its log determinant and its probes;
    - probe vectors come from a generator of their own, the same at every call: the marginal likelihood is a
      deterministic function of the hyperparameters;
    - samples are those of K plus independent noise: exact where K's are;
    - with flat partitions of few clusters whose weights are trained, likelihoods are exact, by p x p matrices
      (:mod:`gpytorch_partition.operators.few_clusters`);
    - for all points on all of T tasks, solves and log determinants are those of T independent tasks
      (:mod:`gpytorch_partition.operators.independent_tasks`);
    - a dense factorization above `max_cholesky_size` rows raises a `RuntimeError`.

    A solve costs one product with K per iteration, at most `max_cg_iterations`, and the preconditioner's set-up
    (:mod:`gpytorch_partition.operators.preconditioners`), which is kept; its memory is four times its right-hand sides.
    Up to `max_cholesky_size` rows solves and log determinants are dense, :math:`O(N^3)`.

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

    _nystrom_preconditioner: NystromPreconditioner | None = None

    def evaluate_kernel(self) -> LinearOperator:
        """The sum of the evaluated covariance and the diagonal."""
        return self._linear_op.evaluate_kernel() + self._diag_tensor

    def __add__(self, other: Any) -> LinearOperator:
        if isinstance(other, DiagLinearOperator):
            return self.__class__(self._linear_op, self._diag_tensor + other)
        if isinstance(other, AddedDiagLinearOperator):
            return self + other._diag_tensor + other._linear_op
        return self.__class__(self._sum_of(self._linear_op, other), self._diag_tensor)

    @property
    def _terms(self) -> tuple[LinearOperator, DiagLinearOperator]:
        """K and D, both with the batch shape of the sum."""
        shape = self.shape
        covariance, diagonal = self._linear_op, self._diag_tensor
        return (
            covariance if covariance.shape == shape else covariance.expand(shape),
            diagonal if diagonal.shape == shape else diagonal.expand(shape),
        )

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        covariance, diagonal = (term._getitem(row_index, col_index, *batch_indices) for term in self._terms)
        return covariance + diagonal

    def restricted_to(self, rows: Tensor) -> PartitionAddedDiagLinearOperator:
        """The covariance plus noise (`*batch x n x n`) of some of the points, given their row numbers (`n`, int64)."""
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
        """Samples from N(0, K + D), `num_samples x *batch x N`, from the global random state as in linear_operator."""
        covariance, diagonal = self._terms
        noise = torch.randn(num_samples, *self.shape[:-1], dtype=self.dtype, device=self.device)
        return covariance.zero_mean_mvn_samples(num_samples) + diagonal._diagonal().sqrt() * noise

    def sparse_root(self) -> LinearOperator:
        """
        The exact root (`*batch x N x (q + N)`), as an operator: that of K beside the noise's.

        :raises NotImplementedError: If K has no root that is known and not dense.
        """
        covariance, diagonal = self._terms
        return sum_of_roots(covariance.evaluate_kernel(), diagonal)

    def root_decomposition(self, method: str | None = None) -> LinearOperator:
        """
        A root: dense up to `max_cholesky_size` rows, the exact sparse one above.

        :raises RuntimeError: Above, if K has none; or if a dense method is named.
        """
        return super().root_decomposition(method) if method is not None or self._is_small else exact_root(self)

    # Preconditioning.

    def _preconditioner(self) -> tuple[Callable | None, LinearOperator | None, Tensor | None]:
        """linear_operator's hook: the closure V -> P^-1 V, P itself and its log determinant, or None three times."""
        preconditioner = self._nystrom()
        if preconditioner is None:
            return None, None, None
        return preconditioner.inverse_closure(), preconditioner, preconditioner.log_determinant()

    def _solve_preconditioner(self) -> Callable | None:
        """linear_operator's hook for its own solves: None where those of independent tasks have preconditioners."""
        return None if self.independent_tasks is not None else self.preconditioner_inverse()

    def preconditioner_inverse(self) -> Callable | None:
        """The preconditioner's inverse as a closure V -> P^-1 V, which needs no log determinant; None for none."""
        if self._is_preconditioned("partition"):
            return partition_inverse(self._linear_op.evaluate_kernel(), self._diag_tensor)
        preconditioner = self._nystrom()
        return None if preconditioner is None else preconditioner.inverse_closure()

    def _nystrom(self) -> NystromPreconditioner | None:
        if not self._is_preconditioned("nystrom"):
            return None
        if self._nystrom_preconditioner is None:
            self._nystrom_preconditioner = nystrom_preconditioner(self._linear_op.evaluate_kernel(), self._diag_tensor)
        return self._nystrom_preconditioner

    def _is_preconditioned(self, name: str) -> bool:
        """Whether this preconditioner is chosen, and the matrix large enough for one by GPyTorch's own settings."""
        wanted = linear_settings.max_preconditioner_size.value() > 0
        large = self.size(-1) >= linear_settings.min_preconditioning_size.value()
        return wanted and large and settings.preconditioner.value() == name

    def _probe_vectors_and_norms(self) -> tuple[Tensor, Tensor]:
        """Fixed draws from N(0, P) as unit vectors (`*batch x N x probes`) and their norms."""
        generator = solver_generator(settings.probe_seed.value(), "probes", self.device)
        num_probes, preconditioner = linear_settings.num_trace_samples.value(), self._nystrom()
        with torch.no_grad():
            if preconditioner is None:
                size = (*self.shape[:-1], num_probes)
                probes = torch.randn(size, generator=generator, dtype=self.dtype, device=self.device)
            else:
                probes = preconditioner.sample(num_probes, generator)
        norms = probes.norm(dim=-2, keepdim=True)
        return probes / norms, norms

    # Solving.

    @cached_property
    def independent_tasks(self) -> IndependentTasks | None:
        """The independent tasks that this is a covariance of, with their noise; None for other covariances."""
        return independent_tasks(self._linear_op, self._diag_tensor)

    def _solve(
        self,
        rhs: Tensor,
        preconditioner: Callable[[Tensor], Tensor] | None = None,
        num_tridiag: int | None = 0,
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        if self.independent_tasks is None or num_tridiag:
            return super()._solve(rhs, preconditioner, num_tridiag)
        return self.independent_tasks.solve(rhs)

    def inv_quad_logdet(
        self, inv_quad_rhs: Tensor | None = None, logdet: bool | None = False, reduce_inv_quad: bool | None = True
    ) -> tuple[Tensor | None, Tensor | None]:
        """linear_operator's quadratic form and log determinant, by few clusters or independent tasks if possible."""
        parts: FewClusters | IndependentTasks | None = few_clusters(self._linear_op, self._diag_tensor)
        if parts is None and not self._has_dense_log_prob:
            parts = self.independent_tasks
        if parts is None or inv_quad_rhs is None or not logdet:
            return super().inv_quad_logdet(inv_quad_rhs, logdet, reduce_inv_quad)
        forms = self._quadratic_forms(inv_quad_rhs, parts)
        return forms.sum(-1) if reduce_inv_quad else forms, parts.log_determinant()

    @property
    def _has_dense_log_prob(self) -> bool:
        return self._is_small or linear_settings.fast_computations.log_prob.off()

    @property
    def _is_small(self) -> bool:
        return self.size(-1) <= linear_settings.max_cholesky_size.value()

    def _quadratic_forms(self, rhs: Tensor, parts: FewClusters | IndependentTasks) -> Tensor:
        r"""
        :math:`2 v^\top w - w^\top A w` (`*batch x t`) for each column v (`*batch x NT x t`), with a constant w.

        At :math:`w = A^{-1} v` this is :math:`v^\top A^{-1} v`, and so are its derivatives.
        """
        columns = as_columns(rhs)
        weights = parts.solve(columns.detach())
        return ((2 * columns - self.matmul(weights)) * weights).sum(-2)

    def dense_solve(self, rhs: Tensor) -> Tensor:
        """
        :math:`A^{-1} V` (`*batch x N x t`) by a dense Cholesky factor, :math:`O(N^3)` once, with gradients.

        :param rhs: `*batch x N x t` V.
        """
        return torch.cholesky_solve(rhs, self._dense_root())

    @cached(name="dense_root")
    def _dense_root(self) -> Tensor:
        return psd_safe_cholesky(self.to_dense())

    def root_inv_decomposition(
        self, method: str | None = None, initial_vectors: Tensor | None = None, test_vectors: Tensor | None = None
    ) -> LinearOperator:
        """
        A root of the inverse, for up to `max_cholesky_size` rows: Lanczos roots have large errors for these spectra.

        :raises RuntimeError: For more rows.
        """
        check_dense(self, "a root of the inverse")
        return super().root_inv_decomposition(method, initial_vectors, test_vectors)
