"""Predictions from a factor of a root's coefficients, against dense algebra in float64."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from gpytorch.kernels import LinearKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from linear_operator import settings as linear_settings

from gpytorch_partition import (
    FastClusterKernel,
    GroupKernel,
    LandmarkKernel,
    LocalLinearKernel,
    settings,
)
from gpytorch_partition.inference.prediction import work
from gpytorch_partition.inference.prediction.cluster_posterior import _root_at
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.solvers import feature_factor as module
from gpytorch_partition.solvers.feature_factor import FeatureFactor, feature_factor

N, NOISE = 600, 0.05
generator = torch.Generator().manual_seed(0)
X = torch.rand(N, 3, generator=generator, dtype=torch.float64)
X[:, 2] = (X[:, 2] * 5).floor()
Y = (6 * X[:, 0]).sin() + 0.2 * torch.randn(N, generator=generator, dtype=torch.float64)
NEW = torch.rand(30, 3, generator=generator, dtype=torch.float64)
NEW[:, 2] = (NEW[:, 2] * 5).floor()


@contextmanager
def iterative():
    """Few rows are treated as many."""
    with settings.iterative(), linear_settings.max_cholesky_size(100):
        yield


def landmarks(dtype):
    return LandmarkKernel(X.to(dtype), Y.to(dtype), 40, random_state=0)


def slopes(dtype):
    clusters = FastClusterKernel(X.to(dtype), 4, height=3, random_state=0, active_dims=(0, 1))
    return LocalLinearKernel(clusters, num_dims=3)


def clusters(dtype):
    return FastClusterKernel(X.to(dtype), 5, height=3, random_state=0)


SUMS = {
    "landmarks": landmarks,
    "slopes": slopes,
    "landmarks and linear": lambda dtype: landmarks(dtype) + LinearKernel(),
    "landmarks and clusters": lambda dtype: ScaleKernel(landmarks(dtype)) + ScaleKernel(clusters(dtype)),
    "slopes, groups, linear": lambda dtype: slopes(dtype) + GroupKernel((2,)) + LinearKernel(),
}


def model_of(kernel, dtype=torch.float64, noise=NOISE, outputscale=1.0):
    likelihood = GaussianLikelihood()
    likelihood.noise_covar.raw_noise_constraint.lower_bound.fill_(0)
    model = PartitionGP(X.to(dtype), Y.to(dtype), likelihood, kernel).to(dtype)
    likelihood.noise, model.covar_module.outputscale = noise, outputscale
    return model.eval()


@torch.no_grad()
def dense_covariance(model, noise, new=NEW):
    """The posterior covariance by an eigendecomposition of nothing but numbers."""
    kernel = model.double().covar_module
    every = torch.cat([X, new])
    prior = torch.cat([kernel(every[i : i + 400], every).to_dense() for i in range(0, len(every), 400)])
    train, cross = prior[:N, :N] + torch.diag(noise), prior[N:, :N]
    return prior[N:, N:] - cross @ torch.cholesky_solve(cross.mT, torch.linalg.cholesky(train))


@pytest.fixture
def by_factor(monkeypatch):
    has_factor = lambda noisy: module.has_feature_factor(noisy._linear_op.evaluate_kernel())  # noqa: E731
    monkeypatch.setattr(work, "of_feature_factor", lambda noisy: 0.0 if has_factor(noisy) else 1e9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SUMS)
def test_variances_covariances_and_samples(by_factor, name, dtype):
    model = model_of(SUMS[name](dtype), dtype)
    with torch.no_grad(), iterative():
        predicted = model(NEW.to(dtype))
        variance, covariance = predicted.variance.double(), predicted.covariance_matrix.double()
        torch.manual_seed(0)
        samples = (predicted.rsample(torch.Size([20])) - predicted.mean).double()
        assert predicted.lazy_covariance_matrix.noisy.knows_feature_factor
    exact = dense_covariance(model, torch.full((N,), NOISE).double())
    tolerance = 1e-8 if dtype == torch.float64 else 2e-4
    torch.testing.assert_close(variance, exact.diagonal(), rtol=tolerance, atol=tolerance * 1e-2)
    units = exact.diagonal().sqrt()
    assert ((covariance - exact).abs() / units / units.unsqueeze(-1)).max() < (1e-6 if dtype == torch.float64 else 2e-3)
    assert ((samples.square() / exact.diagonal()).mean() - 1).abs() < 0.4


def test_samples_have_the_covariance(by_factor):
    model = model_of(SUMS["landmarks and clusters"](torch.float64))
    with torch.no_grad(), iterative():
        predicted = model(NEW)
        assert predicted.variance.min() > 0
        posterior = predicted.lazy_covariance_matrix._posterior
        torch.manual_seed(1)
        drawn = posterior.samples(20_000, [term.left for term in predicted.lazy_covariance_matrix.prior.linear_ops])
    exact = dense_covariance(model, torch.full((N,), NOISE).double())
    units = exact.diagonal().sqrt()
    assert ((drawn.mT @ drawn / 20_000 - exact).abs() / units / units.unsqueeze(-1)).max() < 0.05


def test_points_in_groups_of_their_own(by_factor):
    """Two new groups do not covary, though the rows' clusters do not tell them apart."""
    model = model_of(SUMS["slopes, groups, linear"](torch.float64))
    new = NEW[:4].clone()
    new[:, 2] = torch.tensor([7.0, 7.0, 8.0, 1.0])
    with torch.no_grad(), iterative():
        predicted = model(new)
        assert predicted.variance.min() > 0
        covariance = predicted.covariance_matrix
        torch.manual_seed(0)
        drawn = predicted.lazy_covariance_matrix.zero_mean_mvn_samples(4)
    exact = dense_covariance(model, torch.full((N,), NOISE).double(), new)
    torch.testing.assert_close(covariance, exact, rtol=1e-2, atol=1e-3)
    assert drawn.shape == (4, 4)


