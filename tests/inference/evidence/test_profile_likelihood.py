"""The maximum against optimizers that search all three values on dense algebra."""

from __future__ import annotations

from functools import cache
from itertools import islice

import numpy as np
import pytest
import scipy.optimize
import torch
from linear_operator.operators import DiagLinearOperator

from gpytorch_partition import MondrianKernel
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, maximize
from gpytorch_partition.inference.evidence.spectral_likelihood import (
    SpectralLikelihood,
    SpectralMeasure,
    dense_measure,
    krylov_measures,
)

ROWS = 40
POSITIVE = (1e-12, np.inf)


@cache
def problem():
    """A kernel matrix, and targets with a clear signal and clear noise."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(ROWS, generator=generator, dtype=torch.float64)
    y = 1.5 + 2 * (7 * x[:, 0]).sin() + 0.4 * noise
    return MondrianKernel(x, num_trees=25, random_state=0)(x).to_dense().detach(), y


def likelihood_of(y):
    return SpectralLikelihood(dense_measure(problem()[0], y.unsqueeze(-1)))


def dense_log_likelihood(outputscale, noise, mean, y):
    covariance = outputscale * problem()[0].numpy() + noise * np.eye(ROWS)
    residual = y.numpy() - mean
    form = residual @ np.linalg.solve(covariance, residual)
    return -0.5 * (form + np.linalg.slogdet(covariance)[1] + ROWS * np.log(2 * np.pi))


def brute_force(bounds, y, log_prior=lambda outputscale, noise: 0.0):
    """The best outputscale, noise and mean, from several starts in three dimensions; a fixed value is left out."""
    ends = [np.clip(interval, 1e-6, 1e6) for interval in (bounds.outputscale, bounds.noise)]
    box = [tuple(np.log(end)) for end in ends]
    box.append((-100, 100) if bounds.mean is None else (bounds.mean, bounds.mean))

    def objective(position):
        values = np.exp(position[0]), np.exp(position[1])
        return -dense_log_likelihood(*values, position[2], y) - log_prior(*values)

    found = [
        scipy.optimize.minimize(
            objective,
            [np.clip(value, *side) for value, side in zip(start, box)],
            bounds=box,
            method="L-BFGS-B",
            options={"ftol": 1e-14, "gtol": 1e-8},
        )
        for start in ((0.0, -1.0, 0.0), (2.0, -4.0, 1.0), (-2.0, 1.0, 2.0))
    ]
    best = min(found, key=lambda end: end.fun)
    return np.exp(best.x[0]), np.exp(best.x[1]), best.x[2]


def assert_best(found, bounds, y, log_prior=None):
    expected = brute_force(bounds, y, *([log_prior] if log_prior else []))
    assert (found.outputscale, found.noise) == pytest.approx(expected[:2], rel=2e-3)
    assert found.mean == pytest.approx(expected[2], abs=2e-3)
    assert found.log_likelihood == pytest.approx(dense_log_likelihood(*expected, y), abs=1e-3)
    exact = dense_log_likelihood(found.outputscale, found.noise, found.mean, y)
    assert found.log_likelihood == pytest.approx(exact, abs=1e-8)


def test_the_maximum_is_that_of_brute_force():
    y, bounds = problem()[1], Bounds(POSITIVE, POSITIVE)
    assert_best(maximize(likelihood_of(y), bounds), bounds, y)


def free():
    return maximize(likelihood_of(problem()[1]), Bounds(POSITIVE, POSITIVE))


BOUNDED = {
    "noise at its lower bound": lambda s, n: Bounds(POSITIVE, (3 * n, np.inf)),
    "noise at its upper bound": lambda s, n: Bounds(POSITIVE, (1e-12, n / 3)),
    "outputscale at its upper bound": lambda s, n: Bounds((1e-12, s / 5), POSITIVE),
    "outputscale at its lower bound": lambda s, n: Bounds((5 * s, np.inf), POSITIVE),
    "both in a corner": lambda s, n: Bounds((1e-12, s / 5), (3 * n, np.inf)),
    "both in an interval": lambda s, n: Bounds((s / 20, s / 10), (n / 5, n / 4)),
    "neither bound active": lambda s, n: Bounds((s / 10, 10 * s), (n / 10, 10 * n)),
    "outputscale fixed": lambda s, n: Bounds((2 * s, 2 * s), POSITIVE),
    "noise fixed": lambda s, n: Bounds(POSITIVE, (2 * n, 2 * n)),
    "both fixed": lambda s, n: Bounds((2 * s, 2 * s), (3 * n, 3 * n)),
    "mean fixed": lambda s, n: Bounds(POSITIVE, POSITIVE, mean=-2.0),
    "outputscale and mean fixed": lambda s, n: Bounds((1.0, 1.0), POSITIVE, mean=0.0),
    "outputscale fixed, noise at its upper bound": lambda s, n: Bounds((2 * s, 2 * s), (1e-12, n / 2)),
}


@pytest.mark.parametrize("case", BOUNDED)
def test_bounds_and_fixed_values_are_kept(case):
    best, y = free(), problem()[1]
    bounds = BOUNDED[case](best.outputscale, best.noise)
    found = maximize(likelihood_of(y), bounds)
    assert_best(found, bounds, y)
    for value, (low, high) in ((found.outputscale, bounds.outputscale), (found.noise, bounds.noise)):
        assert low * (1 - 1e-12) <= value <= high * (1 + 1e-12)


def gamma(shape, rate):
    """Log density, less a constant."""
    return lambda value: (shape - 1) * np.log(value) - rate * value


PRIORS = {
    "on both": lambda s, n: gamma(4, 2.0)(s) + gamma(3, 30.0)(n),
    "on the noise": lambda s, n: gamma(60, 30.0)(n),
    "on the outputscale": lambda s, n: gamma(200, 20.0)(s),
    "far from the likelihood": lambda s, n: -0.5 * ((np.log(s) + 5) / 0.05) ** 2,
}


@pytest.mark.parametrize("case", PRIORS)
@pytest.mark.parametrize("is_bounded", [False, True])
def test_with_a_prior_it_is_the_maximum_of_the_posterior_density(case, is_bounded):
    best, y = free(), problem()[1]
    bounds = Bounds((1e-12, best.outputscale / 2), (2 * best.noise, np.inf)) if is_bounded else Bounds(*[POSITIVE] * 2)
    found = maximize(likelihood_of(y), bounds, PRIORS[case])
    assert_best(found, bounds, y, PRIORS[case])
    moved = abs(np.log(found.outputscale / best.outputscale)) + abs(np.log(found.noise / best.noise))
    assert moved > 0.05


@pytest.mark.parametrize("bounds", [Bounds((1.0, 1.0), POSITIVE), Bounds((0.3, 0.3), (0.2, 0.2))])
def test_a_prior_with_fixed_values(bounds):
    y = problem()[1]
    assert_best(maximize(likelihood_of(y), bounds, PRIORS["on both"]), bounds, y, PRIORS["on both"])


def two_explanations(num_smooth, energy):
    """
    Targets that are either white noise, or signal in all but the smallest eigenvalues.

    The more of the largest eigenvalues there are, in which the signal should be but is not, the better is noise.
    """
    nodes = np.repeat([100.0, 1.0, 0.01], [num_smooth, 10, 20])
    energies = np.repeat([5.0, energy, 0.1], [num_smooth, 10, 20])
    coefficients = np.stack([np.sqrt(energies), np.zeros_like(nodes)], -1)
    return SpectralLikelihood(SpectralMeasure(nodes, coefficients, nodes[None], np.ones((1, len(nodes))), len(nodes)))


def profile(likelihood, ratio):
    scale = likelihood.form(ratio, 0.0) / likelihood.num_rows
    return likelihood.value(scale, ratio * scale, 0.0)


@pytest.mark.parametrize(
    ("num_smooth", "energy", "is_noise"), [(8, 5.0, False), (13, 2.81, False), (14, 2.81, False), (18, 5.0, True)]
)
def test_of_two_maxima_the_higher_one_is_found(num_smooth, energy, is_noise):
    likelihood = two_explanations(num_smooth, energy)
    ratios = np.logspace(-6, 6, 3000)
    values = np.array([profile(likelihood, ratio) for ratio in ratios])
    inner = values[1:-1]
    peaks = ratios[1:-1][(inner > values[:-2]) & (inner > values[2:])]
    found = maximize(likelihood, Bounds(POSITIVE, POSITIVE, mean=0.0))
    assert len(peaks) == 2
    assert found.log_likelihood >= values.max()
    assert found.noise / found.outputscale == pytest.approx(peaks[int(is_noise)], rel=0.01)


@pytest.mark.parametrize("value", [0.0, 1.0, -3e4])
@pytest.mark.parametrize("noise", [(1e-4, np.inf), (0.0, np.inf)])
@pytest.mark.parametrize("outputscale", [(0.0, np.inf), (1.0, 1.0)])
def test_constant_targets_are_the_mean_and_the_rest_is_as_small_as_it_may_be(value, noise, outputscale):
    y = torch.full((ROWS,), value, dtype=torch.float64)
    found = maximize(likelihood_of(y), Bounds(outputscale, noise))
    assert found.mean == pytest.approx(value)
    assert np.isfinite(found.log_likelihood)
    assert found.outputscale > 0
    assert (1 - 1e-12) * noise[0] <= found.noise < max(1.1 * noise[0], 1e-6)


def test_targets_that_the_kernel_does_not_explain_have_no_outputscale():
    values, vectors = torch.linalg.eigh(problem()[0])
    found = maximize(likelihood_of(vectors[:, 0]), Bounds((0.0, np.inf), POSITIVE))
    assert found.outputscale < 1e-5 * found.noise
    assert found.noise == pytest.approx(1 / ROWS, rel=0.01)


@pytest.mark.parametrize(
    ("largest", "noise", "is_resolved"),
    [
        pytest.param(2e5, 0.1, False, marks=pytest.mark.slow),
        pytest.param(1e3, 0.1, True, marks=pytest.mark.slow),
    ],
)
def test_what_lanczos_has_not_resolved_yet_is_never_more_likely_than_the_truth(largest, noise, is_resolved):
    """
    Many more rows than clusters: probes find the eigenvalue 0 at once, the targets' own Krylov space does not.

    With Gauss nodes for the targets, fits to 1,000,000 rows with 10,000 clusters ended at the least noise allowed.
    """
    num_rows, num_clusters, generator = 60_000, 600, torch.Generator().manual_seed(0)
    values = torch.zeros(num_rows, dtype=torch.float64)
    values[:num_clusters] = torch.logspace(-1, np.log10(largest), num_clusters, dtype=torch.float64)
    targets = (0.5 * values + noise).sqrt() * torch.randn(num_rows, generator=generator, dtype=torch.float64)
    exact = SpectralLikelihood(dense_measure_of_diagonal(values, targets))
    bounds = Bounds((0.0, np.inf), (1e-4, np.inf), 0.0)
    true = maximize(exact, bounds)
    assert true.noise == pytest.approx(noise, rel=0.02)
    for measure in islice(krylov_measures(DiagLinearOperator(values), targets.unsqueeze(-1), 2, seed=0), 6):
        found = maximize(SpectralLikelihood(measure), bounds)
        error = 4 * SpectralLikelihood(measure).standard_error(found.outputscale, found.noise)
        assert found.log_likelihood < true.log_likelihood + error
        assert found.noise > 0.5 * noise
    is_close = (found.outputscale, found.noise) == pytest.approx((true.outputscale, true.noise), rel=0.1)
    assert is_close == is_resolved


def dense_measure_of_diagonal(values, targets):
    """What `dense_measure` returns for a diagonal covariance."""
    coefficients = torch.stack([targets, torch.ones_like(targets)], -1).numpy()
    nodes = values.numpy()
    return SpectralMeasure(nodes, coefficients, nodes[None], np.ones((1, len(nodes))), len(nodes))
