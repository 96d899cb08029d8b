"""Regression on clusters at given hyperparameters, and after every cut, against dense algebra."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal

from gpytorch_partition.clusters.co_occurrence import count_co_occurrences, streamed_cluster_sums, zero_counts
from gpytorch_partition.lifetimes.one_lifetime import ClusterRidge, Regression, along_cuts
from gpytorch_partition.partitions import MondrianPartition


def problem(n=60, m=3, noise=0.05):
    generator = torch.Generator().manual_seed(n)
    x = torch.rand(n, 2, generator=generator, dtype=torch.float64).round(decimals=2)
    y = torch.randn(n, generator=generator, dtype=torch.float64)
    rows = MondrianPartition(x, m, lifetime=6.0, random_state=0).grown(x)
    regression = Regression(0.8, noise, m, n, float(y @ y))
    return rows, y, regression


def ridge_at(rows, y, regression, cells):
    counts, codes = zero_counts(cells.num_clusters), rows.codes(cells)
    count_co_occurrences(counts, codes)
    return ClusterRidge(
        regression, counts, streamed_cluster_sums(codes, y.unsqueeze(-1), cells.num_clusters).squeeze(-1)
    )


def dense(codes, y, regression):
    """The likelihood, and the effects s / m Z^T A^-1 y."""
    shares = (codes[:, None] == codes[None]).double().mean(-1)
    noisy = regression.outputscale * shares + regression.noise * torch.eye(len(y), dtype=torch.float64)
    alpha = torch.linalg.solve(noisy, y)
    sums = torch.zeros(int(codes.max()) + 1, dtype=torch.float64)
    for column in codes.T:
        sums.index_add_(0, column.long(), alpha)
    effects = regression.outputscale / regression.num_partitions * sums
    return float(MultivariateNormal(torch.zeros_like(y), noisy).log_prob(y)), effects


@pytest.mark.parametrize("noise", [1e-4, 0.05, 10.0])
def test_ridge(noise):
    rows, y, regression = problem(noise=noise)
    ridge = ridge_at(rows, y, regression, rows.terminal)
    value, effects = dense(rows.leaf_codes, y, regression)
    assert ridge.log_marginal_likelihood == pytest.approx(value, rel=1e-9)
    torch.testing.assert_close(ridge.effects[: len(effects)], effects, rtol=1e-6, atol=1e-8)


def test_coarsened_ridge_is_that_of_the_coarser_cells():
    rows, y, regression = problem()
    fine, cells = ridge_at(rows, y, regression, rows.terminal), rows.trees.cells(1.0)
    coarse = fine.coarsened(rows.terminal.place_in(cells), cells.num_clusters)
    expected = ridge_at(rows, y, regression, cells)
    assert torch.equal(coarse.counts, expected.counts)
    torch.testing.assert_close(coarse.sums, expected.sums)


@pytest.mark.parametrize("noise", [1e-3, 0.05])
def test_along_cuts(noise):
    rows, y, regression = problem(noise=noise)
    steps = list(along_cuts(ridge_at(rows, y, regression, rows.terminal), rows.terminal, rows.trees))
    assert len(steps) == 1 + int((rows.trees.cut_times < torch.inf).sum()) > 50
    assert steps[0].time == 0.0
    for step in steps:
        value, effects = dense(rows.codes(step.cells), y, regression)
        assert step.log_marginal_likelihood == pytest.approx(value, rel=1e-8)
        torch.testing.assert_close(step.effects[: len(effects)], effects, rtol=1e-6, atol=1e-8)
        assert not step.effects[step.cells.nulls].any()
