"""The predictive covariance as a linear operator, which solves only for the entries that are used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import LinearOperator, RootLinearOperator, TriangularLinearOperator
from linear_operator.utils.memoize import cached
from torch import Tensor

from gpytorch_partition.callers import not_compiled
from gpytorch_partition.clusters.incidence import same_codes, same_indices
from gpytorch_partition.inference.prediction import method_costs
from gpytorch_partition.inference.prediction.cluster_posterior import ClusterPosterior, KeptDraws, cluster_posterior
from gpytorch_partition.linalg.conjugate_gradients import CGResult, CGState, Rule, UnconvergedError, relative_residual
from gpytorch_partition.linalg.factors import symmetric_root
from gpytorch_partition.operators.algebra import structured_terms
from gpytorch_partition.operators.cluster_operators.cluster_operator import of_columns
from gpytorch_partition.operators.guards import CovarianceOperator, check_dense
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.progress import progress
from gpytorch_partition.settings import predictive_variances, variance_tolerance
from gpytorch_partition.solvers.decision_table import choose_solver
from gpytorch_partition.solvers.iterative_solvers import ConjugateGradients, InDouble
from gpytorch_partition.solvers.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator
from gpytorch_partition.solvers.solver import Dense, has_few_rows

_BLOCK_COLUMNS = 64  # test points solved for at once by conjugate gradients, at most
_WIDE_BLOCK = 512  # the same by a factor: columns of a covariance take a third of the time
_BLOCK_ENTRIES = 2**25  # entries of one block of right-hand sides, at most
_LEAST_RESIDUAL = 16  # smallest relative residual of columns that rounding allows, in units of roundoff
# Error of a variance, the difference of two numbers, in units of roundoff of the prior one: 11 were seen in float32.
_ROUNDED = 16


class _RefusedGradient(torch.autograd.Function):
    """The identity, whose derivative is an error."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, *left_out: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise RuntimeError(
            "predictive variances and covariances have no gradient by hyperparameters above max_cholesky_size training "
            "rows, unless it is asked for: predict inside gpytorch.settings.detach_test_caches(False)"
        )


# The covariances that methods of variances apply to.
_APPLIES_TO = {
    "feature_space": "one partition kernel and one level of noise",
    "factor": "sums of 6,000 columns at most, and of noise that float64 resolves",
    "samples": "partition kernels",
}


def _precisely_if_needed(method: Callable[..., Any]) -> Callable[..., Any]:
    """Compute a result of a predictive covariance again in float64 where its own dtype fails."""

    @not_compiled
    @wraps(method)
    def computed(self: PredictiveCovarianceLinearOperator, *args: Any, **kwargs: Any) -> Any:
        if not self.is_precise and not self._needs_precision:
            try:
                return method(self, *args, **kwargs)
            except UnconvergedError:
                self.noisy.has_failed = True
        if self.is_precise:
            return method(self, *args, **kwargs)
        args = tuple(arg.double() if torch.is_tensor(arg) else arg for arg in args)
        return getattr(self._in_double, method.__name__)(*args, **kwargs).to(dtype=self.dtype)

    return computed


