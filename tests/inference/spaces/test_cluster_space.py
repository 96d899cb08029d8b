"""Likelihoods, means, variances and samples in cluster space: those of the rows, and of dense matrices."""

from __future__ import annotations

from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
import torch
from linear_operator import settings as linear_settings
from torch.distributions import MultivariateNormal

from gpytorch_partition import FastClusterKernel, MondrianKernel, PartitionMixtureKernel, RandomForestKernel, settings
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.evidence import spectral_likelihood
from gpytorch_partition.inference.evidence.profile_likelihood import Maximum
from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralLikelihood, krylov_measures
from gpytorch_partition.inference.spaces import cluster_space
from gpytorch_partition.inference.spaces.cluster_rows import LocalRows
from gpytorch_partition.inference.spaces.cluster_space import SpacePosterior, space_measures, space_width
from gpytorch_partition.linalg.conjugate_gradients import UnconvergedError

ROWS = 120
KINDS = ["clusters", "forest", "mixture"]
VALUES = [(1.3, 0.2, 0.4), (0.01, 3.0, -1.0), (50.0, 1e-2, 0.0)]


def points() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(ROWS, 2, generator=generator, dtype=torch.float64)
    return x, 5 + (6 * x).sin() + 0.3 * noise


@cache
def covariance(kind: str):
    x, y = points()
    forest = RandomForestKernel(x, y[:, 0], 3, min_samples_leaf=10, random_state=0)
    clusters = FastClusterKernel(x, 6, height=3, random_state=0)
    if kind == "few rows":
        return FastClusterKernel(x, 20, height=4, random_state=0).double()(x[:30]).evaluate_kernel().detach()
    kernels = {
        "clusters": clusters,
        "forest": forest,
        "mixture": PartitionMixtureKernel([forest, clusters], [1.0, 3.0], learn_weights=False),
        "many cells": MondrianKernel(x, 40, lifetime=8.0, random_state=0),
    }
    return kernels[kind].double()(x).evaluate_kernel().detach()


