"""Noise, normal distributions and predictions whose covariance has a partition operator in it."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.distributions.multivariate_normal import kl_mvn_mvn
from gpytorch.mlls import LeaveOneOutPseudoLikelihood
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from gpytorch.settings import min_variance
from linear_operator import settings as linear_settings
from linear_operator.operators import AddedDiagLinearOperator, LinearOperator, MaskedLinearOperator
from torch import Tensor
from torch.distributions import MultivariateNormal as Normal
from torch.distributions.kl import register_kl

from gpytorch_partition.composition.claims import claim, is_concerned
from gpytorch_partition.inference.prediction.strategy import PartitionPredictionStrategy
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.operators.guards import involves_partitions
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.operators.sums_and_roots import PartitionSumLinearOperator
from gpytorch_partition.solvers.direct import is_small
from gpytorch_partition.solvers.noisy_clusters import NoisyClusters, noisy_clusters
from gpytorch_partition.solvers.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator

_ONE_SAMPLE = torch.Size()


class PartitionMultivariateNormal(MultivariateNormal):
    """
    A normal distribution of N values whose covariance is, or was, a partition operator.

    Up to `max_cholesky_size` values everything is dense. Above, entropies and divergences of one partition kernel plus
    one level of noise are exact by :mod:`.noisy_clusters`, other entropies take the log determinant of
    :meth:`log_prob`, and anything dense or without noise, which is then singular, is refused.
    """

    def __init__(self, mean: Any, covariance_matrix: Any, validate_args: bool = False) -> None:
        super().__init__(mean, _observed(covariance_matrix), validate_args)

    @property
    def _is_large(self) -> bool:
        if not self.islazy or self.event_shape.numel() <= linear_settings.max_cholesky_size.value():
            return False
        return involves_partitions(self.lazy_covariance_matrix)

    @property
    def base_sample_shape(self) -> torch.Size:
        """Return the shape of the normal numbers that a sample takes: more than N above the Cholesky limit."""
        root = self._own_root if self._is_large else None
        return super().base_sample_shape if root is None else torch.Size([root.shape[-1]])

    def rsample(self, sample_shape: torch.Size = _ONE_SAMPLE, base_samples: Tensor | None = None) -> Tensor:
        """Draw samples (`*sample_shape x *batch x N`), with gradients; base samples as `get_base_samples` returns."""
        root = None if base_samples is None else self._own_root
        if base_samples is None or root is None:
            return super().rsample(sample_shape, base_samples)
        expected = (*self.loc.shape[:-1], root.shape[-1])
        if base_samples.shape[max(0, base_samples.dim() - len(expected)) :] != expected:
            wanted, got = f"(..., {', '.join(map(str, expected))})", tuple(base_samples.shape)
            raise ValueError(f"expected base samples of shape {wanted}, as of get_base_samples, got {got}")
        columns = base_samples.reshape(-1, *expected).movedim(0, -1)
        samples = root.matmul(columns).movedim(-1, 0).reshape(*base_samples.shape[:-1], self.loc.shape[-1])
        return self.loc + samples

    @property
    def _own_root(self) -> LinearOperator | None:
        if not self.islazy or not involves_partitions(self.lazy_covariance_matrix):
            return None
        covariance = self.lazy_covariance_matrix.evaluate_kernel()
        root = covariance.root_decomposition().root
        if self._is_large:
            return root
        is_square = root.shape[-1] == self.loc.shape[-1]
        return None if is_square else covariance.root_decomposition(method="cholesky").root

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log densities of values (`*batch`); an error above `max_cholesky_size` values without noise."""
        dense = self._with_a_dense_term
        if dense is None and self._is_large:
            self._check_noise("a density")
        return super().log_prob(value) if dense is None else dense.log_prob(value)

    def entropy(self) -> Tensor:
        """Return the differential entropy (`*batch`), in nats."""
        if not self._is_large:
            return super().entropy()
        if (dense := self._with_a_dense_term) is not None:
            return dense.entropy()
        noisy = self._check_noise("an entropy")
        clusters = noisy_clusters(noisy)
        log_determinant = noisy.logdet() if clusters is None else clusters[0].log_determinant().to(self.loc.dtype)
        entropy = 0.5 * (log_determinant + self.loc.shape[-1] * (1 + math.log(2 * math.pi)))
        return entropy.expand(self.batch_shape)

    @property
    def _with_a_dense_term(self) -> Normal | None:
        """The dense distribution of up to 10,000 values with noise that is correlated, or no noise beside a kernel."""
        covariance = self.lazy_covariance_matrix.evaluate_kernel() if self._is_large else None
        if not isinstance(covariance, PartitionSumLinearOperator) or not is_small(covariance):
            return None
        if all(isinstance(term, PartitionLinearOperator) for term in covariance.linear_ops):
            return None
        factor = stable_cholesky(covariance.to_dense()).to(self.loc.dtype)
        return Normal(self.loc, scale_tril=factor, validate_args=False)

    def _check_noise(self, task: str) -> AddedDiagLinearOperator:
        covariance = self.lazy_covariance_matrix.evaluate_kernel()
        if isinstance(covariance, AddedDiagLinearOperator):
            return covariance
        raise RuntimeError(
            f"{task} of {self.loc.shape[-1]:,} values expected a covariance with noise, got a singular "
            f"{type(covariance).__name__}: use likelihood(distribution), distribution.add_jitter(noise), or raise "
            "linear_operator.settings.max_cholesky_size for dense algebra"
        )


