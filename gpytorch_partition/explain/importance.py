"""The importance of columns: by the structure of a kernel's parts, and by scikit-learn's permutations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from gpytorch.kernels import LinearKernel
from sklearn.inspection import permutation_importance
from sklearn.metrics import check_scoring
from sklearn.utils import _safe_indexing
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.explain import kernel_parts
from gpytorch_partition.explain.given_columns import by_given_columns, column_names, given_rows
from gpytorch_partition.explain.kernel_parts import KernelExpansion, KernelPart
from gpytorch_partition.inputs.numbers import checked_count, random_state_of
from gpytorch_partition.kernels import LandmarkKernel, LocalLinearKernel, RandomForestKernel
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.partitions.forest import ForestPartition, TreeCutPartition
from gpytorch_partition.progress import doing

_NUM_PAIRS = 1_000  # random pairs of rows, between which a column's values are exchanged


@dataclass(frozen=True, eq=False)
class Importance:
    """
    Hold the shares of columns in the variance that a model explains, with permutation importances as a check.

    `importance()` uses it as its result. The variance is that of the posterior mean over the training rows; shares sum
    to 1. A share below 0 is that of a column which works against others.
    """

    columns: tuple[str, ...]  #: `D` names.
    by_structure: np.ndarray  #: `D` shares.
    by_part: np.ndarray  #: Shares by part of the kernel (`parts x D`).
    parts: tuple[str, ...]  #: Names of the parts.
    permutation: np.ndarray | None = None  #: `D` changes of the measure; None if not asked for.
    permutation_std: np.ndarray | None = None  #: Their standard deviations over the repeats.
    measure: str = "fall of R squared"  #: The measure of permutations.

    def order(self) -> np.ndarray:
        """Return the numbers of the columns, the one with the largest share first."""
        return np.argsort(-self.by_structure, kind="stable")

    def foremost(self, count: int) -> np.ndarray:
        """
        Return the numbers of the most important columns, the one with the largest share first.

        Importance is the larger of share and permutation, each relative to its largest value.

        :param count: Number of columns, at most.
        """
        kinds = [self.by_structure] + ([] if self.permutation is None else [self.permutation])
        largest = np.max([sizes / max(float(sizes.max()), 1e-12) for sizes in kinds], axis=0)
        chosen = np.argsort(-largest, kind="stable")[:count]
        return np.array([number for number in self.order() if number in chosen])

    def __str__(self) -> str:
        width = max(6, *(len(name) for name in self.columns))
        head = f"{'column':<{width}}  share of the explained variance"
        lines = [head if self.permutation is None else f"{head}   permutation: {self.measure}"]
        for number in self.order():
            line = f"{self.columns[number]:<{width}}  {self.by_structure[number]:31.3f}"
            if self.permutation is not None and self.permutation_std is not None:
                line += f"   {self.permutation[number]:18.3f} +- {self.permutation_std[number]:.3f}"
            lines.append(line)
        return "\n".join(lines)

    __repr__ = __str__

    def plot(self, ax: Any = None) -> Any:
        """Draw a bar for each column (:func:`gpytorch_partition.explain.plots.plot_importance`)."""
        from gpytorch_partition.explain.plots import plot_importance

        return plot_importance(self, ax=ax)


def importance(
    estimator: Any,
    functions: KernelExpansion,
    X: Any,
    y: Any,
    *,
    scoring: str | None = None,
    measure: str = "fall of R squared",
    **options: Any,
) -> Importance:
    """
    Return the importance of a fitted estimator's columns, by structure and, on given rows, by permutation.

    Other parameters are those of :meth:`gpytorch_partition.estimators.PartitionGPRegressor.importance`.

    :param scoring: The score for permutations, by scikit-learn's name. (Default: the estimator's own.)
    :param measure: The name of the measure in printed importances.
    """
    if (X is None) != (y is None):
        raise ValueError("expected both rows and their targets to check importances by, or neither, got one of them")
    checked_count(options["n_repeats"], "repeats", "n_repeats")
    shares = by_given_columns(estimator, column_shares(functions, options["random_state"]))
    found = Importance(tuple(column_names(estimator)), shares.sum(0), shares, functions.part_names, measure=measure)
    if X is None:
        return found
    score, rows = check_scoring(estimator, scoring), given_rows(estimator, X)
    if isinstance(rows, dict):  # scikit-learn permutes numbers of rows, since columns are of any kind
        numbers = np.arange(len(next(iter(rows.values()))))
        score, rows = partial(_score_of_rows, score, rows), np.tile(numbers[:, None], len(rows))
    with doing(f"permuting {rows.shape[1]:,} columns {options['n_repeats']:,} times"):
        checked = permutation_importance(estimator, rows, y, scoring=score, **options)
    return replace(found, permutation=checked.importances_mean, permutation_std=checked.importances_std)


def _score_of_rows(score: Any, table: dict[str, Any], estimator: Any, numbers: np.ndarray, y: Any) -> float:
    columns = zip(table.items(), numbers.T)
    return score(estimator, {name: _safe_indexing(values, own) for (name, values), own in columns}, y)


@torch.no_grad()
def column_shares(functions: KernelExpansion, random_state: Any = 0) -> np.ndarray:
    r"""
    Return each column's share of the variance that each part of a kernel explains (`parts x D`).

    Rows sum to the parts' own shares (:func:`~gpytorch_partition.explain.kernel_parts.covariance_shares`), and all
    together to 1. Shares of several functions are averaged with their variances as weights. A part is divided by its
    own structure (docs/explaining.md):

    - **Trees** of kernels, and those averaged: by the covariance with f of the changes that splits make (Saabas 2014).
    - **Slopes**: levels as for trees; slopes count for their own column.
    - **Linear kernels**: by the term :math:`v_d\, x_d \sum_i x_{id} \alpha_i` of each column.
    - **All others**: in proportion to :math:`\mathbb{E}[k(x, x) - k(x, x')]`, x' being x with the column's value of
      another row (Jansen 1999).

    One product with each part (two for slopes), and for parts of the last kind D times 1,000 random pairs of rows.
    """
    means = functions.part_means(functions.train_x)
    variances = means.sum(1).var(1, correction=0).numpy()
    pairs = zip(functions.weights.mT, means)
    shares = [_shares_of_function(functions, alpha, own, random_state_of(random_state)) for alpha, own in pairs]
    return np.average(shares, axis=0, weights=variances if variances.sum() > 0 else None)


def _shares_of_function(
    functions: KernelExpansion, alpha: Tensor, means: Tensor, random: np.random.RandomState
) -> np.ndarray:
    total = means.sum(0) - means.sum(0).mean()
    if not bool(total @ total > 0):
        return np.zeros((len(means), functions.train_x.shape[-1]))
    with settings.iterative():
        shares = zip(functions.parts, kernel_parts.covariance_shares(means).tolist())
        found = [_shares_of(part, functions.train_x, alpha, total, share, random) for part, share in shares]
    return torch.stack(found).numpy()


def _shares_of(
    part: KernelPart, x: Tensor, alpha: Tensor, total: Tensor, share: float, random: np.random.RandomState
) -> Tensor:
    """Return the share of each column (`D`) in a part, which sum to the part's share; a mixture's kernels are added."""
    inner = kernel_parts.kernel_parts(part.kernel, of_mixtures=True)
    if len(inner) > 1:
        inside = [KernelPart(each.kernel, part.weight * each.weight, (*part.maps, *each.maps)) for each in inner]
        means = torch.stack([each.means(x, x, alpha.unsqueeze(-1)).squeeze(-1) for each in inside])
        shares = ((means - means.mean(-1, keepdim=True)) @ total / (total @ total)).tolist()
        found = [_shares_of(each, x, alpha, total, own, random) for each, own in zip(inside, shares)]
        return torch.stack(found).sum(0)
    covariances = _structured(part, x, alpha, total)
    return share * _relevance(part, x, random) if covariances is None else covariances / (total @ total)


def _structured(part: KernelPart, x: Tensor, alpha: Tensor, total: Tensor) -> Tensor | None:
    """Return N times the covariance of each column's contribution with f (`D`); None for other kernels."""
    sources = part.sources(x.shape[-1])
    if sources is None or (found := _of_seen_columns(part, x, alpha, total)) is None:
        return None
    return torch.zeros(x.shape[-1], dtype=found.dtype).index_add(0, sources, found)


