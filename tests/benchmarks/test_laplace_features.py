"""Fourier features against the Laplace kernel; ridge regression against dense algebra; the search for a lifetime."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from benchmarks.laplace_features import FourierFeatures, laplace_kernel, ridge
from benchmarks.mondrian_widths import _searched
from gpytorch_partition import MondrianKernel
from gpytorch_partition.models import cluster_features

X = np.random.RandomState(0).uniform(size=(30, 3))
Y = np.random.RandomState(1).standard_normal(30)


@pytest.mark.parametrize("lifetime", [0.5, 4.0])
def test_products_of_fourier_features_are_the_laplace_kernel_on_average(lifetime):
    """Every product is a mean of M terms of at most 2: its standard error is at most sqrt(3 / 2 / M) < .004."""
    features = FourierFeatures(3, 100_000, lifetime, seed=0)(X)
    np.testing.assert_allclose(features @ features.T, laplace_kernel(X, X, lifetime), atol=0.018)


def test_fourier_features_are_unbiased():
    """Also when there are few of them."""
    exact, products = laplace_kernel(X, X, 2.0), []
    for seed in range(3_000):
        features = FourierFeatures(3, 4, 2.0, seed)(X)
        products.append(features @ features.T)
    spread = np.std(products, axis=0) / len(products) ** 0.5
    assert (np.abs(np.mean(products, axis=0) - exact) < 5 * spread).all()


def _features(name):
    if name == "dense, wide":
        return FourierFeatures(3, 50, 2.0, seed=0)(X)
    if name == "dense, narrow":
        return FourierFeatures(3, 10, 2.0, seed=0)(X)
    rows = torch.from_numpy(X)
    lifetime = 5.0 if name == "sparse, wide" else 0.3
    return cluster_features(MondrianKernel(rows, 8, lifetime=lifetime, random_state=0), rows, rows)


@pytest.mark.parametrize("name", ["dense, wide", "dense, narrow", "sparse, wide", "sparse, narrow"])
def test_ridge_regression(name):
    features = _features(name)
    dense = features if isinstance(features, np.ndarray) else features.toarray()
    assert (dense.shape[1] > len(Y)) == ("wide" in name)
    found = ridge(features, Y, 0.3)
    expected = np.linalg.solve(dense.T @ dense + 0.3 * np.eye(dense.shape[1]), dense.T @ Y)
    np.testing.assert_allclose(found.weights, expected, atol=1e-10)
    law = multivariate_normal(np.zeros(len(Y)), dense @ dense.T + 0.3 * np.eye(len(Y)))
    assert found.log_likelihood(len(Y)) == pytest.approx(law.logpdf(Y))


@pytest.mark.parametrize("best", [0.003, 0.7, 300.0])
def test_the_search_finds_the_least_error(best):
    trials = _searched(lambda lifetime: abs(np.log(lifetime / best)), 1.0, 40)
    lifetimes = [lifetime for _, lifetime, _ in trials]
    assert min(abs(np.log(lifetime / best)) for lifetime in lifetimes) < 1e-3
    assert lifetimes[1] in (0.5, 2.0)
    assert len(set(lifetimes)) == 40
