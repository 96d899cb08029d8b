"""The Pitman-Yor sampler: its prior against the number of clusters that is known, its posterior against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpytorch_partition.partitions import PitmanYorMixture


@parametrize_with_checks([PitmanYorMixture()])
def test_scikit_learns_conventions(estimator, check):
    check(estimator)


@pytest.mark.parametrize("discount", [0.0, 0.4])
def test_the_prior_has_the_expected_number_of_clusters(discount):
    """Without information the next row sits alone with probability (a + d C) / (a + n)."""
    rows, concentration, expected = np.zeros((10, 1)), 1.5, 1.0
    for n in range(1, 10):
        expected += (concentration + discount * expected) / (concentration + n)
    options = {"scale": 1e6, "spread": 1e-6, "num_sweeps": 2}
    draws = [PitmanYorMixture(concentration, discount, random_state=seed, **options) for seed in range(500)]
    counts = [draw.fit(rows).labels_.max() + 1 for draw in draws]
    assert abs(np.mean(counts) - expected) < 4 * np.std(counts) / 500**0.5


def _weight(labels, x, concentration, discount, scale, spread):
    """Prior times likelihood of a partition: the exchangeable partition function, and Gaussians of each cluster."""
    log_weight, sizes = 0.0, {}
    for n, label in enumerate(labels):
        size, clusters = sizes.get(label, 0), len(sizes)
        prior = size - discount if size else concentration + discount * clusters
        log_weight += np.log(prior / (n + concentration)) if n else 0.0
        sizes[label] = size + 1
    for label in sizes:
        own = x[np.array(labels) == label]
        covariance = scale**2 * np.eye(len(own)) + spread**2
        log_weight += multivariate_normal(np.zeros(len(own)), covariance).logpdf(own)
    return np.exp(log_weight)


def test_the_posterior_of_four_rows():
    x = np.array([-1.0, -0.4, 0.3, 1.1])
    parameters = (0.8, 0.3, 0.4, 0.9)
    partitions = [
        (0, *rest) for rest in np.ndindex(2, 3, 4) if all(rest[i] <= max(0, *rest[:i], 0) + 1 for i in range(3))
    ]
    weights = np.array([_weight(labels, x, *parameters) for labels in partitions])
    weights /= weights.sum()
    assert len(partitions) == 15
    drawn = dict.fromkeys(partitions, 0)
    for seed in range(800):
        mixture = PitmanYorMixture(*parameters[:2], scale=0.4, spread=0.9, num_sweeps=6, random_state=seed)
        labels = mixture.fit_predict((x - x.mean())[:, None])
        order = {label: number for number, label in enumerate(dict.fromkeys(labels.tolist()))}
        drawn[tuple(order[label] for label in labels.tolist())] += 1
    shares = np.array([drawn[labels] for labels in partitions]) / 800
    assert abs(x.mean()) < 1e-12
    assert np.abs(shares - weights).max() < 4 * 0.5 / 800**0.5
    assert weights.max() < 0.6
