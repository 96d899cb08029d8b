"""The operator S of several tasks: the effects of a cluster on the tasks covary as the tasks do."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator, as_columns, of_columns


class TaskLinearOperator(ClusterOperator):
    r"""
    The covariance :math:`S \otimes B` (`pT x p'T`): cluster c has an effect on each of T tasks, numbered `c T + t`.

    Use it as the S of your own kernel class for several tasks. It is the `cluster_operator` of GPyTorch's
    `MultitaskKernel` around a kernel of this package, and of products with an `IndexKernel`.

    With it the kernel of a point x and a task t is :math:`k(x, x') B_{tt'}` (Bonilla, Chai & Williams 2008, eq. 1), at
    the cost of one partition kernel: a row is in as many clusters as before.

    :param task_covariance: `T x T` B, symmetric (or the root of one).
    :param base: `p x p'` S.

    Example:
        >>> from gpytorch_partition.operators import FlatLinearOperator
        >>> S = FlatLinearOperator(torch.tensor([0.5]), num_clusters=2)
        >>> TaskLinearOperator(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), S).to_dense()
        tensor([[1.0000, 0.5000, 0.0000, 0.0000],
                [0.5000, 1.0000, 0.0000, 0.0000],
                [0.0000, 0.0000, 1.0000, 0.5000],
                [0.0000, 0.0000, 0.5000, 1.0000]])
    """

    def __init__(self, task_covariance: Tensor, base: LinearOperator) -> None:
        super().__init__(task_covariance, base)
        self.task_covariance, self.base = task_covariance, base
        self.num_tasks = task_covariance.shape[-1]

    def root(self) -> LinearOperator:
        r"""Return the root :math:`F \otimes C` of :math:`F F^\top \otimes C C^\top`; B may be singular."""
        return TaskLinearOperator(symmetric_root(self.task_covariance), self.base.root())

    @property
    def has_same_clusters(self) -> bool:
        return self.base.has_same_clusters

    @property
    def structure(self) -> tuple[Any, ...]:
        return (type(self), self.base.structure)

    @property
    def independent_clusters(self) -> Tensor:
        return self.base.independent_clusters.repeat_interleave(self.num_tasks)

    @property
    def num_nodes(self) -> int:
        return self.num_tasks * self.base.num_nodes

    def correlated(self, normal: Tensor) -> Tensor:
        deviations = self.task_covariance.diagonal().clamp_min(torch.finfo(self.dtype).tiny).sqrt()
        root = symmetric_root(self.task_covariance / deviations / deviations.unsqueeze(-1))
        return (root @ normal.unflatten(0, (-1, self.num_tasks))).flatten(0, 1)

    def _size(self) -> torch.Size:
        return torch.Size(side * self.num_tasks for side in self.base.shape)

    def _transpose_nonbatch(self) -> LinearOperator:
        return TaskLinearOperator(self.task_covariance.mT, self.base._transpose_nonbatch())

    @of_columns
    def _matmul(self, rhs: Tensor) -> Tensor:
        effects = self.task_covariance @ self._by_task(rhs)
        return self.base._matmul(effects.flatten(1)).view(-1, *effects.shape[1:]).flatten(0, 1)

    @of_columns
    def _t_matmul(self, rhs: Tensor) -> Tensor:
        effects = self.task_covariance.mT @ self._by_task(rhs)
        return self.base._t_matmul(effects.flatten(1)).view(-1, *effects.shape[1:]).flatten(0, 1)

    def _by_task(self, table: Tensor) -> Tensor:
        return table.unflatten(0, (-1, self.num_tasks))

    def _diagonal(self) -> Tensor:
        return (self.base._diagonal().unsqueeze(-1) * self.task_covariance.diagonal()).flatten()

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        row_index, col_index = row_index.long(), col_index.long()
        (row, row_task), (column, column_task) = (
            (index.div(self.num_tasks, rounding_mode="floor"), index % self.num_tasks)
            for index in (row_index, col_index)
        )
        return self.base._get_indices(row, column) * self.task_covariance[row_task, column_task]

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        left, right = self._by_task(as_columns(left_vecs)), self._by_task(as_columns(right_vecs))
        spread = self.base._matmul(right.flatten(1)).view(-1, *right.shape[1:])
        gradients: list[Tensor | None] = [torch.einsum("cit,cjt->ij", left, spread)]
        if not self.base.requires_grad:
            return (*gradients, *[None] * len(self.base.representation()))
        weighted = self.task_covariance.mT @ left
        return (*gradients, *self.base._bilinear_derivative(weighted.flatten(1), right.flatten(1)))


def symmetric_root(matrix: Tensor) -> Tensor:
    r"""Return C (`T x T`) with :math:`C C^\top` the matrix, which may be singular."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp_min(0).sqrt()
