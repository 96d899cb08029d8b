"""Log losses of held-out rows against their definition, and their gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax

from gpytorch_partition.training.log_loss import ClassLink, _loss_of, minimize_log_loss
from gpytorch_partition.training.predictive_density import Fold

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(90, 2, generator=GENERATOR, dtype=torch.float64)
SIGNAL = 2 * X[:, 0].sin() + X[:, 1] + 0.5 * torch.randn(90, generator=GENERATOR, dtype=torch.float64)
COVARIANCES = torch.stack([torch.exp(-torch.cdist(X, X).square()), X @ X.T])
TWO = (SIGNAL > 0).double().unsqueeze(-1)
THREE = torch.nn.functional.one_hot(torch.bucketize(SIGNAL, torch.tensor([-1.0, 1.0]).double())).double()
VALUES = np.array([0.3, -0.5, -1.2, 0.4])
WEIGHTS = torch.exp(torch.randn(90, generator=torch.Generator().manual_seed(3), dtype=torch.float64))


def fold(number):
    held_out = torch.arange(90) % 3 == number
    return Fold.of(COVARIANCES, (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0])


def usual_link(indicators, share=0.01):
    means = indicators.mean(0)
    return ClassLink(torch.cat([1 - means, means]) if len(means) == 1 else means, 0.05, 1.0, share)


def log_probabilities(excess, frequencies, width, power):
    """The definition, in NumPy."""
    ratio = np.log1p(np.exp((frequencies + excess) / width)) / np.log1p(np.exp(frequencies / width))
    return np.log(0.99 * softmax(np.log(frequencies) + power * np.log(ratio), 1) + 0.01 * frequencies)


@pytest.mark.parametrize("indicators", [TWO, THREE], ids=["two", "three"])
def test_the_loss_is_that_of_a_regression_on_indicators(indicators):
    some, link = fold(0), usual_link(indicators)
    loss, _ = _loss_of(some, indicators, link, VALUES, WEIGHTS)
    frequencies = link.frequencies
    classes = torch.cat([1 - indicators, indicators], 1) if indicators.shape[1] == 1 else indicators
    weights = np.exp(VALUES)
    covariance = weights[0] * COVARIANCES[0].numpy() + weights[1] * COVARIANCES[1].numpy()
    kept, held_out = some.kept.numpy(), some.held_out.numpy()
    centred = (classes - frequencies).numpy()[kept]
    noisy = covariance[np.ix_(kept, kept)] + np.diag(1 / WEIGHTS.numpy()[kept])
    excess = covariance[np.ix_(held_out, kept)] @ np.linalg.solve(noisy, centred)
    losses = -(classes.numpy()[held_out] * log_probabilities(excess, frequencies.numpy(), *weights[2:])).sum(1)
    expected = WEIGHTS.numpy()[held_out] @ losses
    assert loss == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("indicators", [TWO, THREE], ids=["two", "three"])
def test_gradients_are_those_of_differences(indicators):
    link = usual_link(indicators)
    _, gradient = _loss_of(fold(1), indicators, link, VALUES, WEIGHTS)
    steps = 1e-5 * np.eye(4)
    losses = [[_loss_of(fold(1), indicators, link, VALUES + s * step, WEIGHTS)[0] for s in (1, -1)] for step in steps]
    np.testing.assert_allclose(gradient, [(up - down) / 2e-5 for up, down in losses], rtol=1e-5)


def test_the_values_found_are_better_than_others():
    folds, link = [fold(k) for k in range(3)], usual_link(THREE, share=1 / 91)
    fit = minimize_log_loss(folds, THREE, link.frequencies)
    assert fit.link.share == link.share
    values = np.log([*fit.outputscales.tolist(), fit.link.width, fit.link.power])
    usual, deviations = np.log([1.25, 1.25, 0.05, 1.0]), np.array([3.0, 3.0, 2.0, 1.0])

    def loss(values):
        return sum(_loss_of(each, THREE, link, values, torch.ones(90).double())[0] for each in folds)

    def with_prior(values):
        return loss(values) + 0.5 * np.square((values - usual) / deviations).sum()

    assert loss(values) / 90 == pytest.approx(fit.log_loss)
    steps = 0.3 * np.concatenate([np.eye(4), -np.eye(4)])
    assert all(with_prior(values + step) > with_prior(values) for step in steps)


def test_links_without_excess_are_frequencies_and_far_apart_the_identity_or_a_softmax():
    frequencies = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    excess = torch.tensor([[0.0, 0.0, 0.0], [0.3, -0.1, -0.2]], dtype=torch.float64)
    identity = ClassLink(frequencies, 1e-3, 1.0).log_probabilities(excess).exp()
    torch.testing.assert_close(identity, frequencies + excess)
    softmax = ClassLink(frequencies, 100.0, 300.0).log_probabilities(excess)
    # Half of t / w: the softplus has slope 1/2 at 0, and is log 2 there.
    expected = torch.log_softmax(frequencies.log() + 3.0 * 0.5 / np.log(2) * excess, 1)
    torch.testing.assert_close(softmax, expected, atol=5e-3, rtol=0)
    far = ClassLink(frequencies, 0.01, 1.0).log_probabilities(excess - 1e6 * torch.eye(3, dtype=torch.float64)[:2])
    assert bool(far.isfinite().all())
