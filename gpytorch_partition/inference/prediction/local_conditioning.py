r"""
Predictors of the function at a point from its nearest rows, whose errors have variances that are known exactly.

Let :math:`f_*` be the function at a point, y the training targets less their prior mean, and :math:`w^\top y_L` any
linear predictor from some training rows L. The posterior mean m is the projection of :math:`f_*` on all targets, so
:math:`f_* - m` is uncorrelated with them, and with :math:`m - w^\top y_L`. The variance v of :math:`f_* - m` is then

.. math:: v = v_L - E (m - w^\top y_L)^2, \quad v_L = k_{**} - 2 w^\top k_L + w^\top (K_L + D_L) w,

with :math:`k_{**}` the prior variance, :math:`k_L` the covariances of the point with the rows, :math:`K_L` those among
the rows, and :math:`D_L` their noise. The expectation is over targets from the prior: draws of them estimate it. Where
it is :math:`\rho v`, S draws have the relative error :math:`\rho \sqrt{2 / S}`, and draws of :math:`f_* - m` itself
:math:`\sqrt{2 / S}`: :math:`\rho^2 S` draws are as exact as S samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import islice
from operator import add
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.operators.loadings import LoadedRows
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.progress import progress

_ROWS = 12  # nearest rows of a point: more leave less to draws, and take longer themselves
_PARTITIONS = 32  # partitions whose clusters are searched for them
_MEMBERS = 32  # rows of a cluster that are searched
_POINTS = 2**11  # points at once
MOST_DRAWS = 0.5  # draws that replace a sample, above which samples are drawn
_LEAST_SHARE = 0.1  # least variance, in those of the errors of local predictors


class TargetDraws(NamedTuple):
    """Draws of the training rows' targets from the prior, and the posterior means given each."""

    mean_effects: list[Tensor]  # `p x kt` of each term
    targets: Tensor  # N x t


class LocalPredictors(NamedTuple):
    """Linear predictors of the function at n points from k rows each."""

    rows: Tensor  # n x k row numbers
    weights: Tensor  # n x k; 0 where a point has fewer rows
    variances: Tensor  # (n,) of their errors

    def function_variances(
        self, points: Sequence[LoadedRows], blocks: Iterator[TargetDraws], num_samples: int
    ) -> Tensor | None:
        r"""
        Return posterior variances (`n`) from draws of the targets; None if that takes more than half the samples.

        They are the variances of the predictors' errors less the mean squares of posterior means less predictions. As
        many draws are taken as make them as exact as `num_samples` samples: :math:`\rho^2` for each, on average over
        the points, as the first block estimates it.
        """
        first = next(blocks)
        squares, least = self._squared_differences(points, first), _LEAST_SHARE * self.variances
        ratios = squares / torch.maximum(self.variances - squares, least).clamp_min(torch.finfo(least.dtype).tiny)
        draws_per_sample = float(ratios.square().mean())
        if draws_per_sample > MOST_DRAWS:
            return None
        num_blocks = max(1, round(draws_per_sample * num_samples / first.targets.shape[-1]))
        for block in progress(islice(blocks, num_blocks - 1), "predictive variances", num_blocks - 1):
            squares += self._squared_differences(points, block)
        return torch.maximum(self.variances - squares / num_blocks, least)

    def _squared_differences(self, points: Sequence[LoadedRows], draws: TargetDraws) -> Tensor:
        """Return mean squares (`n`) of posterior means less predictions."""
        means = reduce(add, (each.row_values(table) for each, table in zip(points, draws.mean_effects)))
        blocks = zip(self.rows.split(_POINTS), self.weights.split(_POINTS))
        own = torch.cat([(weights.unsqueeze(-2) @ draws.targets[rows]).squeeze(-2) for rows, weights in blocks])
        return (means - own).square().mean(-1)


def have_local_predictors(covariances: Sequence[PartitionLinearOperator]) -> bool:
    """Return whether the nearest rows tell most about a point, as for forests over several heights."""
    return all(term.cluster_operator.reaches_nearest for term in covariances)


def local_predictors(
    covariances: Sequence[PartitionLinearOperator], points: Sequence[LoadedRows], noise: Tensor
) -> LocalPredictors:
    """
    Return the best predictors from the rows that share most clusters with a point, given the noise (`N`).

    Clusters are those of the first term.
    """
    num_points = points[0].rows.num_rows
    blocks = [slice(start, start + _POINTS) for start in range(0, num_points, _POINTS)]
    found = [_of_block(covariances, [_selected(each, block) for each in points], noise) for block in blocks]
    return LocalPredictors(*(torch.cat(parts) for parts in zip(*found)))


