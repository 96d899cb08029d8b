"""Scores of predictions against scipy's distributions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from gpytorch_partition.estimators.scores import (
    coverage,
    half_width,
    negative_log_density,
    root_mean_squared_error,
)

RANDOM = np.random.RandomState(0)
Y, MEAN, STD = RANDOM.randn(500), 0.1 * RANDOM.randn(500), 0.5 + RANDOM.rand(500)


def test_root_mean_squared_error():
    assert root_mean_squared_error(Y, MEAN) == pytest.approx(np.linalg.norm(Y - MEAN) / np.sqrt(500))


def test_density_is_that_of_gaussians_in_any_unit():
    assert negative_log_density(Y, MEAN, STD) == pytest.approx(-scipy.stats.norm(MEAN, STD).logpdf(Y).mean())
    in_units = -scipy.stats.norm(MEAN / 7, STD / 7).logpdf(Y / 7).mean()
    assert negative_log_density(Y, MEAN, STD, unit=7.0) == pytest.approx(in_units)


def test_intervals_are_central_ones():
    low, high = scipy.stats.norm.interval(0.9)
    assert half_width(0.9) == pytest.approx(high)
    assert half_width(0.9) == pytest.approx(-low)


def test_coverage_counts_targets_inside():
    levels = np.array([0.2, 0.9])
    inside = [np.mean([abs(y - m) < s * half_width(level) for y, m, s in zip(Y, MEAN, STD)]) for level in levels]
    assert coverage(Y, MEAN, STD, levels) == pytest.approx(inside)
    assert coverage(Y, MEAN, STD, 0.9) == pytest.approx(inside[1])