class PredictiveCovarianceLinearOperator(CovarianceOperator):
    r"""
    Solve for the predictive covariance, :math:`K_{12} - K_{1x} (K_{xx} + D)^{-1} K_{x2}` (`*batch x N1 x N2`), on use.

    Unless solves are dense, the diagonal solves for blocks of at most 64 test points by preconditioned conjugate
    gradients: O(N m) per iteration and point, and O(64 N) workspace for any number of points. Each point's solve stops
    when its variance is certain to be within `tolerance` of the exact one. The exact error of the quadratic form after
    k steps is :math:`r_k^\top A^{-1} r_k \le r_k^\top D^{-1} r_k`, so the rule is a guarantee, up to rounding, and the
    value is an upper bound.

    All is computed in float64 where :func:`.choose_solver` says so, or conjugate gradients fail; where that fails too,
    a `NumericalWarning` is given.

    :param prior: `*batch x N1 x N2` prior covariance of the test points.
    :param left: `*batch x N1 x N` covariance of test and training points; `right` is `*batch x N2 x N`.
    :param noisy: `*batch x N x N` covariance of the training points plus noise.
    :param tolerance: Relative error of variances.
    :param is_dense: Whether solves use a Cholesky factor of the training covariance, which is kept; they then carry
        gradients.
    :param left_out: Tensors whose gradients are left out: asking for one is an error. (Default: none.)
    :param is_symmetric: Whether left and right points are the same. (Default: None, whether they are one object, which
        no longer holds after linear_operator has copied them in sums and blocks.)
    :param is_precise: Whether all parts are in float64, with the most precise solvers. (Default: False.)
    :param draws: Posterior draws that variances of earlier points have kept; new ones are added. (Default: None.)
    """

    def __init__(
        self,
        prior: LinearOperator,
        left: LinearOperator,
        right: LinearOperator,
        noisy: PartitionAddedDiagLinearOperator,
        *,
        tolerance: float,
        is_dense: bool,
        left_out: tuple[Tensor, ...] = (),
        is_symmetric: bool | None = None,
        is_precise: bool = False,
        draws: KeptDraws | None = None,
    ) -> None:
        options = {"tolerance": tolerance, "is_dense": is_dense, "left_out": left_out, "draws": draws}
        is_symmetric = left is right if is_symmetric is None else is_symmetric
        super().__init__(prior, left, right, noisy, **options, is_symmetric=is_symmetric, is_precise=is_precise)
        self.prior, self.left, self.right, self.noisy = prior, left, left if is_symmetric else right, noisy
        self.tolerance, self.is_dense, self.left_out = tolerance, is_dense, left_out
        self.is_precise, self.draws = is_precise, draws

    def _with(self, *parts: LinearOperator, **options: Any) -> PredictiveCovarianceLinearOperator:
        options = {**self._kwargs, "is_symmetric": parts[1] is parts[2], **options}
        return PredictiveCovarianceLinearOperator(*parts, **options)

    def _changed(self, change: Callable[[Any], Any], **options: Any) -> PredictiveCovarianceLinearOperator:
        left = change(self.left)
        right = left if self.left is self.right else change(self.right)
        return self._with(change(self.prior), left, right, change(self.noisy), **options)

    @property
    def _needs_precision(self) -> bool:
        return isinstance(choose_solver(self.noisy, "prediction", self.is_dense), InDouble)

    @cached_property
    @torch.enable_grad()
    def _in_double(self) -> PredictiveCovarianceLinearOperator:
        def change(part: Any) -> LinearOperator:
            return part.in_double if part is self.noisy else part.to(dtype=torch.float64)

        return self._changed(change, is_precise=True)

    def _size(self) -> torch.Size:
        return self.prior.shape

    def _transpose_nonbatch(self) -> LinearOperator:
        return self._with(self.prior.mT, self.right, self.left, self.noisy)

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> PredictiveCovarianceLinearOperator:
        return self._changed(lambda part: part.expand(*batch_shape, *part.matrix_shape))

    def _unsqueeze_batch(self, dim: int) -> LinearOperator:
        return self._expand_batch(self.batch_shape)._changed(lambda part: part._unsqueeze_batch(dim))

    def _permute_batch(self, *dims: int) -> LinearOperator:
        return self._expand_batch(self.batch_shape)._changed(lambda part: part._permute_batch(*dims))

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        if batch_indices and any(part.batch_shape != self.batch_shape for part in self._args):
            return self._expand_batch(self.batch_shape)._getitem(row_index, col_index, *batch_indices)
        every = slice(None)
        left = self.left._getitem(row_index, every, *batch_indices)
        same = self.left is self.right and same_indices((row_index,), (col_index,))
        right = left if same else self.right._getitem(col_index, every, *batch_indices)
        prior = self.prior._getitem(row_index, col_index, *batch_indices)
        noisy = self.noisy._getitem(every, every, *batch_indices) if batch_indices else self.noisy
        return self._with(prior, left, right, noisy)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        check_dense(self, "looking up single entries")
        return self.to_dense()[(*batch_indices, row_index, col_index)]

    @of_columns
    @_precisely_if_needed
    def _matmul(self, rhs: Tensor) -> Tensor:
        prior = self.prior @ rhs
        return prior - self.left @ self._weights_for(self.right.mT @ rhs, (rhs * prior).sum(-2))

    @cached(name="root_decomposition")
    @_precisely_if_needed
    def root_decomposition(self, method: str | None = None) -> LinearOperator:
        """
        Return a dense root: Cholesky's where solves are exact, else of eigenvectors, which tolerates errors of solves.

        Above `max_cholesky_size` test points it is an error: Lanczos roots would have large errors.
        """
        check_dense(self, "a root of the predictive covariance (for joint samples)")
        dense = self.to_dense()
        if self.is_dense:
            factor, failed = torch.linalg.cholesky_ex(dense)
            if not bool(failed.any()):
                return RootLinearOperator(TriangularLinearOperator(factor))
        return RootLinearOperator(_root_of_eigenvectors(dense.double()).to(dense.dtype))

    @_precisely_if_needed
    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """
        Draw joint samples (`num_samples x *batch x N`).

        Partition kernels and their sums are sampled pathwise, with a solve per sample, if points are more than
        `max_cholesky_size`, or (unless solves are dense) at least as many as samples. Otherwise samples come from a
        dense root, with a solve per point: an error for more than `max_cholesky_size` points in batches or sums with
        other terms.
        """
        posterior, prior = self._posterior, structured_terms(self.prior)
        have_clusters = all(isinstance(term, PartitionLinearOperator) for term in prior)
        is_above = self.size(-1) > linear_settings.max_cholesky_size.value()
        are_many = is_above or (not self.is_dense and num_samples <= self.size(-1))
        if posterior is not None and have_clusters and are_many:
            with torch.no_grad():
                method_costs.choose_for_samples(posterior, num_samples)
                samples = posterior.samples(num_samples, [term.left for term in prior])
            return self._refusing_gradients(samples)
        check_dense(self, "a root of the predictive covariance (for joint samples)")
        return super().zero_mean_mvn_samples(num_samples)

    def _refusing_gradients(self, values: Tensor) -> Tensor:
        return _RefusedGradient.apply(values, *self.left_out) if self.left_out else values

    @_precisely_if_needed
    def to_dense(self) -> Tensor:
        """Return the whole matrix, solved by blocks of test points; symmetric where rows and columns are the same."""
        if not self.shape.numel():
            return torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        is_symmetric = self.left is self.right
        if self._carries_gradients and is_symmetric:
            return self._differentiable_matrix()
        if (posterior := self._factored_posterior) is not None:
            root = posterior.factored_root()
            return self._refusing_gradients((root @ root.mT).to(self.dtype))
        if not self.is_dense and (posterior := self._posterior) is not None:
            method_costs.check_iterations(
                posterior, self.size(-1), method_costs.of_conjugate_gradients(self.noisy, self.size(-1))
            )
        blocks = [
            self.prior[..., block].to_dense() - self.left @ self._solve_block(block)
            for block in self._blocks("predictive covariance")
        ]
        dense = torch.cat(blocks, -1)
        return self._refusing_gradients(0.5 * (dense + dense.mT) if is_symmetric and not self.is_dense else dense)

    def _solve_block(self, block: slice) -> Tensor:
        columns = self._columns(block)
        if self.left is not self.right:
            return self._training_solve(columns)
        return self._weights_for(columns, self.prior.diagonal(dim1=-2, dim2=-1)[..., block])

    def _weights_for(self, columns: Tensor, prior: Tensor) -> Tensor:
        r"""
        Solve for columns :math:`K_{x2} v` (`*batch x N x t`) of points, or of combinations v of prior variances.

        Covariances are within `tolerance` of the product of the two standard deviations: the error :math:`e = w -
        A^{-1} k` changes a variance by :math:`\|e\|_A^2`, and a covariance by up to :math:`\|e\|_A \|w'\|_A`, where
        :math:`\|w'\|_A^2` is at most the other's prior variance.
        """
        if self.is_dense or self.left is not self.right:
            return self._training_solve(columns)
        return self._certain(columns, prior, self.tolerance**2, of_pairs=True).solution

    @property
    def _carries_gradients(self) -> bool:
        has_any = any(part.requires_grad for part in (self.prior, self.left, self.right, self.noisy))
        return not self.is_dense and torch.is_grad_enabled() and has_any

    def _differentiable_matrix(self) -> Tensor:
        r"""Return the matrix with a graph, from :math:`C W + W^\top C^\top - W^\top A W` with constant solutions W."""
        weights = torch.cat([self._solve_block(block) for block in self._blocks("predictive covariance")], -1)
        half = self.left.matmul(weights)
        dense = self.prior.to_dense() - half - half.mT + weights.mT @ self.noisy.matmul(weights)
        return 0.5 * (dense + dense.mT)

    def _diagonal(self) -> Tensor:
        return self._refusing_gradients(self._variances_by_the_cheapest_method())

    @_precisely_if_needed
    def _variances_by_the_cheapest_method(self) -> Tensor:
        if not self.shape.numel():
            return torch.zeros(self.shape[:-1], dtype=self.dtype, device=self.device)
        prior = self.prior.diagonal(dim1=-2, dim2=-1)
        if self.left is not self.right:
            return self._covariances(prior)
        needs_solves = self.is_dense or self._carries_gradients
        posterior = None if needs_solves else self._posterior
        method = "conjugate_gradients" if needs_solves else self._variance_method(posterior)
        if posterior is not None and method != "conjugate_gradients":
            return posterior.variances(method)
        variances = [
            self._variances(prior[..., block], self._columns(block)) for block in self._blocks("predictive variances")
        ]
        return torch.cat(variances, -1)

    @property
    def _posterior(self) -> ClusterPosterior | None:
        return cluster_posterior(self.noisy, self.left, is_precise=self.is_precise, kept=self.draws)

    @property
    def _factored_posterior(self) -> ClusterPosterior | None:
        """The posterior of the effects with a factor, if that takes less time than solves."""
        is_free = self.left is self.right and not self.is_dense and predictive_variances.value() == "auto"
        posterior = self._posterior if is_free else None
        if posterior is None or not method_costs.makes_factor(posterior, self.size(-1)):
            return None
        own = zip(structured_terms(self.prior), posterior.points)
        are_seen = (
            isinstance(term, PartitionLinearOperator) and same_codes(term.left, seen.rows) for term, seen in own
        )
        return posterior if all(are_seen) else None

    def _variance_method(self, posterior: ClusterPosterior | None) -> str:
        method = predictive_variances.value()
        if method == "auto":
            return "conjugate_gradients" if posterior is None else method_costs.cheapest_method(posterior)
        if method != "conjugate_gradients" and (posterior is None or not method_costs.can_take(posterior, method)):
            raise ValueError(
                f'predictive_variances("{method}") expected the covariance of {_APPLIES_TO[method]}, without batch '
                'dimensions: use "auto" or "conjugate_gradients"'
            )
        return method

    def _covariances(self, prior: Tensor) -> Tensor:
        forms = [
            (self._columns(block, self.left) * self._training_solve(self._columns(block))).sum(-2)
            for block in self._blocks("predictive covariances")
        ]
        return prior - torch.cat(forms, -1)

    def _variances(self, prior: Tensor, columns: Tensor) -> Tensor:
        r"""Return prior variances less the quadratic forms :math:`k^\top A^{-1} k` of the columns k."""
        if self.is_dense:
            return prior - (columns * self._training_solve(columns)).sum(-2)
        if self._carries_gradients:
            weights = self._certain(columns, prior, self.tolerance**2).solution
            return prior - ((2 * columns - self.noisy.matmul(weights)) * weights).sum(-2)
        form = self._certain(columns, prior, self.tolerance).quadratic_form.squeeze(-2)
        return (prior - form).clamp_min(0)

    def _variances_within(self, tolerance: float, prior: Tensor, of_pairs: bool) -> Rule:
        """
        Stop where a point's variance is certain to be within a fraction of the exact one.

        For pairs, the fraction is multiplied by the smallest share of a prior variance left to any point. The solve
        gets the part of the tolerance that rounding does not use.
        """
        noise = self.noisy._diag_tensor._diagonal().unsqueeze(-1)
        noise = noise.clamp_min(torch.finfo(noise.dtype).tiny)

        def is_certain(state: CGState) -> Tensor:
            shares = _shares(prior, state)
            least = shares.amin(-1, keepdim=True) if of_pairs else 1.0
            left = tolerance * (1 - self._rounding(shares)).clamp_min(0)
            error = (state.residual.square() / noise).sum(-2, keepdim=True)
            return error <= left * least * shares * prior.unsqueeze(-2)

        return is_certain

    def _rounding(self, shares: Tensor) -> Tensor:
        """Return the share of the tolerance that rounding uses (1: all), for variances as shares of prior ones."""
        return _ROUNDED * torch.finfo(shares.dtype).eps / shares / self.tolerance

    def _training_solve(self, columns: Tensor) -> Tensor:
        if self.is_dense:
            return Dense(self.noisy).solve(columns)
        # Between different points nothing but rounding bounds the error, in units of deviations that are not known.
        return self._solution(columns, relative_residual(_LEAST_RESIDUAL * torch.finfo(columns.dtype).eps)).solution

    def _certain(self, columns: Tensor, prior: Tensor, tolerance: float, of_pairs: bool = False) -> CGResult:
        certain = self._variances_within(tolerance, prior, of_pairs)
        rounded = relative_residual(_LEAST_RESIDUAL * torch.finfo(columns.dtype).eps)

        def stop(state: CGState) -> Tensor:
            return certain(state) | rounded(state) | (self._rounding(_shares(prior, state)) >= 1)

        return self._solution(columns, stop, certain)

    @torch.no_grad()
    def _solution(self, columns: Tensor, stop: Rule, certain: Rule | None = None) -> CGResult:
        solver = InDouble(self.noisy) if self.is_precise else ConjugateGradients(self.noisy)
        return solver.within(columns, stop, certain)

    def _columns(self, block: slice, cross: LinearOperator | None = None) -> Tensor:
        """Return dense columns :math:`K_{x2}` (`*batch x N x block`) for a block of test points."""
        return (self.right if cross is None else cross)[..., block, :].to_dense().mT

    def _blocks(self, description: str) -> Any:
        """Split test points into blocks whose dense columns stay small; batch elements count as columns."""
        column = self.right.batch_shape.numel() * self.right.size(-1)
        size = max(1, _BLOCK_ENTRIES // max(1, column))
        is_factored = self.is_precise and self.noisy.has_direct
        size = size if self.is_dense else min(_WIDE_BLOCK if is_factored else _BLOCK_COLUMNS, size)
        starts = range(0, self.right.size(-2), size)
        return progress([slice(start, start + size) for start in starts], description)


def predictive_covariance(
    prior: LinearOperator,
    cross: LinearOperator,
    noisy: PartitionAddedDiagLinearOperator,
    kind: type[PredictiveCovarianceLinearOperator] = PredictiveCovarianceLinearOperator,
    **others: Any,
) -> PredictiveCovarianceLinearOperator:
    """Return the predictive covariance of some points, with the tolerance and the dense limit of the settings."""
    options = {"tolerance": variance_tolerance.value(), "is_dense": has_few_rows(noisy)}
    return kind(prior, cross, cross, noisy, **options, **others)


def _shares(prior: Tensor, state: CGState) -> Tensor:
    """Return posterior variances as shares (`*batch x 1 x t`) of prior ones (`*batch x t`), from above."""
    prior = prior.unsqueeze(-2)
    left = (prior - state.quadratic_form) / torch.where(prior > 0, prior, 1)
    return torch.where(prior > 0, left.clamp_min(torch.finfo(prior.dtype).eps), 1.0)


def _root_of_eigenvectors(dense: Tensor) -> Tensor:
    """
    Return a root with the diagonal of a covariance that errors may have given negative eigenvalues.

    The eigenvectors of the correlations make points of small variance as accurate as others.
    """
    deviations = dense.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
    units = torch.where(deviations > 0, deviations, 1).unsqueeze(-1)
    root = symmetric_root(0.5 * (dense + dense.mT) / units / units.mT)
    lengths = root.norm(dim=-1, keepdim=True)
    return root * (deviations.unsqueeze(-1) / torch.where(lengths > 0, lengths, 1))
