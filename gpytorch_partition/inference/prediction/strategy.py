"""GPyTorch's prediction strategy for partition kernels: means by sums over clusters, and the cheapest variances."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cached_property, partial, reduce
from operator import add
from typing import Any, cast

import torch
from gpytorch import settings as gpytorch_settings
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from gpytorch.utils.memoize import add_to_cache, cached
from linear_operator import settings as linear_settings
from linear_operator import to_linear_operator
from linear_operator.operators import (
    CholLinearOperator,
    LinearOperator,
    RootLinearOperator,
    TriangularLinearOperator,
    ZeroLinearOperator,
)
from torch import Tensor

from gpytorch_partition.callers import not_compiled
from gpytorch_partition.inference.prediction.cluster_posterior import (
    ClusterPosterior,
    EffectTables,
    KeptDraws,
    cluster_posterior,
)
from gpytorch_partition.inference.prediction.predictive_covariance import (
    PredictiveCovarianceLinearOperator,
    predictive_covariance,
)
from gpytorch_partition.linalg.conjugate_gradients import CGState, Rule, UnconvergedError, relative_residual
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.operators.algebra import structured_terms
from gpytorch_partition.operators.guards import LARGEST_MEAN_ERROR, MEAN_ERROR, prediction_residual
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.operators.tasks import single_task
from gpytorch_partition.solvers.decision_table import choose_solver
from gpytorch_partition.solvers.direct import MOST_COLUMNS, MOST_ROWS, is_small
from gpytorch_partition.solvers.factorizations import IndependentTasks
from gpytorch_partition.solvers.iterative_solvers import ConjugateGradients, InDouble, check_entries, is_delicate
from gpytorch_partition.solvers.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator
from gpytorch_partition.solvers.solver import Dense, has_few_rows


class PartitionPredictionStrategy(DefaultPredictionStrategy):
    r"""
    The predictions of an exact GP whose covariance is a partition operator or a sum with one.

    - The mean is :math:`\mu + Z_* (S Z^\top \alpha)`: a table with one weight per cluster (and loading), computed once,
      and O(m) look-ups per test point.
    - The covariance is a :class:`PredictiveCovarianceLinearOperator`, which solves only for what is used:
      `.mean` alone costs no solve. GPyTorch's `fast_pred_var` (Lanczos roots of rank 100, off by tens of percent
      and more on these kernels) is ignored.
    - Under `observation_nan_policy("mask")` rows without a target do not enter means and variances; `"fill"` is the
      same here, and requires targets to be missing at the same rows in all batch elements.
    - Fantasies re-solve from the old solution instead of updating Lanczos roots.

    Up to `max_cholesky_size` training rows GPyTorch's dense algebra is used. Above, variances carry gradients by
    hyperparameters with `detach_test_caches` off, and by points that require them. Asking for any other gradient is an
    error.
    """

    num_samples_beside_noise: int | None = None  # for deviations of new observations, once an estimator has chosen it

    @not_compiled
    def __init__(self, train_inputs: Any, train_prior_dist: Any, train_labels: Tensor, likelihood: Any) -> None:
        # Evaluated before the likelihood adds noise, so that noise is added to our operator and not to the lazy kernel.
        covariance = train_prior_dist.lazy_covariance_matrix.evaluate_kernel()
        prior = _with_covariance(train_prior_dist, covariance)
        super().__init__(train_inputs, prior, train_labels, likelihood)
        self._effects: Tensor | None = None  # posterior means of cluster effects
        self._tables, self._precise_tables, self._draws = EffectTables(), EffectTables(), KeptDraws()
        self._precise_weights: Tensor | None = None  # in float64 (`*batch x N x 1`), where those in the mean cache fail

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as None: a model makes its strategy again when it predicts, and N x m codes are not in the file."""
        return type(None), ()

    def __deepcopy__(self, memo: dict[int, Any]) -> PartitionPredictionStrategy | None:
        """Copy all that was computed, as fantasies of a copied model need it; None if that has graphs of gradients."""
        new, own = self.__class__.__new__(self.__class__), dict(memo)
        own[id(self)] = new
        try:
            new.__dict__.update(deepcopy(self.__dict__, own))
        except RuntimeError:
            return None
        memo.update(own)
        return new

    @property
    def _is_dense(self) -> bool:
        return self.num_train <= linear_settings.max_cholesky_size.value()

    @not_compiled
    def exact_prediction(self, test_mean: Tensor, test_test_covar: Any, test_train_covar: Any) -> tuple[Tensor, Any]:
        """Return the predictive mean and covariance; the mean is no dense product, whose rounding depends on N_test."""
        mean = self.exact_predictive_mean(test_mean, test_train_covar)
        is_small = sum(test_train_covar.shape[-2:]) <= gpytorch_settings.max_eager_kernel_size.value()
        if is_small and not (self._is_dense and self._is_delicate):
            test_train_covar, test_test_covar = test_train_covar.to_dense(), test_test_covar.to_dense()
        return mean, self.exact_predictive_covar(test_test_covar, test_train_covar)

    def exact_predictive_mean(self, test_mean: Tensor, test_train_covar: LinearOperator | Tensor) -> Tensor:
        """Return the predictive mean, `*batch x N_test`."""
        posterior = self._decomposed_posterior(test_train_covar)
        if posterior is not None:
            return test_mean + posterior.points[0].row_values(self._mean_effects(posterior)).squeeze(-1)
        alpha = self.mean_cache.unsqueeze(-1)
        if self._precise_weights is not None:
            double = to_linear_operator(test_train_covar).to(dtype=torch.float64)
            parts = self._means_of_terms(double, self._precise_weights, self._precise_tables)
            return test_mean + torch.stack(list(parts)).sum(0).to(test_mean)
        if gpytorch_settings.observation_nan_policy.value() != "ignore":
            alpha = alpha.nan_to_num(nan=0)  # rows without a target have no weight
        if torch.is_tensor(test_train_covar) or alpha.requires_grad:
            return test_mean + (test_train_covar @ alpha).squeeze(-1)
        return reduce(add, self._means_of_terms(test_train_covar, alpha, self._tables), test_mean)

    def _decomposed_posterior(self, test_train_covar: LinearOperator | Tensor) -> ClusterPosterior | None:
        """Return the posterior of cluster effects, if a fit or variances have built its feature space already."""
        is_dense = self._is_dense or self._factor is not None or torch.is_tensor(test_train_covar)
        if is_dense or self.lik_train_train_covar.requires_grad:
            return None
        posterior = cluster_posterior(self._noisy, test_train_covar)
        has_covariance = posterior is not None and posterior.has_covariance and self._rows_with_targets() is None
        return posterior if has_covariance else None

    @torch.no_grad()
    def _mean_effects(self, posterior: ClusterPosterior) -> Tensor:
        if self._effects is None:
            self._effects = posterior.mean_effects(self.train_labels - self.train_prior_dist.loc)
        return self._effects

    @cached(name="mean_cache")
    def _mean_cache(self, nan_policy: str) -> Tensor:
        r"""Return the weights :math:`\alpha = (K + D)^{-1} (y - \mu)` (`*batch x N`); NaN where targets are missing."""
        rows = self._rows_with_targets()
        offset = (self.train_labels - self.train_prior_dist.loc).unsqueeze(-1)
        if rows is None and self._factor is not None:
            alpha = self._factor.solve(offset).squeeze(-1)
        elif rows is None:
            alpha = self._weights(self._noisy, offset).squeeze(-1)
        else:
            alpha = torch.full_like(self.train_labels, torch.nan)
            alpha[..., rows] = self._weights(self._noisy.restricted_to(rows), offset[..., rows, :], rows).squeeze(-1)
        return alpha.detach() if gpytorch_settings.detach_test_caches.on() else alpha

    def _weights(
        self, noisy: PartitionAddedDiagLinearOperator, offset: Tensor, rows: Tensor | None = None, **options: Any
    ) -> Tensor:
        r"""
        Return :math:`(K + D)^{-1} (y - \mu)` (`*batch x N x 1`), kept in float64 where its own dtype does not suffice.

        Means at the training rows are within a few hundredths of the noise's standard deviation; an error if they would
        be wrong by more than a tenth of it.
        """
        carries_gradients = gpytorch_settings.detach_test_caches.off() and torch.is_grad_enabled()
        if carries_gradients or noisy.independent_tasks is not None:
            return noisy.solve(offset)
        solver = choose_solver(noisy, "prediction", self._is_dense)
        if isinstance(solver, Dense):
            return noisy.solve(offset)
        with torch.no_grad():
            if isinstance(solver, ConjugateGradients):
                try:
                    return solver.within(offset, _accurate_means(noisy), **options).solution
                except UnconvergedError:
                    pass  # which is remembered
            double = noisy.in_double
            solution = (Dense(double).solve if self._is_dense else partial(_checked, double))(offset.double())
            if offset.dtype != torch.float64:
                self._precise_weights = solution if rows is None else _spread(solution, rows, self.num_train)
            return solution.to(offset.dtype)

    def _rows_with_targets(self) -> Tensor | None:
        missing = torch.isnan(self.train_labels).reshape(-1, self.num_train)
        policy = gpytorch_settings.observation_nan_policy.value()
        if policy == "ignore" or not bool(missing.any()):
            return None
        if policy == "fill" and not torch.equal(missing, missing[:1].expand_as(missing)):
            raise NotImplementedError(
                "expected targets to be missing at the same rows in all batch elements: use "
                'observation_nan_policy("mask"), which leaves out a row that any element misses, or one model each.'
            )
        return (~missing.any(0)).nonzero().squeeze(-1)

    @staticmethod
    def _means_of_terms(cross: LinearOperator, alpha: Tensor, tables: EffectTables) -> Iterator[Tensor]:
        for place, term in enumerate(structured_terms(cross)):
            if not isinstance(term, PartitionLinearOperator) or term.cluster_operator.requires_grad:
                yield (term @ alpha).squeeze(-1)  # with gradients of weights that are trained
            elif term.right_loadings is not None and term.right_loadings.requires_grad:
                yield term.row_values(term.cluster_product(term.cluster_sums(alpha))).squeeze(-1)
            else:
                yield term.row_values(tables.of(place, term, alpha)).squeeze(-1)

    def exact_predictive_covar(
        self, test_test_covar: LinearOperator | Tensor, test_train_covar: LinearOperator | Tensor
    ) -> LinearOperator:
        """Return the predictive covariance, `*batch x N_test x N_test`."""
        if gpytorch_settings.skip_posterior_variances.on():
            return ZeroLinearOperator(*test_test_covar.size())
        rows = self._rows_with_targets()
        if torch.is_tensor(test_train_covar) and rows is None and self._is_dense:
            return super().exact_predictive_covar(test_test_covar, test_train_covar)
        prior, cross = to_linear_operator(test_test_covar), to_linear_operator(test_train_covar)
        if rows is None and self._factor is not None:
            return prior + RootLinearOperator(self._factor.root.solve(cross.to_dense().mT).mT).mul(-1)
        noisy = self._noisy
        left_out: tuple[Tensor, ...] = ()
        if not self._is_dense and not _carries_gradients(test_test_covar):
            left_out = _tensors_with_gradients(prior, cross)
            prior, cross = prior.detach(), cross.detach()
        if rows is not None:
            cross, noisy = cross[..., :, rows], noisy.restricted_to(rows)
        of_tasks = not self._is_dense and TaskPredictiveCovarianceLinearOperator.is_possible(prior, cross, noisy)
        kind = TaskPredictiveCovarianceLinearOperator if of_tasks else PredictiveCovarianceLinearOperator
        draws = self._draws if rows is None else None
        return predictive_covariance(prior, cross, noisy, kind, left_out=left_out, draws=draws)

    @cached_property
    def _factor(self) -> CholLinearOperator | None:
        """The factor of a covariance with correlated noise; None for independent noise, and for many rows."""
        noisy = self.lik_train_train_covar.evaluate_kernel()
        if isinstance(noisy, PartitionAddedDiagLinearOperator) or not is_small(noisy):
            return None
        noisy = noisy if gpytorch_settings.detach_test_caches.off() else noisy.detach()
        return CholLinearOperator(TriangularLinearOperator(stable_cholesky(noisy.to_dense()).to(noisy.dtype)))

    @cached_property
    def _noisy(self) -> LinearOperator:
        noisy = self.lik_train_train_covar.evaluate_kernel()
        if not isinstance(noisy, PartitionAddedDiagLinearOperator):
            raise RuntimeError(
                f"expected a partition kernel's covariance plus independent noise, got a {type(noisy).__name__}. Noise "
                "of several tasks: one that is not singular, such as MultitaskGaussianLikelihood(num_tasks, rank=1, "
                "has_global_noise=True). Covariance: build a MultitaskKernel, not a subclass, around the kernel "
                "instead of replacing its data kernel later"
            )
        check_entries(noisy)
        return noisy if gpytorch_settings.detach_test_caches.off() else noisy.detach()

    @property
    def _is_delicate(self) -> bool:
        if self.train_labels.dtype == torch.float64:
            return False
        noisy = self.lik_train_train_covar.evaluate_kernel()
        return isinstance(noisy, PartitionAddedDiagLinearOperator) and is_delicate(self._noisy)

    def get_fantasy_strategy(
        self, inputs: Any, targets: Tensor, full_inputs: Any, full_targets: Tensor, full_output: Any, **kwargs: Any
    ) -> PartitionPredictionStrategy:
        """Return the strategy with fantasy observations added to the training data, solved from the old solution."""
        prior = _with_covariance(full_output, full_output.lazy_covariance_matrix.evaluate_kernel())
        batch_shape = torch.broadcast_shapes(full_targets.shape[:-1], prior.batch_shape)
        if prior.batch_shape != batch_shape:
            prior = prior.expand(batch_shape)
            full_inputs = [x.expand(*batch_shape, *x.shape[-2:]) for x in full_inputs]
        likelihood = self.likelihood.get_fantasy_likelihood(**kwargs)
        strategy = self.__class__(full_inputs, prior, full_targets, likelihood)
        if not strategy._is_dense and gpytorch_settings.observation_nan_policy.value() == "ignore":
            add_to_cache(strategy, "mean_cache", strategy._solution_from(self.mean_cache), "ignore")
        return strategy

    @torch.no_grad()
    def _solution_from(self, old: Tensor) -> Tensor:
        offset = (self.train_labels - self.train_prior_dist.loc).unsqueeze(-1)
        guess = torch.zeros_like(offset)
        guess[..., : old.shape[-1], 0] = old
        return self._weights(self._noisy, offset, initial_guess=guess).squeeze(-1)