def _of_seen_columns(part: KernelPart, x: Tensor, alpha: Tensor, total: Tensor) -> Tensor | None:
    """Return :func:`_structured` for each column that the kernel sees, such as those of a view of a table."""
    kernel = part.kernel
    if type(kernel) is LinearKernel:
        return _of_linear(kernel, part, x, alpha, total)
    base = kernel.base_kernel if isinstance(kernel, LocalLinearKernel) else kernel
    if type(base) is not RandomForestKernel or base.columns.numbers.numel():
        return None
    points = base._active(part.points(x))
    num_columns = points.shape[-1]
    if isinstance(part, kernel_parts.AveragedTrees):
        leaves, _ = base._forest.incidences(points, points)
        return _by_splits(base._forest, leaves, part.trees.share * part.trees.leaf_values, total, num_columns)
    covariance = cast(PartitionLinearOperator, part.covariance(x, x))
    table = covariance.cluster_product(covariance.cluster_sums(alpha.unsqueeze(-1)))
    scale = part.weight * float(covariance.scale)
    leaves, of_leaves = _of_leaves(base, points, covariance.left, table[:, 0].double())
    found = _by_splits(base._forest, leaves, of_leaves, total, num_columns)
    if isinstance(kernel, LocalLinearKernel):
        values = covariance.left.row_values(table[:, 1:]) * cast(Tensor, covariance.left_loadings)[:, 1:]
        slopes = kernel.columns.numbers if kernel.columns.numbers.numel() else torch.arange(num_columns)
        found = found.index_add(0, slopes, values.double().T @ total)
    return scale * found


