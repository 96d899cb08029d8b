r"""
Covariances of several tasks, :math:`k(x, x') B_{tt'}`, in which every cluster has an effect on each task.

A product costs as much as one with the partition kernel, for all points on all tasks or for any (point, task) pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from linear_operator.operators import (
    ConstantDiagLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    KroneckerProductDiagLinearOperator,
    KroneckerProductLinearOperator,
    LinearOperator,
)
from torch import Tensor

from gpytorch_partition.clusters.cache import Key
from gpytorch_partition.clusters.cluster_index import code_dtype
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator, FlatLinearOperator
from gpytorch_partition.operators.cluster_operators.composed_operators import TaskLinearOperator
from gpytorch_partition.operators.guards import check_dense
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator

_EVERY_TASK: Key[Incidence] = Key("every row on every task")
_OWN_TASK: Key[Incidence] = Key("every row on its own task")


def on_every_task(covariance: PartitionLinearOperator, task_covariance: Tensor) -> PartitionLinearOperator:
    r"""Return :math:`K \otimes B` (`*batch x NT x N'T`): row `n T + t` is point n on task t; B is `T x T`."""
    num_tasks = task_covariance.shape[-1]
    repeated = covariance._on_both_sides(
        lambda rows: rows.cache.get(_EVERY_TASK, None, lambda: _EveryTaskIncidence(rows, num_tasks), num_tasks),
        lambda loadings: loadings.repeat_interleave(num_tasks, -2),
        cluster_operator=_of_tasks(covariance.cluster_operator, task_covariance),
    )
    return EveryTaskLinearOperator(repeated.scale, repeated.cluster_operator, **repeated._kwargs)


def on_own_tasks(
    covariance: PartitionLinearOperator, task_covariance: Tensor, left_tasks: Tensor, right_tasks: Tensor
) -> PartitionLinearOperator:
    """Return :math:`K_{ij} B_{t_i t'_j}` (`*batch x N x N'`), with an `IndexError` for tasks not below T."""
    num_tasks = task_covariance.shape[-1]
    for tasks in (left_tasks, right_tasks):
        if tasks.numel() and not 0 <= int(tasks.min()) <= int(tasks.max()) < num_tasks:
            raise IndexError(
                f"expected task numbers from 0 to {num_tasks - 1}, got {int(tasks.min())} to {int(tasks.max())}: "
                "number the tasks from 0, or give the IndexKernel more tasks"
            )
    is_same = covariance.is_symmetric and torch.equal(left_tasks, right_tasks)
    left = _own_task(covariance.left, left_tasks, num_tasks)
    right = left if is_same else _own_task(covariance.right, right_tasks, num_tasks)
    batch_shape = torch.broadcast_shapes(covariance.batch_shape, left.batch_shape, right.batch_shape)
    inner = _of_tasks(covariance.cluster_operator, task_covariance)
    return covariance._with(scale=covariance.scale.expand(batch_shape), cluster_operator=inner, left=left, right=right)


def _of_tasks(base: ClusterOperator, task_covariance: Tensor) -> TaskLinearOperator:
    return TaskLinearOperator(task_covariance.to(base.dtype), base)


def noise_of_tasks(noise: KroneckerProductLinearOperator) -> tuple[LinearOperator, DiagLinearOperator] | None:
    r"""Return noise :math:`I_N \otimes B` as a partition operator and a diagonal; None for other, singular forms."""
    points, tasks = noise.linear_ops[0], noise.linear_ops[-1].to_dense()
    is_identity = isinstance(points, ConstantDiagLinearOperator) and bool((points.diag_values == 1).all())
    if len(noise.linear_ops) != 2 or not is_identity or tasks.dim() > 2:
        return None
    least = torch.linalg.eigvalsh(tasks.detach())[0] / 2
    if least <= torch.finfo(tasks.dtype).eps * tasks.detach().diagonal().amax():
        remedy = "Give it full rank, as has_global_noise=True does"
        check_dense(noise, "the algebra of singular noise between tasks", remedy)
        return None
    eye = torch.eye(len(tasks), dtype=tasks.dtype, device=tasks.device)
    own = SingleRows(torch.arange(points.shape[-1], device=tasks.device).unsqueeze(-1), points.shape[-1])
    one = FlatLinearOperator(tasks.new_ones(1), num_clusters=own.num_clusters)
    each = PartitionLinearOperator(tasks.new_ones(()), one, left=own, right=own)
    return on_every_task(each, tasks - least * eye), ConstantDiagLinearOperator(least.view(1), noise.shape[-1])


def repeated_noise_of_tasks(noise: KroneckerProductDiagLinearOperator) -> DiagLinearOperator:
    r"""Return a noise variance for each task, :math:`I_N \otimes D` of GPyTorch, as a diagonal with its period."""
    points, *tasks = noise.linear_ops
    is_identity = isinstance(points, ConstantDiagLinearOperator) and bool((points.diag_values == 1).all())
    period = tasks[0].shape[-1] if is_identity and len(tasks) == 1 and noise.dim() == 2 else None
    return RepeatedDiagLinearOperator(noise._diagonal(), period=period)


class RepeatedDiagLinearOperator(DiagLinearOperator):
    """Multiply by a diagonal matrix (`*batch x N x N`) whose entries repeat with a period, None if that is unknown."""

    def __init__(self, diag: Tensor, *, period: int | None = None) -> None:
        LinearOperator.__init__(self, diag, period=period)
        self._diag, self.period = diag, period


class EveryTaskLinearOperator(PartitionLinearOperator):
    r"""Multiply by a covariance :math:`K \otimes B` that gives K and B, as linear_operator's Kronecker product does."""

    @property
    def linear_ops(self) -> tuple[PartitionLinearOperator, LinearOperator]:
        """Return the parts K (`*batch x N x N'`) and B (`T x T`), which BoTorch's `KroneckerMultiTaskGP` reads."""
        each, task_covariance = cast(tuple[PartitionLinearOperator, Tensor], single_task(self))
        return each, DenseLinearOperator(task_covariance)