def test_noise_of_each_row(by_factor):
    noise = 0.01 + torch.rand(N, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    likelihood = FixedNoiseGaussianLikelihood(noise)
    model = PartitionGP(X, Y, likelihood, SUMS["landmarks and linear"](torch.float64)).double().eval()
    model.covar_module.outputscale = 1.0
    with torch.no_grad(), iterative():
        variance = model(NEW).variance
    torch.testing.assert_close(variance, dense_covariance(model, noise).diagonal(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("outputscale", [1e-8, 1.0, 1e4])
@pytest.mark.parametrize("noise", [1e-8, 1e-4, 1.0])
def test_no_factor_is_used_whose_rounding_is_felt(outputscale, noise):
    """What resolves is right to a thousandth; what does not is left to solves in float64."""
    model = model_of(SUMS["landmarks and linear"](torch.float64), outputscale=outputscale)
    covariance = model.covar_module(X).evaluate_kernel()
    with torch.no_grad():
        factor = feature_factor(covariance, torch.full((N,), noise).double())
    if factor is None:
        assert noise / outputscale < 1e-4
        return
    exact = dense_covariance(model, torch.full((N,), noise).double()).diagonal()
    with torch.no_grad(), iterative():
        posterior = model(NEW).lazy_covariance_matrix._posterior
        root = factor.root([_root_at(*each) for each in zip(factor.roots, posterior.points)])
    resolved = 1e-12 * outputscale  # of differences in the oracle
    torch.testing.assert_close(root.square().sum(-1), exact, rtol=2e-3, atol=resolved)


def test_rounding_is_told():
    """Two columns that are the same but for rounding, with next to no noise."""
    factor = FeatureFactor.__new__(FeatureFactor)
    for shift, resolves in ((1.0, True), (1e-14, False)):
        precision = torch.ones(2, 2, dtype=torch.float64) + shift * torch.eye(2, dtype=torch.float64)
        factor._precision, factor._factor = precision, torch.linalg.cholesky(precision)
        assert factor.resolves() == resolves


def test_blocks_of_rows_add_up(monkeypatch):
    model = model_of(SUMS["slopes, groups, linear"](torch.float64))
    covariance, noise = model.covar_module(X).evaluate_kernel(), torch.full((N,), NOISE).double()
    with torch.no_grad():
        whole = FeatureFactor(covariance, noise)
        monkeypatch.setattr(module, "_BLOCK_ROWS", 150)
        monkeypatch.setattr(module, "_BLOCK_COLUMNS", 7)
        torch.testing.assert_close(FeatureFactor(covariance, noise)._precision, whole._precision)


def test_is_taken_by_itself_for_many_points():
    """Forty inducing points and a noise that takes hundreds of iterations."""
    model = model_of(SUMS["landmarks and linear"](torch.float64), noise=1e-2)
    with torch.no_grad(), iterative():
        predicted = model(NEW)
        variance = predicted.variance
        assert predicted.lazy_covariance_matrix.noisy.knows_feature_factor
    exact = dense_covariance(model, torch.full((N,), 1e-2).double()).diagonal()
    torch.testing.assert_close(variance, exact, rtol=1e-2, atol=0)


def test_it_can_be_asked_for():
    model = model_of(SUMS["landmarks"](torch.float64))
    with torch.no_grad(), iterative(), settings.predictive_variances("factor"):
        variance = model(NEW).variance
    exact = dense_covariance(model, torch.full((N,), NOISE).double()).diagonal()
    torch.testing.assert_close(variance, exact, rtol=1e-8, atol=1e-10)


def test_where_there_is_none_it_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MOST_COLUMNS", 10)
    model = model_of(SUMS["landmarks"](torch.float64))
    refused = pytest.raises(ValueError, match="6,000 columns at most")
    with torch.no_grad(), iterative(), settings.predictive_variances("factor"), refused:
        assert model(NEW).variance is not None


def test_the_setting_is_respected():
    model = model_of(SUMS["landmarks"](torch.float64))
    with torch.no_grad(), iterative(), settings.predictive_variances("conjugate_gradients"):
        predicted = model(NEW)
        assert predicted.variance.min() > 0
        assert predicted.covariance_matrix.isfinite().all()
        assert not predicted.lazy_covariance_matrix.noisy.knows_feature_factor


@torch.no_grad()
@pytest.mark.parametrize("method", ["auto", "conjugate_gradients"])
def test_samples_make_the_factor_where_solves_take_longer(by_factor, method):
    model = model_of(SUMS["landmarks and linear"](torch.float64))
    with iterative(), settings.predictive_variances(method):
        covariance = model(NEW).lazy_covariance_matrix
        covariance.zero_mean_mvn_samples(4)
    assert covariance.noisy.knows_feature_factor == (method == "auto")