def _selected(points: LoadedRows, block: slice) -> LoadedRows:
    loadings = None if points.loadings is None else points.loadings[block]
    return LoadedRows(points.rows.with_codes(points.rows.codes[block]), loadings)


def _of_block(
    covariances: Sequence[PartitionLinearOperator], points: Sequence[LoadedRows], noise: Tensor
) -> LocalPredictors:
    rows = nearest_rows(covariances[0].left, points[0].rows.codes, _ROWS)
    is_known = rows >= 0
    rows = rows.clamp_min(0)
    gram = reduce(add, (_gram(term, each, rows) for term, each in zip(covariances, points)))
    prior, cross = gram[:, 0, 0], gram[:, 0, 1:] * is_known
    among = gram[:, 1:, 1:] * (is_known.unsqueeze(-1) & is_known.unsqueeze(-2))
    among = among + torch.where(is_known, noise.to(gram)[rows], 1).diag_embed()
    weights = torch.cholesky_solve(cross.unsqueeze(-1), torch.linalg.cholesky_ex(among).L).squeeze(-1)
    weights = torch.where(weights.isfinite(), weights, 0)
    explained = 2 * cross - (among @ weights.unsqueeze(-1)).squeeze(-1)
    return LocalPredictors(rows, weights.to(noise), (prior - (weights * explained).sum(-1)).to(noise))


def _gram(covariance: PartitionLinearOperator, points: LoadedRows, rows: Tensor) -> Tensor:
    """Return covariances (`n x (1 + k) x (1 + k)`, float64) of each point and its rows."""
    codes = torch.cat([points.rows.codes.unsqueeze(1), covariance.left.codes[rows]], 1)
    gram = covariance.scale.double() * covariance.cluster_operator.grams(codes)
    if points.loadings is None or covariance.left_loadings is None:
        return gram
    loadings = torch.cat([points.loadings.unsqueeze(1), covariance.left_loadings[rows]], 1).double()
    return gram * (loadings @ loadings.mT)


def nearest_rows(rows: Incidence, codes: Tensor, number: int) -> Tensor:
    """
    Return the rows (`n x number`) that share most clusters with points of these codes (`n x m`); -1 for none.

    Some of the partitions are searched, and some rows of a large cluster.
    """
    step = -(-rows.num_partitions // _PARTITIONS)
    candidates = _members_of(rows, codes[:, ::step].long()).sort(-1).values
    counts = torch.where(candidates >= 0, _run_lengths(candidates), 0)
    most, found = counts.topk(min(number, candidates.shape[1]), -1)
    return torch.where(most > 0, candidates.gather(1, found), -1)


def _run_lengths(values: Tensor) -> Tensor:
    """Return at the first of equal values in a row (`n x c`, sorted) how many there are, and 0 at the others."""
    size = values.shape[-1]
    places = torch.arange(size, device=values.device).expand_as(values)
    is_first = pad(values[:, 1:] != values[:, :-1], (1, 0), value=True)
    next_first = torch.where(is_first, places, size).flip(-1).cummin(-1).values.flip(-1)
    return torch.where(is_first, pad(next_first[:, 1:], (0, 1), value=size) - places, 0)


def _members_of(rows: Incidence, clusters: Tensor) -> Tensor:
    """Return the first members (`n x c`) of clusters (`n x r`), side by side; -1 where there are fewer."""
    members = rows.members
    first, stop = members.cluster_starts.long(), members.cluster_starts.roll(-1).long()
    stop[-1] = members.blocks.numel()
    block = members.blocks.long()[first.clamp_max(stop[-1] - 1)][clusters]
    start, end = members.block_starts.long()[block], members.block_starts.long()[block + 1]
    sizes = torch.where((stop > first)[clusters], end - start, 0).clamp_max(_MEMBERS)
    places = torch.arange(max(1, int(sizes.max())), device=sizes.device)
    found = members.rows[(start.unsqueeze(-1) + places).clamp_max(members.rows.numel() - 1)]
    return torch.where(places < sizes.unsqueeze(-1), found, -1).flatten(1)