def level() -> torch.Tensor:
    return torch.rand(ROWS, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.5


@cache
def measure_in_space(kind: str, num_probes: int = 5, seed: int = 0, *, has_level: bool = False, looks: int = 1):
    K, (_, y) = covariance(kind), points()
    rows = LocalRows(K.left, y, level() if has_level else None)
    measures = space_measures(rows, K.cluster_operator, num_probes, seed)
    return [next(measures) for _ in range(looks)][-1]


def forms(nodes, coefficients, noise=0.3):
    return coefficients.T @ (coefficients / (nodes + noise)[:, None])


@pytest.mark.parametrize("has_level", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_quadratic_forms_of_a_few_steps_are_those_of_the_rows_run(kind, has_level):
    K, (_, y) = covariance(kind), points()
    with patch.object(cluster_space, "CHECKPOINTS", (6,)), patch.object(spectral_likelihood, "CHECKPOINTS", (6,)):
        in_space = measure_in_space.__wrapped__(kind, has_level=has_level)
        if has_level:
            K = K.with_loadings(level().unsqueeze(-1), level().unsqueeze(-1))
        among_rows = next(krylov_measures(K, y, 5, 0, level() if has_level else None))
    upper, expected = forms(in_space.nodes, in_space.coefficients), forms(among_rows.nodes, among_rows.coefficients)
    np.testing.assert_allclose(upper, expected, rtol=1e-8)
    lower = forms(in_space.lower.nodes, in_space.lower.coefficients)
    expected = forms(among_rows.lower.nodes, among_rows.lower.coefficients)
    np.testing.assert_allclose(lower, expected, rtol=1e-8)
    assert (np.diag(upper) > np.diag(lower) * (1 + 1e-6)).all()  # six steps are not all


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("kind", [*KINDS, "many cells"])
def test_the_value_is_that_of_a_dense_normal(kind, values):
    K, (_, y) = covariance(kind), points()
    scale, noise, mean = values
    dense = scale * K.to_dense() + noise * torch.eye(ROWS, dtype=torch.float64)
    exact = MultivariateNormal(torch.full((ROWS,), mean, dtype=torch.float64), dense).log_prob(y[:, 1]).item()
    measure = measure_in_space(kind, 200, looks=6)
    likelihood = SpectralLikelihood(measure, 1)
    assert (space_width(K.cluster_operator) > ROWS) == (kind == "many cells")
    assert measure.num_zeros == ROWS - space_width(K.cluster_operator)
    assert likelihood.bias(*values) < 0.05
    assert likelihood.value(*values) == pytest.approx(exact, abs=4 * likelihood.standard_error(scale, noise) + 0.05)


@pytest.mark.parametrize("has_level", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "few rows"])
def test_the_value_of_few_clusters_is_exact(kind, has_level):
    K, (_, y) = covariance(kind), points()
    num_rows = K.shape[0]
    weights = level()[:num_rows] if has_level else None
    rows = LocalRows(K.left, y[:num_rows] * (1.0 if weights is None else weights.unsqueeze(-1)), weights)
    ones = torch.ones(num_rows, dtype=torch.float64) if weights is None else weights
    (measure,) = space_measures(rows, K.cluster_operator, None, 0)
    assert (space_width(K.cluster_operator) > num_rows) == (kind == "few rows")
    for scale, noise, mean in VALUES:
        dense = scale * ones * K.to_dense() * ones.unsqueeze(-1) + noise * torch.eye(num_rows, dtype=torch.float64)
        exact = MultivariateNormal(mean * ones, dense).log_prob(rows.targets[:, 1]).item()
        likelihood = SpectralLikelihood(measure, 1)
        assert likelihood.value(scale, noise, mean) == pytest.approx(exact, rel=1e-7)
        assert likelihood.standard_error(scale, noise) == likelihood.bias(scale, noise, mean) == 0


@pytest.mark.parametrize(("num_rows", "is_exact"), [(30, True), (200_000, False)])
def test_the_exact_spectrum_takes_no_more_products_than_lanczos(num_rows, is_exact):
    K, (_, y) = covariance("few rows"), points()
    rows = LocalRows(K.left, y[:30])
    with patch.object(rows, "num_rows", num_rows):
        assert (next(space_measures(rows, K.cluster_operator, None, 0)).num_probes == 0) == is_exact


@pytest.mark.parametrize("looks", [1, 3])
def test_the_bias_bounds_what_few_steps_miss(looks):
    """The bounds are those of the same probes: their difference is that of many steps, seed by seed."""
    values = (10.0, 1e-3, 0.0)
    few, many = (SpectralLikelihood(measure_in_space("forest", looks=each)) for each in (looks, 8))
    missing = many.value(*values) - few.value(*values)
    assert -1e-6 < missing < few.bias(*values) + many.bias(*values) + 1e-6


def test_the_standard_error_is_the_spread_over_seeds():
    K, (_, y) = covariance("clusters"), points()
    likelihoods = [SpectralLikelihood(measure_in_space("clusters", 3, seed)) for seed in range(60)]
    spread = np.std([each.value(0.5, 0.05, 5.0) for each in likelihoods], ddof=1)
    squared = np.mean([each.standard_error(0.5, 0.05) ** 2 for each in likelihoods])
    assert spread**2 == pytest.approx(squared, rel=0.45)
    among_rows = SpectralLikelihood(next(krylov_measures(K, y, 3, 0)))
    assert squared**0.5 < 0.8 * among_rows.standard_error(0.5, 0.05)


def test_targets_of_very_different_sizes_keep_their_digits():
    K, (_, y) = covariance("clusters"), points()
    rows = [LocalRows(K.left, y * torch.tensor(sizes)) for sizes in ([1.0, 1.0], [1e-9, 1e9])]
    one, other = (next(space_measures(each, K.cluster_operator, 5, 0)) for each in rows)
    small, large = (SpectralLikelihood(one, t).form(0.1, 5.0) for t in (0, 1))
    assert SpectralLikelihood(other, 0).form(0.1, 5e-9) == pytest.approx(1e-18 * small, rel=1e-6)
    assert SpectralLikelihood(other, 1).form(0.1, 5e9) == pytest.approx(1e18 * large, rel=1e-6)


def test_moments_of_targets_far_from_zero_keep_their_digits():
    K, (_, y) = covariance("clusters"), points()
    near, far = (LocalRows(K.left, y + level).moments() for level in (0.0, 2.0**30))
    torch.testing.assert_close(far.squares, near.squares, rtol=1e-5, atol=1e-4)


FIXED = Maximum(outputscale=1.7, noise=0.05, mean=4.0, log_likelihood=0.0)


def posterior(kind: str, *, has_level: bool = False, values: Maximum = FIXED) -> SpacePosterior:
    K, (_, y) = covariance(kind), points()
    rows = LocalRows(K.left, level().unsqueeze(-1) * y[:, :1], level()) if has_level else LocalRows(K.left, y[:, :1])
    return SpacePosterior(rows, K.cluster_operator, values)


def dense_posterior(kind: str, *, has_level: bool = False, values: Maximum = FIXED):
    """Mean and covariance of the effects, and one-hot rows, by dense matrices of rows."""
    K, (_, y) = covariance(kind), points()
    Z = torch.zeros(ROWS, K.left.num_clusters, dtype=torch.float64).scatter_(1, K.left.codes.long(), 1)
    weights = level() if has_level else torch.ones(ROWS, dtype=torch.float64)
    prior = values.outputscale * K.cluster_operator.to_dense()
    cross = prior @ (weights.unsqueeze(-1) * Z).mT
    noisy = weights.unsqueeze(-1) * Z @ cross + values.noise * torch.eye(ROWS, dtype=torch.float64)
    mean = cross @ torch.linalg.solve(noisy, weights * (y[:, 0] - values.mean))
    return mean, prior - cross @ torch.linalg.solve(noisy, cross.mT), Z


@pytest.mark.parametrize("has_level", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "many cells"])
def test_means_and_variances_are_those_of_dense_matrices(kind, has_level):
    mean, effects, Z = dense_posterior(kind, has_level=has_level)
    found = posterior(kind, has_level=has_level)
    torch.testing.assert_close(Z @ found.mean.squeeze(-1), Z @ mean, atol=1e-3, rtol=0)
    exact, variances = (Z @ effects @ Z.mT).diagonal(), found.variances(covariance(kind).left)
    assert (variances <= exact * (1 + 1e-9)).all()
    torch.testing.assert_close(variances, exact, rtol=0.01, atol=0)
    assert found.variances(Incidence(covariance(kind).left.codes[:0], Z.shape[1])).shape == (0,)