def _accurate_means(noisy: PartitionAddedDiagLinearOperator) -> Rule:
    r"""
    Stop solves of targets at a small relative residual, and a share of the noise.

    A residual r changes the means of the training rows by :math:`K A^{-1} r`, and :math:`|D^{-1/2} K A^{-1} r| \le
    |D^{-1/2} r|`.
    """
    noise = noisy._diag_tensor._diagonal().detach().unsqueeze(-1)
    noise, residual = noise.clamp_min(torch.finfo(noise.dtype).tiny), relative_residual(prediction_residual())

    def is_accurate(state: CGState) -> Tensor:
        return residual(state) & ((state.residual.square() / noise).mean(-2, keepdim=True) <= MEAN_ERROR**2)

    return is_accurate


def _checked(noisy: PartitionAddedDiagLinearOperator, offset: Tensor) -> Tensor:
    """Return the weights by the most precise solver, unless means would be far off."""
    found = InDouble(noisy).within(offset, _accurate_means(noisy))
    noise = noisy._diag_tensor._diagonal().unsqueeze(-1)
    error = float((found.residual.square() / noise).mean(-2).max()) ** 0.5
    if not found.converged and not error <= LARGEST_MEAN_ERROR:
        raise UnconvergedError(
            f"expected means off by {LARGEST_MEAN_ERROR:g} standard deviations of the noise at most, got {error:.2g} "
            f"after {found.iterations} iterations with noise of {noisy.noise_share:.1e} of the prior variance: raise "
            f"the noise or max_cg_iterations, or take up to {MOST_ROWS:,} rows or {MOST_COLUMNS:,} clusters"
        )
    return found.solution


