"""Coverage against a count."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from gpytorch_partition.estimators.scores import coverage

RANDOM = np.random.RandomState(0)
Y, MEAN, STD = RANDOM.randn(500), 0.1 * RANDOM.randn(500), 0.5 + RANDOM.rand(500)


def test_coverage_counts_targets_inside():
    levels = np.array([0.2, 0.9])
    inside = []
    for level in levels:
        low, high = norm.interval(level, MEAN, STD)
        inside.append(np.mean((low <= Y) & (high >= Y)))
    assert coverage(Y, MEAN, STD, levels) == pytest.approx(inside)
    assert coverage(Y, MEAN, STD, 0.9) == pytest.approx(inside[1])