@pytest.mark.parametrize(
    ("kind", "has_level"),
    [("clusters", True), *(pytest.param("mixture", False, marks=pytest.mark.slow),)],
)
def test_samples_have_the_covariance_of_the_posterior(kind, has_level):
    _, effects, Z = dense_posterior(kind, has_level=has_level)
    samples = Z @ posterior(kind, has_level=has_level).deviations(2_000, seed=1)
    exact = Z @ effects @ Z.mT
    found = samples @ samples.mT / 2_000
    deviations = ((exact.square() + torch.outer(exact.diagonal(), exact.diagonal())) / 2_000).sqrt()
    assert ((found - exact).abs() <= 5 * deviations + 0.02 * exact.abs()).all()


def test_samples_follow_their_seed():
    one, other = posterior("forest").deviations(40, seed=1), posterior("forest").deviations(40, seed=2)
    assert torch.equal(one, posterior("forest").deviations(40, seed=1))
    assert torch.corrcoef(torch.cat([one, other], -1).mT).triu(1).abs().max() < 0.999  # no two of the 80 are the same


def test_the_tolerance_of_variances_is_followed():
    _, effects, Z = dense_posterior("clusters")
    with settings.variance_tolerance(1e-8):
        found = posterior("clusters").variances(covariance("clusters").left)
    torch.testing.assert_close(found, (Z @ effects @ Z.mT).diagonal(), rtol=1e-8, atol=0)


@pytest.mark.filterwarnings("ignore:conjugate gradients stopped")
def test_means_that_do_not_converge_are_refused():
    values = Maximum(1.0, 1e-6, 0.0, 0.0)
    with linear_settings.max_cg_iterations(2), pytest.raises(UnconvergedError, match="Raise the noise"):
        _ = posterior("forest", values=values).mean
