"""Means, variances and samples of cluster effects, against dense matrices."""

from __future__ import annotations

import pytest
import torch
from linear_operator import settings as linear_settings

from gpytorch_partition import settings
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.cluster_space.posterior import SpacePosterior
from gpytorch_partition.inference.cluster_space.rows import LocalRows
from gpytorch_partition.inference.evidence.profile_likelihood import Maximum
from gpytorch_partition.linalg.conjugate_gradients import UnconvergedError
from gpytorch_partition.operators import FlatLinearOperator
from tests.inference.cluster_space.test_spectrum import KINDS, ROWS, covariance, level, points

VALUES = Maximum(outputscale=1.7, noise=0.05, mean=4.0, log_likelihood=0.0)


def posterior(kind: str, *, has_level: bool = False, values: Maximum = VALUES) -> SpacePosterior:
    K, (_, y) = covariance(kind), points()
    rows = LocalRows(K.left, level().unsqueeze(-1) * y[:, :1], level()) if has_level else LocalRows(K.left, y[:, :1])
    return SpacePosterior(rows, K.cluster_operator, values)


def dense_posterior(kind: str, *, has_level: bool = False, values: Maximum = VALUES):
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
    torch.testing.assert_close(Z @ found.mean_effects.squeeze(-1), Z @ mean, atol=1e-3, rtol=0)
    exact, variances = (Z @ effects @ Z.mT).diagonal(), found.variances(covariance(kind).left)
    assert (variances <= exact * (1 + 1e-9)).all()
    torch.testing.assert_close(variances, exact, rtol=0.01, atol=0)
    assert found.variances(Incidence(covariance(kind).left.codes[:0], Z.shape[1])).shape == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("has_level", [False, True])
@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("noise", [1e-4, 10.0])
def test_small_and_large_noise(noise):
    values = Maximum(2.0, noise, 4.0, 0.0)
    mean, effects, Z = dense_posterior("forest", values=values)
    found = posterior("forest", values=values)
    torch.testing.assert_close(Z @ found.mean_effects.squeeze(-1), Z @ mean, atol=0.03 * noise**0.5, rtol=0)
    exact = (Z @ effects @ Z.mT).diagonal()
    torch.testing.assert_close(found.variances(covariance("forest").left), exact, rtol=0.01, atol=0)


def test_the_tolerance_of_variances_is_followed():
    _, effects, Z = dense_posterior("clusters")
    with settings.variance_tolerance(1e-8):
        found = posterior("clusters").variances(covariance("clusters").left)
    torch.testing.assert_close(found, (Z @ effects @ Z.mT).diagonal(), rtol=1e-8, atol=0)


def test_a_single_cluster():
    rows = LocalRows(Incidence(torch.zeros(9, 1, dtype=torch.int32), 1), torch.arange(9.0).unsqueeze(-1))
    found = SpacePosterior(rows, FlatLinearOperator(torch.ones(1), num_clusters=1), Maximum(2.0, 0.5, 0.0, 0.0))
    assert float(found.mean_effects) == pytest.approx(36 / (9 + 0.25))


@pytest.mark.filterwarnings("ignore:conjugate gradients stopped")
def test_means_that_do_not_converge_are_refused():
    values = Maximum(1.0, 1e-6, 0.0, 0.0)
    with linear_settings.max_cg_iterations(2), pytest.raises(UnconvergedError, match="Raise the noise"):
        _ = posterior("forest", values=values).mean_effects
