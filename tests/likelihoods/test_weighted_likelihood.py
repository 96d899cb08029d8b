"""Noise divided by weights of training rows: against dense algebra, in models of GPyTorch and of this package."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from linear_operator.settings import max_cholesky_size
from torch.distributions import MultivariateNormal

from gpytorch_partition import MondrianKernel, fit_exact_gp, settings
from gpytorch_partition.likelihoods import FITCGaussianLikelihood, WeightedGaussianLikelihood, WeightedNoise
from gpytorch_partition.models import PartitionGP

GENERATOR = torch.Generator().manual_seed(0)
N = 120
X = torch.rand(N, 2, generator=GENERATOR, dtype=torch.float64)
W = torch.exp(2 * torch.randn(N, generator=GENERATOR, dtype=torch.float64))
Y = 3 + (4 * X[:, 0]).sin() + 0.3 * torch.randn(N, generator=GENERATOR, dtype=torch.float64) / W.sqrt()
NEW = torch.rand(15, 2, generator=GENERATOR, dtype=torch.float64)


def model_of(unit=1.0, kernel=None):
    likelihood = WeightedGaussianLikelihood(W, unit=unit)
    return PartitionGP(X, Y, likelihood, kernel or MondrianKernel(X, 40, lifetime=2.0, random_state=0))


def gram(model, *points):
    return model.covar_module(torch.cat(points)).to_dense().detach().double()


def log_density(model, outputscale, noise, mean):
    covariance = outputscale * gram(model, X) / model.covar_module.outputscale.detach() + torch.diag(noise / W)
    return float(MultivariateNormal(torch.full_like(Y, mean), covariance).log_prob(Y))


def values(model):
    parts = (model.covar_module.outputscale, model.likelihood.noise, model.mean_module.constant)
    return [float(value.detach()) for value in parts]


def test_a_factor_is_of_new_observations_alone():
    noise = WeightedNoise(WeightedGaussianLikelihood(W).noise_covar.base_noise, W, unit=2.0, factor=3.0).eval()
    level = noise.base_noise.noise.detach()
    torch.testing.assert_close(noise([X], shape=X.shape[:1]).diagonal().detach(), level * (2.0 / W).float())
    torch.testing.assert_close(noise(X, shape=X.shape[:1]).diagonal().detach(), (6.0 * level).expand(N))
    other = WeightedNoise(WeightedGaussianLikelihood(W).noise_covar.base_noise, W)
    other.load_state_dict(noise.state_dict())
    assert other.factor == 3.0
    with pytest.raises(ValueError, match="factor"):
        WeightedNoise(noise.base_noise, W, factor=0.0)


class TestFits:
    @pytest.mark.parametrize("method", ["dense", "cluster_space", "krylov"])
    def test_the_marginal_likelihood_is_the_largest(self, method):
        model = model_of()
        found = fit_exact_gp(model, model.likelihood, method=method)
        best = log_density(model, *values(model))
        tolerance = 1e-6 if method == "dense" else 2.0
        assert found.log_marginal_likelihood == pytest.approx(best, abs=tolerance)
        for place in range(3):
            for factor in (0.95, 1.05):
                other = values(model)
                other[place] *= factor
                assert log_density(model, *other) < best + (0 if method == "dense" else 0.1)

    def test_the_unit_changes_bounds_only(self):
        one, other = model_of(), model_of(unit=50.0)
        for model in (one, other):
            fit_exact_gp(model, model.likelihood)
        assert values(one) == pytest.approx(values(other), rel=1e-4)

    def test_counts_of_clusters_know_no_weights(self):
        model = model_of()
        with pytest.raises(ValueError, match="krylov"):
            fit_exact_gp(model, model.likelihood, method="feature_space")

    def test_other_rows_are_refused(self):
        model = PartitionGP(X, Y, WeightedGaussianLikelihood(W[:9]), MondrianKernel(X, 5, lifetime=1.0))
        with pytest.raises(ValueError, match="one weight for each of 120"):
            fit_exact_gp(model, model.likelihood)
        with pytest.raises(ValueError, match="the 9 training rows"):
            model.likelihood.train()(model.train()(X), X)


class TestPredictions:
    @pytest.mark.parametrize("most_dense", [2000, 50])
    @pytest.mark.parametrize("kernel", [None, RBFKernel()])
    def test_they_are_those_of_dense_algebra(self, kernel, most_dense):
        if kernel is not None and most_dense == 50:
            pytest.skip("GPyTorch's kernel is dense")
        model = model_of(unit=7.0, kernel=kernel)
        model.likelihood.noise = 0.2
        points = torch.cat([NEW, X[:5]])  # new observations at training rows are new ones
        both = gram(model, X, points)
        noisy, cross = both[:N, :N] + torch.diag(0.2 / W), both[N:, :N]
        mean = model.mean_module.constant.detach()
        expected = mean + cross @ torch.linalg.solve(noisy, Y - mean)
        variance = (both[N:, N:] - cross @ torch.linalg.solve(noisy, cross.mT)).diagonal() + 0.2
        with torch.no_grad(), settings.iterative(), max_cholesky_size(most_dense):
            found = model.eval().likelihood(model(points), points)
            torch.testing.assert_close(found.mean, expected, atol=1e-3 if most_dense == 50 else 1e-8, rtol=0)
            torch.testing.assert_close(found.variance, variance, rtol=0.02 if most_dense == 50 else 1e-6, atol=0)

    def test_fantasies_weigh_1(self):
        model = model_of()
        model.likelihood.noise = 0.2
        model.eval()(NEW)
        with torch.no_grad(), gpytorch.settings.detach_test_caches(False):
            more = model.get_fantasy_model(NEW[:3], torch.tensor([5.0, 6.0, 7.0]).double())
            found = more(NEW).mean
        both, targets = gram(model, X, NEW), torch.cat([Y, torch.tensor([5.0, 6.0, 7.0])]) - values(model)[2]
        noise = 0.2 / torch.cat([W, torch.ones(3)])
        alpha = torch.linalg.solve(both[: N + 3, : N + 3] + torch.diag(noise), targets)
        torch.testing.assert_close(found, values(model)[2] + both[N:, : N + 3] @ alpha, rtol=1e-5, atol=1e-5)


def test_what_inducing_points_leave_out_is_not_divided():
    kernel = ScaleKernel(RBFKernel()).double()
    half = ScaleKernel(RBFKernel()).double()
    half.outputscale = 0.5 * kernel.outputscale
    likelihood = FITCGaussianLikelihood(WeightedGaussianLikelihood(W).noise_covar, kernel, half).double()
    likelihood.noise = 0.3
    prior = gpytorch.distributions.MultivariateNormal(torch.zeros(N).double(), torch.eye(N).double())
    missing = 0.5 * float(kernel.outputscale)
    torch.testing.assert_close(likelihood.train()(prior, X).variance, 1 + missing + 0.3 / W)
    assert float(likelihood.eval()(prior, X).variance.mean()) == pytest.approx(1 + missing + 0.3)
    assert float(likelihood.noise) == pytest.approx(0.3)


@pytest.mark.parametrize("weights", [torch.tensor([1.0, 0.0]), torch.tensor([1.0, torch.nan]), torch.ones(2, 2)])
def test_weights_that_cannot_be_used(weights):
    with pytest.raises(ValueError, match="above 0"):
        WeightedNoise(WeightedGaussianLikelihood(torch.ones(2)).noise_covar.base_noise, weights)