def _of_linear(kernel: LinearKernel, part: KernelPart, x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """Return N times the covariance of each column's weight times its values with f (`D`)."""
    rows = part.points(x).double()
    columns = torch.arange(rows.shape[-1]) if kernel.active_dims is None else kernel.active_dims
    own, variances = rows[:, columns], kernel.variance.double().reshape(-1)
    found = part.weight * variances * (own.T @ alpha.double()) * (own.T @ total)
    return torch.zeros(rows.shape[-1], dtype=found.dtype).index_add(0, columns, found)


def _of_leaves(kernel: RandomForestKernel, x: Tensor, rows: Incidence, values: Tensor) -> tuple[Incidence, Tensor]:
    """Return the leaves of the rows and the values of leaves (`p`), where a cluster may be a node with several."""
    partition = kernel.partition
    if not isinstance(partition, TreeCutPartition):
        return rows, values
    first = partition.counts.cumsum(0) - partition.counts
    leaves, _ = partition.forest.incidences(x, x)
    return leaves, values[partition.clusters.long() + partition.forest.layout.of_leaf(first)]


def _by_splits(forest: ForestPartition, rows: Incidence, values: Tensor, total: Tensor, num_columns: int) -> Tensor:
    """Return N times the covariance with f of the splits by each column (`D`), from values of leaves."""
    layout = forest.layout
    counts, covariances = rows.cluster_sums(torch.stack([torch.ones_like(total), total], -1)).unbind(-1)
    nodes = torch.empty(layout.num_nodes, 3, dtype=total.dtype)
    nodes[layout.sums.nodes] = layout.sums.up(torch.stack([counts, counts * values, covariances], -1))
    means = nodes[:, 1] / nodes[:, 0].clamp_min(1)
    effects = (means - means[layout.parent]) * nodes[:, 2]  # 0 for roots, and for nodes without rows
    columns = forest.feature.long()[layout.parent]
    return torch.zeros(num_columns, dtype=torch.float64).index_add(0, columns, effects)


def _relevance(part: KernelPart, x: Tensor, random: np.random.RandomState) -> Tensor:
    """Return each column's share (`D`) of the prior variance that is lost with another row's value."""
    own, others = (x[torch.from_numpy(random.randint(len(x), size=_NUM_PAIRS))] for _ in range(2))
    if isinstance(part.kernel, LandmarkKernel):  # the kernel itself instead of its approximation
        part = KernelPart(part.kernel.base_kernel, part.weight, (*part.maps, part.kernel.columns.select))
    variance, lost = part.pairs(own, own).mean(), []
    for column in range(x.shape[1]):
        changed = own.clone()
        changed[:, column] = others[:, column]
        lost.append(variance - part.pairs(own, changed).mean())
    found = torch.stack(lost).clamp_min(0)
    return found / found.sum() if bool(found.sum() > 0) else found
