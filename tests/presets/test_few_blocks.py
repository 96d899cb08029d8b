"""Variances beside groups and times: wider where few blocks, or the latest, say so, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.presets.weights_and_noise import HeldOutRows
from gpytorch_partition.presets.wider_intervals import _factor
from tests.few_trees import few_trees

BLOCKS = torch.arange(60) % 6


def factor(errors, last_is_latest=False):
    half = torch.full((60,), 0.5, dtype=torch.float64)
    return _factor(HeldOutRows(torch.arange(60), errors, half, half), BLOCKS, last_is_latest)


def test_few_blocks_that_are_alike_inside_say_little_of_the_next():
    alike = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], dtype=torch.float64)[BLOCKS]
    assert factor(alike) == pytest.approx(6 / 4)
    apart = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(6).repeat(5)  # the mean of each block is 0
    assert factor(apart) == factor(apart, last_is_latest=True) == 1


def test_later_rows_are_as_far_off_as_the_latest():
    trend = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0, 2.0], dtype=torch.float64)[BLOCKS]
    assert factor(trend, last_is_latest=True) == pytest.approx(4 * factor(trend))
    assert factor(trend.flip(0), last_is_latest=True) == factor(trend.flip(0)) > 1


@pytest.mark.slow
def test_intervals_hold_where_the_mean_moves_on():
    """A trend that no column tells: without the step intervals of 90 % held 39 % of the later rows."""
    random, shares = np.random.RandomState(0), []
    for seed in range(2):
        X, times = random.rand(500, 2), np.arange(500)
        y = np.sin(6 * X[:, 0]) + X[:, 1] + 3 * times / 500 + 0.3 * random.randn(500)
        model = PartitionGPRegressor(random_state=seed, options=few_trees(15, 10))
        judged = model.fit(X[:400], y[:400], time=times[:400]).judge(X[400:], y[400:])
        shares.append(np.mean((judged.lower <= y[400:]) & (y[400:] <= judged.upper)))
    assert np.mean(shares) > 0.8
