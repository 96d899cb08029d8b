"""A covariance plus noise as a linear operator: its solves, log determinants, preconditioners and samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import (
    AddedDiagLinearOperator,
    CholLinearOperator,
    ConstantDiagLinearOperator,
    DiagLinearOperator,
    LinearOperator,
    SumLinearOperator,
    TriangularLinearOperator,
)
from linear_operator.utils.memoize import cached
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.linalg.conjugate_gradients import (
    CGResult,
    CGState,
    UnconvergedError,
    relative_residual,
)
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.linalg.random import solver_generator
from gpytorch_partition.operators import guards, quadrature
from gpytorch_partition.operators.accuracy import FEWEST_ITERATIONS, expected_iterations, solve_residual
from gpytorch_partition.operators.cluster_operators.cluster_operator import as_columns
from gpytorch_partition.operators.direct import MOST_COLUMNS, DirectSolver, direct_solver, is_small
from gpytorch_partition.operators.feature_factor import FeatureFactor, feature_factor, has_feature_factor
from gpytorch_partition.operators.few_clusters import FewClusters, few_clusters
from gpytorch_partition.operators.guards import CovarianceOperator, check_dense
from gpytorch_partition.operators.independent_tasks import IndependentTasks, independent_tasks
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.operators.preconditioners import (
    NystromPreconditioner,
    nystrom_preconditioner,
    partition_inverse,
)
from gpytorch_partition.operators.roots import exact_root, sum_of_roots

# The least noise, as a share of the prior variance, at which dense algebra in float32 gives posterior variances to a
# percent, and the share that float64 resolves, in units of its roundoff and rows.
_LEAST_SHARE = 1e-2
_RESOLVED = 100.0
_REMEDY = "Raise the noise (a constraint of the likelihood), or make the outputscale smaller."
_LEAST_USE = 1e-6  # relative residual of a factor above which it is of no use
_ROUNDED = 10.0  # the same for entries in float32, in units of its roundoff and the root of the rows


class PartitionAddedDiagLinearOperator(CovarianceOperator, AddedDiagLinearOperator):
    r"""
    The sum :math:`A = K + D` of a diagonal and any operator K with a fast product (`*batch x N x N`).

    Use it to solve with a covariance plus noise, or for its log determinant. `K.add_diagonal(noise)` returns it for an
    operator K of this package, and so do GPyTorch's likelihoods. For any other operator call
    `PartitionSumLinearOperator(K).add_diagonal(noise)`.

    It differs from its parent in that

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

    A solve costs one product with K per iteration, at most `max_cg_iterations`, and memory of four times the right-hand
    sides. The set-up of the preconditioner (:mod:`gpytorch_partition.operators.preconditioners`) is kept. Up to
    `max_cholesky_size` rows solves and log determinants are dense, :math:`O(N^3)`.

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
        """Return the sum of the evaluated covariance and the diagonal."""
        return self._linear_op.evaluate_kernel() + self._diag_tensor

    def __add__(self, other: Any) -> LinearOperator:
        if isinstance(other, DiagLinearOperator):
            return self.__class__(self._linear_op, self._diag_tensor + other)
        if isinstance(other, AddedDiagLinearOperator):
            return self + other._diag_tensor + other._linear_op
        return self.__class__(self._sum_of(self._linear_op, other), self._diag_tensor)

    @property
    def _terms(self) -> tuple[LinearOperator, DiagLinearOperator]:
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
        """
        Return the exact root (`*batch x N x (q + N)`) as an operator: the root of K beside that of the noise.

        :raises NotImplementedError: If no sparse root of K is known.
        """
        covariance, diagonal = self._terms
        return sum_of_roots(covariance.evaluate_kernel(), diagonal)

    def root_decomposition(self, method: str | None = None) -> LinearOperator:
        """
        Return a root: dense up to `max_cholesky_size` rows, the exact sparse one above.

        :raises RuntimeError: Above that size, if K has no sparse root or a dense method is named.
        """
        return super().root_decomposition(method) if method is not None or self._is_dense else exact_root(self)

    # Preconditioning.

    def _preconditioner(self) -> tuple[Callable | None, LinearOperator | None, Tensor | None]:
        """linear_operator's hook: the closure V -> P^-1 V, P itself and its log determinant, or None three times."""
        preconditioner = self._nystrom()
        if preconditioner is None:
            return None, None, None
        return preconditioner.inverse_closure(), preconditioner, preconditioner.log_determinant()

    def _solve_preconditioner(self) -> Callable | None:
        """linear_operator's hook for its own solves; None for independent tasks, which have their own."""
        return None if self.independent_tasks is not None else self.preconditioner_inverse()

    def preconditioner_inverse(self) -> Callable | None:
        """Return the preconditioner's inverse as a closure V -> P^-1 V, without its log determinant; None for none."""
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
        """The independent tasks, with their noise, that this covariance consists of; None for other covariances."""
        return independent_tasks(self._linear_op, self._diag_tensor)

    def _solve(
        self,
        rhs: Tensor,
        preconditioner: Callable[[Tensor], Tensor] | None = None,
        num_tridiag: int | None = 0,
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        if num_tridiag:
            return super()._solve(rhs, preconditioner, num_tridiag)
        if self.independent_tasks is not None:
            return self.independent_tasks.solve(rhs)
        batch_shape = torch.broadcast_shapes(rhs.shape[:-2], self.batch_shape)
        columns, rule = rhs.expand(*batch_shape, *rhs.shape[-2:]), relative_residual(solve_residual())
        try:
            return self.certain_solution(columns, rule, preconditioner=preconditioner).solution
        except UnconvergedError:
            return self.in_double.precise_solution(columns.double(), rule).solution.to(rhs.dtype)

    # Where conjugate gradients fail, solves are in float64, by a factor if matrices are small enough.

    has_failed = False  #: whether conjugate gradients have not converged, so that they need not be tried again

    @property
    def is_hard(self) -> bool:
        """Whether conjugate gradients are not tried: they have failed, or a factor is expected to take less time."""
        return self.has_failed or (self._is_small and self._expected_iterations > FEWEST_ITERATIONS)

    @property
    def most_iterations(self) -> int:
        """The number of iterations after which a better method is tried."""
        most = linear_settings.max_cg_iterations.value()
        return min(most, FEWEST_ITERATIONS) if self._is_small else most

    @property
    def _is_small(self) -> bool:
        return is_small(self)

    @cached_property
    @torch.no_grad()
    def _expected_iterations(self) -> float:
        """About how many iterations a solve takes; terms with a single cluster are left to the preconditioner."""
        terms = [term for term in self._terms_of_covariance if not _has_one_cluster(term)] or self._terms_of_covariance
        prior = sum(float(term.diagonal(dim1=-2, dim2=-1).mean()) for term in terms)
        share = float(self._diag_tensor._diagonal().min()) / max(prior, torch.finfo(torch.float64).tiny)
        return expected_iterations(self.size(-1), max(share, torch.finfo(torch.float64).tiny))

    @property
    def _terms_of_covariance(self) -> list[LinearOperator]:
        covariance = self._linear_op.evaluate_kernel()
        return list(covariance.linear_ops) if isinstance(covariance, SumLinearOperator) else [covariance]

    @cached_property
    @torch.enable_grad()  # it is kept, and may be wanted first by a solve, which has no graph
    def in_double(self) -> PartitionAddedDiagLinearOperator:
        """The operator in float64, with its graph; itself if all its parts are float64."""
        if self._is_double:
            return self
        total = self.evaluate_kernel()
        if not isinstance(total, PartitionAddedDiagLinearOperator):  # K is another library's
            total = PartitionAddedDiagLinearOperator(total._linear_op, total._diag_tensor)
        return total.to(dtype=torch.float64)

    @cached_property
    def _is_double(self) -> bool:
        return all(part.dtype in (torch.float64, torch.int32, torch.int64) for part in self.representation())

    @cached_property
    def has_direct(self) -> bool:
        """Whether matrices are small enough to factorize."""
        return DirectSolver.is_possible(self._linear_op.evaluate_kernel())

    @property
    def knows_direct(self) -> bool:
        """Whether the factor is computed already."""
        double = self if self._is_double else self.__dict__.get("in_double")
        return double is not None and double.__dict__.get("direct") is not None

    @cached_property
    def direct(self) -> DirectSolver | None:
        """The solver by a factor in float64; None where matrices are too large or not positive definite."""
        return direct_solver(self._linear_op.evaluate_kernel(), self._diag_tensor._diagonal())

    @cached_property
    def has_feature_factor(self) -> bool:
        """Whether K has a root of so few columns that the posterior of its coefficients has a factor."""
        return has_feature_factor(self._linear_op.evaluate_kernel())

    @cached_property
    def feature_factor(self) -> FeatureFactor | None:
        """The factor of the posterior of a root's coefficients; None where none exists, or rounding spoils it."""
        return feature_factor(self._linear_op.evaluate_kernel(), self._diag_tensor._diagonal())

    @property
    def knows_feature_factor(self) -> bool:
        """Whether the feature factor is computed already."""
        return self.__dict__.get("feature_factor") is not None

    @property
    def is_last_resort(self) -> bool:
        """Whether no method is better than conjugate gradients with this operator."""
        return self._is_double and not self.has_direct

    @cached_property
    @torch.no_grad()
    def noise_share(self) -> float:
        """The smallest noise over the largest prior variance."""
        noise, prior = self._diag_tensor._diagonal(), self._linear_op.diagonal(dim1=-2, dim2=-1)
        return float(noise.min()) / max(float(prior.max()), torch.finfo(torch.float64).tiny)

    @property
    def is_delicate(self) -> bool:
        """Whether dense algebra in the operator's dtype may change posterior variances by more than a percent."""
        return self.dtype != torch.float64 and self.noise_share < _LEAST_SHARE

    def check_resolution(self) -> None:
        """Warn if the noise is so small beside the prior variance that rounding in float64 hides it."""
        least = _RESOLVED * self.size(-1) * torch.finfo(torch.float64).eps
        if self.noise_share < least:
            warnings.warn(
                f"the noise is {self.noise_share:.1e} of the prior variance, and {self.size(-1):,} rows resolve "
                f"{least:.0e} of it in float64: means and variances may be wrong. {_REMEDY}",
                NumericalWarning,
                stacklevel=2,
            )

    def check_entries(self) -> None:
        """Warn if the noise is below the float32 rounding of entries, where a term is no partition kernel's."""
        if self.dtype == torch.float64:
            return
        if all(isinstance(term, PartitionLinearOperator) for term in self._terms_of_covariance):
            return
        least = _ROUNDED * torch.finfo(self.dtype).eps * self.size(-1) ** 0.5
        if self.noise_share < least:
            warnings.warn(
                f"the noise is {self.noise_share:.1e} of the prior variance, and a sum with a kernel whose entries are "
                f"rounded to {self.dtype} resolves {least:.0e} of it: means and variances may be wrong. Use float64, "
                "or raise the noise (a constraint of the likelihood).",
                NumericalWarning,
                stacklevel=2,
            )

    def certain_solution(
        self,
        columns: Tensor,
        stop: Callable[[CGState], Tensor],
        certain: Callable[[CGState], Tensor] | None = None,
        **options: Any,
    ) -> CGResult:
        r"""
        Return :math:`A^{-1} V` by conjugate gradients in the operator's dtype, without a graph.

        :param columns: `*batch x N x t` V.
        :param stop: The stopping rule.
        :param certain: The accuracy that the rule is for, if rounding may stop it too.
        :param options: `preconditioner` or `initial_guess` of
            :func:`~gpytorch_partition.linalg.conjugate_gradients.conjugate_gradients`.
        :raises UnconvergedError: If they do not converge, and :meth:`precise_solution` may be better.
        """
        if self.is_last_resort:
            return self.precise_solution(columns, stop, certain, **options)
        options = {"preconditioner": None if self.is_hard else self.preconditioner_inverse(), **options}
        if not self.is_hard:
            found = guards.conjugate_gradients(
                self._matmul,
                columns,
                stop,
                certain=certain,
                max_iterations=self.most_iterations,
                warn=False,
                **options,
            )
            if found.converged:
                return found
            self.has_failed = True
        raise UnconvergedError("conjugate gradients do not converge: solve in float64")

    @torch.no_grad()
    def precise_solution(
        self,
        columns: Tensor,
        stop: Callable[[CGState], Tensor],
        certain: Callable[[CGState], Tensor] | None = None,
        **options: Any,
    ) -> CGResult:
        """
        Return :math:`A^{-1} V` in float64, by a factor if possible, else by conjugate gradients with a warning if they
        fail.

        Call it on :meth:`in_double`, with columns and options in float64; parameters are those of
        :meth:`certain_solution`.
        """
        if self.has_direct and self.direct is not None:
            return self._factored_solution(self.direct, columns, stop if certain is None else certain)
        options = {"preconditioner": self.preconditioner_inverse(), **options}
        most = linear_settings.max_cg_iterations.value()
        found = guards.conjugate_gradients(self._matmul, columns, stop, certain=certain, max_iterations=most, **options)
        if not found.converged:
            self.check_resolution()
        return found

    def _factored_solution(
        self, direct: DirectSolver, columns: Tensor, certain: Callable[[CGState], Tensor]
    ) -> CGResult:
        """
        Solve by a factor of A, which is backward stable, or of clusters, whose residual is checked.

        A residual that is too large is a warning; a factor of no use is an error.
        """
        self.check_resolution()
        solution, residual = direct.refined(columns)
        form = ((columns + residual) * solution).sum(-2, keepdim=True)
        if direct.roots is None:
            return CGResult(solution, form, None, 0, True, residual)
        norm, size = (each.norm(dim=-2, keepdim=True) for each in (residual, columns))
        if bool((norm > _LEAST_USE * size).any()):
            raise UnconvergedError(f"{self._too_little_noise}. {_REMEDY}")
        is_certain = bool(certain(CGState(norm, size, form, solution, residual)).all())
        if not is_certain:
            told = f"{self._too_little_noise}: means and variances may be wrong. {_REMEDY}"
            warnings.warn(told, NumericalWarning, stacklevel=2)
        return CGResult(solution, form, None, 0, is_certain, residual)

    @property
    def _too_little_noise(self) -> str:
        return f"the noise is {self.noise_share:.1e} of the prior variance, too little for a factor in float64"

    def inv_quad_logdet(
        self, inv_quad_rhs: Tensor | None = None, logdet: bool | None = False, reduce_inv_quad: bool | None = True
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return linear_operator's quadratic form and log determinant, by clusters or independent tasks if possible."""
        parts: FewClusters | IndependentTasks | None = few_clusters(self._linear_op, self._diag_tensor)
        if parts is None and not self._has_dense_log_prob:
            parts = self.independent_tasks
        if parts is None or inv_quad_rhs is None or not logdet:
            return self._general_inv_quad_logdet(inv_quad_rhs, logdet, reduce_inv_quad)
        forms = self._quadratic_forms(inv_quad_rhs, parts)
        return forms.sum(-1) if reduce_inv_quad else forms, parts.log_determinant()

    def _general_inv_quad_logdet(
        self, rhs: Tensor | None, logdet: bool | None, reduce: bool | None
    ) -> tuple[Tensor | None, Tensor | None]:
        self.check_entries()
        if self._has_dense_log_prob:
            return (
                self._factored_inv_quad_logdet(rhs, logdet, reduce)
                if self.is_delicate
                else self._usual(rhs, logdet, reduce)
            )
        if not logdet:
            return self._usual(rhs, logdet, reduce)
        if self.is_hard:
            return self._factored_inv_quad_logdet(rhs, logdet, reduce)
        try:
            with quadrature.checked(self._least_eigenvalue(), is_fatal=self.has_direct, most=self.most_iterations):
                return self._usual(rhs, logdet, reduce)
        except UnconvergedError:
            return self._factored_inv_quad_logdet(rhs, logdet, reduce)

    def _usual(self, rhs: Tensor | None, logdet: bool | None, reduce: bool | None) -> Any:
        return super().inv_quad_logdet(rhs, logdet, reduce)

    def _least_eigenvalue(self) -> float:
        r"""
        A lower bound of the eigenvalues of :math:`P^{-1/2} A P^{-1/2}`, or of A without a preconditioner.

        :math:`A \succeq P - s \lambda_\ell I`, since a Nystrom approximation is at most K.
        """
        noise, preconditioner = self._diag_tensor._diagonal().detach(), self._nystrom()
        if preconditioner is None:
            return max(float(noise.min()), torch.finfo(torch.float64).tiny)
        shift = (preconditioner.scale * preconditioner.factor.shift).detach().unsqueeze(-1)
        return max(float((noise / (noise + shift)).min()), torch.finfo(torch.float64).tiny)

    def _factored_inv_quad_logdet(self, rhs: Tensor | None, logdet: bool | None, reduce: bool | None) -> Any:
        """Use a factor in float64, with gradients: exact for up to 6,000 rows, from probe vectors for more."""
        double, columns = self.in_double, None if rhs is None else rhs.double()
        self.check_resolution()
        if self._is_small and self.shape.numel() <= MOST_COLUMNS**2:
            factor = CholLinearOperator(TriangularLinearOperator(double._dense_root()))
            form, determinant = factor.inv_quad_logdet(columns, logdet, reduce)
        else:
            form, determinant = double._surrogates(columns, reduce)
        return None if form is None else form.to(self.dtype), None if determinant is None else determinant.to(
            self.dtype
        )

    def _surrogates(self, rhs: Tensor | None, reduce: bool | None) -> tuple[Tensor | None, Tensor]:
        """
        Both terms, with derivatives exact for quadratic forms and from probe vectors for the log determinant.

        :raises UnconvergedError: If clusters have no factor in float64.
        """
        if (direct := self.direct) is None:
            raise UnconvergedError(f"{self._too_little_noise}. {_REMEDY}")
        generator = solver_generator(settings.probe_seed.value(), "probes", self.device)
        size = (self.size(-1), linear_settings.num_trace_samples.value())
        probes = torch.randn(size, generator=generator, dtype=self.dtype, device=self.device)
        with torch.no_grad():
            value, weights = direct.log_determinant(), direct.solve(probes)
        trace = (weights * self.matmul(probes)).sum() / size[-1]
        determinant = value + trace - trace.detach()
        forms = None if rhs is None else self._quadratic_forms(rhs, direct)
        return forms.sum(-1) if forms is not None and reduce else forms, determinant

    @property
    def _has_dense_log_prob(self) -> bool:
        return self._is_dense or linear_settings.fast_computations.log_prob.off()

    @property
    def _is_dense(self) -> bool:
        return self.size(-1) <= linear_settings.max_cholesky_size.value()

    def _quadratic_forms(self, rhs: Tensor, parts: FewClusters | IndependentTasks | DirectSolver) -> Tensor:
        r"""
        :math:`2 v^\top w - w^\top A w` (`*batch x t`) for each column v (`*batch x NT x t`), with a constant w.

        At :math:`w = A^{-1} v` this is :math:`v^\top A^{-1} v`, with the same derivatives.
        """
        columns = as_columns(rhs)
        weights = parts.solve(columns.detach())
        return ((2 * columns - self.matmul(weights)) * weights).sum(-2)

    def dense_solve(self, rhs: Tensor) -> Tensor:
        """
        Return :math:`A^{-1} V` (`*batch x N x t`) by a dense Cholesky factor, :math:`O(N^3)` once, with gradients.

        :param rhs: `*batch x N x t` V.
        """
        return torch.cholesky_solve(rhs, self._dense_root())

    @cached(name="dense_root")
    def _dense_root(self) -> Tensor:
        self.check_resolution()
        return stable_cholesky(self.to_dense()).to(self.dtype)

    def root_inv_decomposition(
        self, method: str | None = None, initial_vectors: Tensor | None = None, test_vectors: Tensor | None = None
    ) -> LinearOperator:
        """
        Return a root of the inverse, for up to `max_cholesky_size` rows: Lanczos roots have large errors here.

        :raises RuntimeError: For more rows.
        """
        check_dense(self, "a root of the inverse")
        return super().root_inv_decomposition(method, initial_vectors, test_vectors)


def _has_one_cluster(term: LinearOperator) -> bool:
    return isinstance(term, PartitionLinearOperator) and term.left.num_clusters == 1
