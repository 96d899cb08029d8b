"""Predictive covariances of several tasks, from those of independent ones."""

from __future__ import annotations

from functools import cached_property
from typing import cast

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.inference.prediction.predictive_covariance import PredictiveCovarianceLinearOperator
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.operators.tasks import single_task
from gpytorch_partition.solvers.factorizations import IndependentTasks


class TaskPredictiveCovarianceLinearOperator(PredictiveCovarianceLinearOperator):
    r"""
    The predictive covariance (`N T x N T`) of points on all of T tasks: :math:`\sum_t C_t \otimes v_t v_t^\top`.

    :math:`C_t` are predictive covariances of the independent tasks, with unit noise, and :math:`v_t` the columns of
    :math:`W^{-\top}` (:mod:`gpytorch_partition.solvers.factorizations`). A point takes T solves with as many rows
    as there are training points, instead of T with T times as many, and every method for variances applies. With
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
        is_dense = tasks.covariance.size(-1) <= linear_settings.max_cholesky_size.value()
        options, one = {**self._kwargs, "is_dense": is_dense}, tasks.rotation.new_ones(())
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