def marginal_variances(distribution: MultivariateNormal) -> Tensor:
    """Return the variances (`*batch x N`), raised to GPyTorch's `min_variance` without a warning about smaller ones."""
    variances = distribution.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
    return variances.clamp_min(min_variance.value(variances.dtype))


def _observed(covariance: Any) -> Any:
    """Covariance plus noise of rows with a target; a mask of NaN around all rows would be solved by linear_operator."""
    is_masked = isinstance(covariance, MaskedLinearOperator) and covariance.row_eq_col_mask
    if not is_masked or not isinstance(covariance.base, PartitionAddedDiagLinearOperator):
        return covariance
    return covariance.base.restricted_to(covariance.row_mask.nonzero().squeeze(-1))


def _divergence(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    """Kullback-Leibler divergence of p from q (`*batch`), in nats; refused where it is neither dense nor exact."""
    if not any(isinstance(each, PartitionMultivariateNormal) and each._is_large for each in (p, q)):
        return kl_mvn_mvn(p, q)
    first, second = _clusters_of("a Kullback-Leibler divergence", p, q)
    difference = (p.loc - q.loc).double().unsqueeze(-1)
    form = (difference * second.solve(difference)).sum()
    trace = second.trace_of_solve(first) - p.loc.shape[-1]
    return 0.5 * (second.log_determinant() - first.log_determinant() + trace + form).to(p.loc.dtype)


def _clusters_of(task: str, *distributions: MultivariateNormal) -> list[NoisyClusters]:
    covariances = [each.lazy_covariance_matrix.evaluate_kernel() for each in distributions]
    has_batch = any(each.batch_shape for each in distributions)
    if not has_batch and (clusters := noisy_clusters(*covariances)) is not None:
        return clusters
    limit = linear_settings.max_cholesky_size.value()
    raise RuntimeError(
        f"{task} of {covariances[0].shape[-1]:,} values expected one partition kernel plus one level of noise, with "
        f"fewer clusters than rows and 5,000 at most, or no more than max_cholesky_size = {limit:,} values: use fewer "
        "partitions, or coarser ones, or raise linear_operator.settings.max_cholesky_size for dense algebra"
    )


register_kl(PartitionMultivariateNormal, PartitionMultivariateNormal)(_divergence)
register_kl(PartitionMultivariateNormal, MultivariateNormal)(_divergence)
register_kl(MultivariateNormal, PartitionMultivariateNormal)(_divergence)


class PartitionLeaveOneOut(LeaveOneOutPseudoLikelihood):
    """The leave-one-out likelihood of a model with a partition kernel, above `max_cholesky_size` rows by p x p ones."""

    def forward(self, function_dist: MultivariateNormal, target: Tensor, *params: Any) -> Tensor:
        """Return the mean log density of the targets, each given all others."""
        output = self.likelihood(function_dist, *params)
        if not (isinstance(output, PartitionMultivariateNormal) and output._is_large):
            return super().forward(function_dist, target, *params)
        (clusters,) = _clusters_of("a leave-one-out likelihood", output)
        precisions = clusters.inverse_diagonal().clamp_min(torch.finfo(torch.float64).tiny)
        weights = clusters.solve((target - output.mean).unsqueeze(-1)).squeeze(-1)
        log_densities = 0.5 * (precisions.log() - weights.square() / precisions - math.log(2 * math.pi))
        num_data = target.size(-1)
        return self._add_other_terms(log_densities.sum(-1).to(target.dtype), params).div(num_data)


def _own_strategy(
    train_inputs: Any, train_prior_dist: MultivariateNormal, *args: Any, **kwargs: Any
) -> PartitionPredictionStrategy | None:
    covariance = train_prior_dist.lazy_covariance_matrix
    is_own = is_concerned(covariance) and is_concerned(covariance.evaluate_kernel())
    return object.__new__(PartitionPredictionStrategy) if is_own else None


claim(AddedDiagLinearOperator, PartitionAddedDiagLinearOperator)
claim(DefaultPredictionStrategy, _own_strategy)
claim(MultivariateNormal, PartitionMultivariateNormal)
claim(LeaveOneOutPseudoLikelihood, PartitionLeaveOneOut)