def _spread(values: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    spread = values.new_zeros(*values.shape[:-2], num_rows, 1)
    spread[..., rows, :] = values
    return spread


def _carries_gradients(prior: LinearOperator | Tensor) -> bool:
    """Return whether variances carry gradients: by hyperparameters if caches do, and by points that require it."""
    by_points = prior.requires_grad if torch.is_tensor(prior) else getattr(prior, "points_require_grad", False)
    return torch.is_grad_enabled() and (gpytorch_settings.detach_test_caches.off() or by_points)


def _tensors_with_gradients(*covariances: LinearOperator) -> tuple[Tensor, ...]:
    tensors = (tensor for covariance in covariances for tensor in covariance.representation())
    return tuple(tensor for tensor in tensors if tensor.requires_grad) if torch.is_grad_enabled() else ()


def _with_covariance(distribution: MultivariateNormal, covariance: LinearOperator) -> MultivariateNormal:
    if isinstance(distribution, MultitaskMultivariateNormal):
        return distribution.__class__(distribution.mean, covariance, interleaved=distribution._interleaved)
    return distribution.__class__(distribution.loc, covariance)


class TaskPredictiveCovarianceLinearOperator(PredictiveCovarianceLinearOperator):
    r"""
    Solve for the predictive covariance of points on T tasks, :math:`\sum_t C_t \otimes v_t v_t^\top` (`N T x N T`).

    :math:`C_t` are predictive covariances of the independent tasks, with unit noise, and :math:`v_t` the columns of
    :math:`W^{-\top}` (:mod:`gpytorch_partition.solvers.factorizations`): T solves of N rows for a point. With
    gradients, and for some of the rows or columns, the parent's solves are used.
    """

    @staticmethod
    def is_possible(prior: LinearOperator, cross: LinearOperator, noisy: LinearOperator) -> bool:
        """Return whether prior, cross-covariance and noisy training covariance are of all points on all tasks."""
        has_batch = any(part.batch_shape for part in (prior, cross, noisy))
        if has_batch or single_task(prior) is None or single_task(cross) is None:
            return False
        return getattr(noisy, "independent_tasks", None) is not None

    @cached_property
    def _each(self) -> list[PredictiveCovarianceLinearOperator]:
        tasks = cast(IndependentTasks, self.noisy.independent_tasks)
        (prior, _), (cross, _) = (
            cast(tuple[PartitionLinearOperator, Tensor], single_task(part)) for part in (self.prior, self.left)
        )
        options = {**self._kwargs, "is_dense": has_few_rows(tasks.covariance), "draws": None}
        one = tasks.rotation.new_ones(())
        each = []
        for variance in tasks.signal_variances.detach():
            own = [part._mul_constant(variance) for part in (prior, cross, tasks.covariance)]
            noisy = own[2].add_diagonal(one)
            each.append(PredictiveCovarianceLinearOperator(own[0], own[1], own[1], noisy, **options))
        return each

    def to_dense(self) -> Tensor:
        """Return the whole matrix, symmetric."""
        if self._carries_gradients or not self.shape.numel():
            return super().to_dense()
        each, mixing = torch.stack([covariance.to_dense() for covariance in self._each]), self._mixing
        dense = torch.einsum("snm,ts,us->ntmu", each, mixing, mixing).reshape(self.shape)
        return 0.5 * (dense + dense.mT)

    def _variances_by_the_cheapest_method(self) -> Tensor:
        if self._carries_gradients or not self.shape.numel():
            return super()._variances_by_the_cheapest_method()
        each = torch.stack([covariance.diagonal() for covariance in self._each], -1)
        return (each @ self._mixing.square().mT).flatten()

    @property
    def _mixing(self) -> Tensor:
        return cast(IndependentTasks, self.noisy.independent_tasks).mixing
