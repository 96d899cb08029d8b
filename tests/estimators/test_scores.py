"""Coverage and hits against counts, scores of distributions against integrals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import mean_pinball_loss

from gpytorch_partition.estimators.scores import Judgement, hit_curve

RANDOM = np.random.RandomState(0)
Y, MEAN, STD = RANDOM.randn(500), 0.1 * RANDOM.randn(500), 0.5 + RANDOM.rand(500)


def test_coverage_counts_targets_inside():
    levels = np.array([0.2, 0.9])
    inside = []
    for level in levels:
        low, high = norm.interval(level, MEAN, STD)
        inside.append(np.mean((low <= Y) & (high >= Y)))
    found = Judgement.gaussian(Y, MEAN, STD)
    assert found.coverage(levels) == pytest.approx(inside)
    assert found.coverage(0.9) == pytest.approx(inside[1])


@pytest.mark.parametrize("level", [90, [0.5, 95], -0.1, float("nan")])
def test_levels_are_shares(level):
    with pytest.raises(ValueError, match="level between 0 and 1"):
        Judgement.gaussian(Y, MEAN, STD).coverage(level)


def test_crps_of_gaussians_is_the_integral():
    """Of the squared difference between the distribution function and the target's step (eq. 20)."""
    found = Judgement.gaussian(Y, MEAN, STD)
    for row in range(5):
        below, _ = quad(lambda t, row=row: norm.cdf(t, MEAN[row], STD[row]) ** 2, -20, Y[row])
        above, _ = quad(lambda t, row=row: norm.sf(t, MEAN[row], STD[row]) ** 2, Y[row], 20)
        assert found.crps[row] == pytest.approx(below + above, abs=1e-7)
    far = Judgement.gaussian(np.array([1e6]), np.zeros(1), np.ones(1))
    assert far.crps == pytest.approx(1e6 - np.pi**-0.5)


def test_interval_scores_are_pinball_losses_of_both_ends():
    found = Judgement.gaussian(Y, MEAN, STD)
    losses = [mean_pinball_loss(Y, end, alpha=level) for end, level in ((found.lower, 0.05), (found.upper, 0.95))]
    assert found.interval_score.mean() == pytest.approx(20 * sum(losses))


class TestHitCurve:
    def test_ties_count_as_in_a_random_order_on_average(self):
        random = np.random.RandomState(0)
        y, scores = random.rand(40) < 0.3, random.randint(0, 6, 40).astype(float)
        orders = [np.lexsort([random.rand(40), -scores]) for _ in range(20_000)]
        expected = np.mean([np.cumsum(y[order]) for order in orders], axis=0)
        np.testing.assert_allclose(hit_curve(y, scores), expected, atol=0.03)

    def test_without_ties_it_counts(self):
        np.testing.assert_array_equal(hit_curve([1, 0, 1, 0], [4.0, 3.0, 2.0, 1.0]), [1, 1, 2, 2])
        assert hit_curve([], []).shape == (0,)

    def test_infinite_scores_are_tied_with_each_other(self):
        infinite, finite = [np.inf, 0.0, -np.inf, -np.inf, np.inf], [1.0, 0.0, -1.0, -1.0, 1.0]
        y = [True, False, True, False, False]
        np.testing.assert_array_equal(hit_curve(y, infinite), hit_curve(y, finite))

    def test_bad_input(self):
        for y in (["rare", "not"], [1.0, np.nan]):
            with pytest.raises(ValueError, match="y of booleans or numbers"):
                hit_curve(y, [1.0, 2.0])
        with pytest.raises(ValueError, match="one and the same length"):
            hit_curve([1, 0], [1.0])
        with pytest.raises(ValueError, match="got NaN"):
            hit_curve([1, 0], [1.0, np.nan])