def single_task(covariance: LinearOperator) -> tuple[PartitionLinearOperator, Tensor] | None:
    r"""Return K (`*batch x N x N'`) and B (`T x T`) of :math:`K \otimes B` on all tasks; None for other covariances."""
    if not isinstance(covariance, PartitionLinearOperator):
        return None
    if not all(isinstance(rows, _EveryTaskIncidence) for rows in (covariance.left, covariance.right)):
        return None
    inner = cast(TaskLinearOperator, covariance.cluster_operator)
    each = covariance._on_both_sides(
        lambda rows: cast(_EveryTaskIncidence, rows).rows,
        lambda loadings: loadings[..., :: inner.num_tasks, :],
        cluster_operator=inner.base,
    )
    return each, inner.task_covariance


class SingleRows(Incidence):
    """The identity: every row is a cluster of its own."""


class _EveryTaskIncidence(Incidence):
    r""":math:`Z \otimes I_T`, by sums over N rows with T times as many columns, several times as fast."""

    def __init__(self, rows: Incidence, num_tasks: int) -> None:
        tasks = torch.arange(num_tasks, device=rows.codes.device).repeat(rows.num_rows)
        codes = _task_codes(rows.codes.repeat_interleave(num_tasks, -2), rows.num_clusters, tasks, num_tasks)
        super().__init__(codes, rows.num_clusters * num_tasks)
        self.rows, self.num_tasks = rows, num_tasks

    def cluster_sums(self, values: Tensor) -> Tensor:
        return self._side_by_side(self.rows.cluster_sums, values)

    def row_values(self, table: Tensor) -> Tensor:
        return self._side_by_side(self.rows.row_values, table)

    def _side_by_side(self, product: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
        columns = values.unflatten(-2, (-1, self.num_tasks)).flatten(-2)
        return product(columns).unflatten(-1, (self.num_tasks, -1)).flatten(-3, -2)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "rows": self.rows, "num_tasks": self.num_tasks}


def _own_task(rows: Incidence, tasks: Tensor, num_tasks: int) -> Incidence:
    first = tasks[(0,) * (tasks.dim() - 1)]
    tasks = first if torch.equal(tasks, first.expand_as(tasks)) else tasks  # training rows are the same in a batch

    def numbered() -> Incidence:
        codes = _task_codes(rows.codes, rows.num_clusters, tasks, num_tasks)
        return Incidence(codes, rows.num_clusters * num_tasks)

    return rows.cache.get(_OWN_TASK, DenseLinearOperator(tasks.unsqueeze(-1)), numbered, num_tasks)


def _task_codes(codes: Tensor, num_clusters: int, tasks: Tensor, num_tasks: int) -> Tensor:
    dtype = code_dtype(num_clusters * num_tasks, codes.shape[-2:].numel())
    return codes.to(dtype) * num_tasks + tasks.to(dtype).unsqueeze(-1)
