"""The K-fold predictive likelihood against its definition, one Gaussian conditional at a time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from gpytorch_partition.training.predictive_density import (
    Fold,
    PredictiveFit,
    _at,
    _loss_of,
    held_out_predictions,
    maximize_predictive_density,
)

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(90, 2, generator=GENERATOR, dtype=torch.float64)
RATIOS = 2 * X[:, 1] - 1
NOISE = 0.3 * RATIOS.exp() * torch.randn(90, generator=GENERATOR, dtype=torch.float64)
Y = (6 * X[:, 0]).sin() + 3 * X[:, 1] + NOISE
Y = Y - Y.mean()


def smooth(scale):
    return torch.exp(-torch.cdist(X, X).square() / scale)


def folds_of(*covariances, num_folds=3):
    numbers = torch.arange(len(X)) % num_folds
    stacked = torch.stack(covariances)
    return [Fold.of(stacked, (numbers != k).nonzero()[:, 0], (numbers == k).nonzero()[:, 0]) for k in range(num_folds)]


COVARIANCES = (smooth(0.1), (X - 0.5) @ (X - 0.5).T)
FOLDS = folds_of(*COVARIANCES)
FACTORS = 1 / (0.2 + torch.rand(len(Y), generator=torch.Generator().manual_seed(5), dtype=torch.float64))
FIT = PredictiveFit(torch.tensor([0.8, 0.3], dtype=torch.float64), 0.09, 0.7, -math.inf)


def density(fold, fit):
    """Log predictive densities of single held-out rows, from the joint distribution with all rows kept."""
    noise = fit.noise_at(RATIOS) * FACTORS
    covariance = torch.einsum("i,inm->nm", fit.outputscales, torch.stack(COVARIANCES)) + torch.diag(noise)
    total = 0.0
    for row in fold.held_out:
        rows = torch.cat([fold.kept, row[None]])
        joint, kept = (multivariate_normal(cov=covariance[r][:, r]).logpdf(Y[r]) for r in (rows, fold.kept))
        total += joint - kept
    return total


def loss_of(fold, values):
    inputs = fold, Y, RATIOS, values
    return _loss_of(*inputs, *_at(*inputs, FACTORS))


def test_the_density_is_that_of_the_joint_distribution():
    values = np.array([*FIT.outputscales.log(), math.log(FIT.noise), FIT.exponent])
    for fold in FOLDS:
        loss, _ = loss_of(fold, values)
        assert -loss == pytest.approx(density(fold, FIT), abs=1e-8)


def test_gradients_are_finite_differences():
    values, step = np.array([-0.2, -1.0, -2.5, 0.8]), 1e-6
    _, gradient = loss_of(FOLDS[0], values)
    for i, direction in enumerate(np.eye(4)):
        moved = (values + sign * step * direction for sign in (1, -1))
        above, below = (loss_of(FOLDS[0], each)[0] for each in moved)
        assert gradient[i] == pytest.approx((above - below) / (2 * step), abs=1e-5)


def test_predictions_of_rows_held_out():
    means, variances = held_out_predictions(FOLDS, Y, FIT, FACTORS, RATIOS)
    std = (variances + FIT.noise_at(RATIOS) * FACTORS).sqrt()
    for fold in FOLDS:
        expected = norm.logpdf(Y[fold.held_out], means[fold.held_out], std[fold.held_out]).sum()
        assert expected == pytest.approx(density(fold, FIT), abs=1e-8)


def test_no_value_nearby_predicts_better():
    fit = maximize_predictive_density(FOLDS, Y, log_ratios=RATIOS, noise_factors=FACTORS, max_iterations=200)

    def score(other):
        return sum(density(fold, other) for fold in FOLDS) / len(Y)

    best = score(fit)
    assert fit.log_density == pytest.approx(best, abs=1e-8)
    for factor in (0.8, 1.25):
        others = [replace(fit, noise=fit.noise * factor), replace(fit, exponent=fit.exponent + factor - 1)]
        others += [replace(fit, outputscales=fit.outputscales * torch.tensor([factor, 1.0]))]
        for other in others:
            assert score(other) < best + 1e-6


def test_the_search_ends_where_it_is_enough():
    """At the first step beyond; never short of it."""
    best = maximize_predictive_density(FOLDS, Y)
    start = maximize_predictive_density(FOLDS, Y, max_iterations=0)
    enough = 0.5 * (start.log_density + best.log_density)
    found, all_of_it = (maximize_predictive_density(FOLDS, Y, enough=each) for each in (enough, best.log_density + 1))
    assert start.log_density < enough < found.log_density < best.log_density
    assert all_of_it.log_density == best.log_density
    steps = range(1, 40)
    first = next(n for n in steps if maximize_predictive_density(FOLDS, Y, max_iterations=n).log_density > enough)
    assert torch.equal(found.outputscales, maximize_predictive_density(FOLDS, Y, max_iterations=first).outputscales)


def test_noise_is_preferred_to_a_function_that_varies_as_quickly():
    """No other row tells anything of a held-out row: only the sum of weight and noise is known."""
    y = torch.randn(90, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    fit = maximize_predictive_density(folds_of(torch.eye(90, dtype=torch.float64)), y, max_iterations=200)
    assert fit.noise > 20 * fit.outputscales.item()
    total = fit.noise + fit.outputscales.item()
    assert fit.log_density == pytest.approx(norm.logpdf(y, scale=total**0.5).mean(), abs=1e-8)


def test_noise_that_varies_is_told_from_noise_that_does_not():
    x = torch.linspace(0, 3, 400, dtype=torch.float64)
    ratios, noise = x - 1.5, 0.3 * torch.randn(400, generator=GENERATOR, dtype=torch.float64)
    numbers = torch.arange(400) % 2
    smooth = torch.exp(-(x[:, None] - x).square())[None]
    folds = [Fold.of(smooth, (numbers != k).nonzero()[:, 0], (numbers == k).nonzero()[:, 0]) for k in (0, 1)]
    y = x.sin() + ratios.exp() * noise
    varying, constant = (maximize_predictive_density(folds, y, log_ratios=z) for z in (ratios, None))
    assert varying.exponent == pytest.approx(2.0, abs=0.3)  # that of the standard deviation is 1
    assert varying.noise == pytest.approx(0.09, rel=0.2)
    assert (varying.log_density - constant.log_density) * 400 > 50
    assert constant.exponent == 0
    assert maximize_predictive_density(folds, x.sin() + noise, log_ratios=ratios).exponent < 0.3
