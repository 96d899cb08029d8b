r"""
Covariances of several tasks, :math:`k(x, x') B_{tt'}`: every cluster gets an effect on each task, so that a product
costs what one with the partition kernel costs, for all points on all tasks or for any (point, task) pairs.
"""

from __future__ import annotations

import torch
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from gpytorch_partition.clusters.cache import Key
from gpytorch_partition.clusters.cluster_index import code_dtype
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.operators.cluster_operators.task_linear_operator import TaskLinearOperator
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator

_EVERY_TASK: Key[Incidence] = Key("every row on every task")
_OWN_TASK: Key[Incidence] = Key("every row on its own task")


def on_every_task(covariance: PartitionLinearOperator, task_covariance: Tensor) -> PartitionLinearOperator:
    r"""
    :math:`K \otimes B` (`*batch x NT x N'T`), what a `MultitaskKernel` evaluates to: row `n T + t` is point n on task t.

    :param covariance: `*batch x N x N'` K.
    :param task_covariance: `T x T` B.
    """
    num_tasks = task_covariance.shape[-1]
    left = _every_task(covariance.left, num_tasks)
    right = left if covariance.is_symmetric else _every_task(covariance.right, num_tasks)
    loadings = (covariance.left_loadings, covariance.right_loadings)
    repeated = [None if part is None else part.repeat_interleave(num_tasks, -2) for part in loadings]
    if covariance.is_symmetric:
        repeated[1] = repeated[0]
    return _with_tasks(covariance, task_covariance, left, right, *repeated)


def on_own_tasks(
    covariance: PartitionLinearOperator, task_covariance: Tensor, left_tasks: Tensor, right_tasks: Tensor
) -> PartitionLinearOperator:
    r"""
    :math:`K_{ij} B_{t_i t'_j}` (`*batch x N x N'`), K times what an `IndexKernel` evaluates to, entry by entry.

    :param covariance: `*batch x N x N'` K.
    :param task_covariance: `T x T` B.
    :param left_tasks: `*batch x N` task numbers of the rows, from 0.
    :param right_tasks: `*batch x N'` task numbers of the columns.
    """
    num_tasks = task_covariance.shape[-1]
    is_same = covariance.is_symmetric and torch.equal(left_tasks, right_tasks)
    left = _own_task(covariance.left, left_tasks, num_tasks)
    right = left if is_same else _own_task(covariance.right, right_tasks, num_tasks)
    return _with_tasks(
        covariance, task_covariance, left, right, covariance.left_loadings, covariance.right_loadings
    )


def _with_tasks(
    covariance: PartitionLinearOperator,
    task_covariance: Tensor,
    left: Incidence,
    right: Incidence,
    left_loadings: Tensor | None,
    right_loadings: Tensor | None,
) -> PartitionLinearOperator:
    inner = covariance.cluster_operator
    batch_shape = torch.broadcast_shapes(covariance.batch_shape, left.batch_shape, right.batch_shape)
    return PartitionLinearOperator(
        covariance.scale.expand(batch_shape),
        TaskLinearOperator(task_covariance.to(inner.dtype), inner),
        left=left,
        right=right,
        left_loadings=left_loadings,
        right_loadings=right_loadings,
    )


def _every_task(rows: Incidence, num_tasks: int) -> Incidence:
    def repeated() -> Incidence:
        tasks = torch.arange(num_tasks, device=rows.codes.device).repeat(rows.num_rows)
        return _of_tasks(rows.codes.repeat_interleave(num_tasks, -2), rows, tasks, num_tasks)

    return rows.cache.get(_EVERY_TASK, None, repeated, num_tasks)


def _own_task(rows: Incidence, tasks: Tensor, num_tasks: int) -> Incidence:
    tasks = _without_equal_batches(tasks)
    source = DenseLinearOperator(tasks.unsqueeze(-1))
    return rows.cache.get(_OWN_TASK, source, lambda: _of_tasks(rows.codes, rows, tasks, num_tasks), num_tasks)


def _of_tasks(codes: Tensor, rows: Incidence, tasks: Tensor, num_tasks: int) -> Incidence:
    """Rows whose cluster c on task t is number `c T + t`."""
    num_clusters = rows.num_clusters * num_tasks
    dtype = code_dtype(num_clusters, codes.shape[-2:].numel())
    return Incidence(codes.to(dtype) * num_tasks + tasks.to(dtype).unsqueeze(-1), num_clusters)


def _without_equal_batches(tasks: Tensor) -> Tensor:
    """Task numbers without batch dimensions, if all elements have the same, as those of training rows do."""
    first = tasks[(0,) * (tasks.dim() - 1)]
    return first if torch.equal(tasks, first.expand_as(tasks)) else tasks
