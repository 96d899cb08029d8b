"""Uncertainty of the function and of observations, and quantiles, against dense algebra and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.settings import skip_posterior_variances
from scipy.stats import multivariate_normal, norm, t

from gpytorch_partition import LandmarkKernel, settings
from gpytorch_partition.estimators import PartitionGPRegressor, fitted_regressor, regression_fit, regressor
from gpytorch_partition.estimators.fitted_regressor import FittedRegressor, predictive
from gpytorch_partition.explain.dependence import averages
from gpytorch_partition.likelihoods import FITCGaussianLikelihood
from gpytorch_partition.models import PartitionGP
from tests.explain.explained import NEW, fitted, posterior, total

KERNELS = ("forest", "auto", total)


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_noise_it_is_the_function(kernel):
    model = fitted(kernel)
    mean, covariance = posterior(model, NEW)
    found, std = model.predict(NEW, return_std=True, include_noise=False)
    np.testing.assert_allclose(found, mean, rtol=1e-6)
    np.testing.assert_allclose(std**2, np.diag(covariance), rtol=1e-4)
    np.testing.assert_allclose(model.predict(NEW, return_cov=True, include_noise=False)[1], covariance, atol=1e-3)


@pytest.mark.parametrize("kernel", KERNELS)
def test_observations_have_the_noise_of_the_likelihood_on_top(kernel):
    model = fitted(kernel)
    function, observation = (model.predict(NEW, return_std=True, include_noise=noise)[1] for noise in (False, True))
    x = model._fitted.points(NEW)
    noise = model.likelihood_.noise_covar(x, shape=x.shape[:-1]).diagonal(dim1=-2, dim2=-1).detach().numpy()
    np.testing.assert_allclose(observation**2 - function**2, noise * model._fitted.scale**2, rtol=1e-4)
    assert (len(set(noise.round(6))) > 1) == (kernel == "auto")  # whose noise varies here


@pytest.mark.parametrize("include_noise", [True, False])
@pytest.mark.parametrize("kernel", ["forest", "auto"])
def test_quantiles_are_those_of_gaussians(kernel, include_noise):
    model, levels = fitted(kernel), [0.95, 0.05, 0.5]
    mean, std, quantiles = model.predict(NEW, return_std=True, quantiles=levels, include_noise=include_noise)
    for column, level in zip(quantiles.T, levels):
        np.testing.assert_allclose(column, norm(mean, std).ppf(level))


def test_what_is_asked_for_comes_in_order():
    model = fitted()
    mean, std = model.predict(NEW, return_std=True)
    quantiles = model.predict(NEW, quantiles=np.array([0.1, 0.9]))[1]
    assert quantiles.shape == (15, 2)
    found = model.predict(NEW, return_std=True, quantiles=(0.1, 0.9))
    for one, other in zip(found, (mean, std, quantiles), strict=True):
        np.testing.assert_array_equal(one, other)
    _, covariance, of_joint = model.predict(NEW, return_cov=True, quantiles=(0.1, 0.9))
    np.testing.assert_allclose(of_joint, quantiles, rtol=1e-6)
    np.testing.assert_array_equal(model.predict(NEW, include_noise=False), mean)


@pytest.mark.parametrize("quantiles", [(), (0.0, 0.5), (0.5, 1.0), [0.5, np.nan], ["half"], 0.5, "0.5", [[0.1, 0.9]]])
def test_quantiles_that_are_none_are_refused(quantiles):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        fitted().predict(NEW, quantiles=quantiles)


@pytest.mark.filterwarnings("error")
def test_quantiles_where_rounding_makes_a_variance_negative_are_the_mean(monkeypatch):
    model = fitted()
    monkeypatch.setattr(type(model._known), "joint_moments", lambda *_: (np.ones(2), -1e-20 * np.eye(2)))
    np.testing.assert_array_equal(model.predict(NEW[:2], return_cov=True, quantiles=(0.05, 0.95))[2], 1.0)


def with_inducing_points():
    """A model whose five inducing points are far from x = 5, where they leave out all variance."""
    x = torch.linspace(0, 1, 20, dtype=torch.float64).unsqueeze(-1)
    exact = RBFKernel().double()
    exact.lengthscale = 0.2
    landmarks = LandmarkKernel.from_kernel(exact, x[:5])
    likelihood = FITCGaussianLikelihood(HomoskedasticNoise(), exact, landmarks)
    likelihood.noise = 0.01
    model = PartitionGP(x, x[:, 0].sin(), likelihood, landmarks).eval()
    model.covar_module.outputscale = 1.0
    return model


def test_what_inducing_points_leave_out_is_the_functions():
    model, points = with_inducing_points(), torch.tensor([[0.1], [5.0]], dtype=torch.float64)
    with torch.no_grad():
        near, away = predictive(model, points, include_noise=False).variance
        noisy = predictive(model, points, include_noise=True).variance
    assert near < 0.01
    np.testing.assert_allclose(away, 1.0, rtol=1e-6)  # the prior's
    np.testing.assert_allclose(noisy, torch.stack([near, away]) + 0.01, rtol=1e-6)


def test_in_averages_it_counts_as_if_it_were_the_same_everywhere():
    points = torch.tensor([[5.0], [6.0]], dtype=torch.float64)  # where the covariance through inducing points is 0
    _, variances = averages(with_inducing_points(), [points])
    np.testing.assert_allclose(variances, [1], atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("num_rows", [2, 5, 9])
def test_intervals_of_few_rows_are_those_of_students_t(num_rows):
    inside = []
    for seed in range(25):
        random = np.random.RandomState(seed)
        X, y = random.rand(num_rows + 50, 2), random.randn(num_rows + 50)
        model = PartitionGPRegressor("mondrian", 5, random_state=0).fit(X[:num_rows], y[:num_rows])
        low, high = model.predict(X[num_rows:], quantiles=(0.05, 0.95))[1].T
        inside.append(np.mean((low <= y[num_rows:]) & (y[num_rows:] <= high)))
    assert np.mean(inside) > 0.82  # without the factor .48, .75 and .79


@pytest.mark.filterwarnings("ignore")
def test_the_factor_of_few_rows_changes_no_mean(monkeypatch):
    X, y = NEW[:6], NEW[:6, 0] ** 2
    found = PartitionGPRegressor("forest", 10, random_state=0).fit(X, y).predict(NEW, return_std=True)
    monkeypatch.setattr(regression_fit, "FEWEST_ROWS", 1)
    mean, std = PartitionGPRegressor("forest", 10, random_state=0).fit(X, y).predict(NEW, return_std=True)
    np.testing.assert_allclose(found[0], mean, rtol=1e-6)
    np.testing.assert_allclose(found[1], std * np.sqrt(7 / 6) * t.ppf(0.95, 5) / norm.ppf(0.95), rtol=1e-5)


def test_one_row_is_refused():
    with pytest.raises(ValueError, match="expected two rows or more.*got 1 sample"):
        PartitionGPRegressor("forest", 10).fit(NEW[:1], [1.0])


@pytest.mark.parametrize("least", [0.0, 0.8])
def test_rows_that_recur_count_where_intervals_hold_few_of_their_copies(least, monkeypatch):
    """Of new rows two in five are one of twenty, with targets that the others say nothing of."""
    monkeypatch.setattr(regressor, "_LEAST_OF_COPIES", least)
    random = np.random.RandomState(0)
    points, values = random.randn(20, 2), random.choice([-8.0, 8.0], 20)

    def drawn(number):
        x, recurs, which = random.randn(number, 2), random.rand(number) < 0.4, random.randint(0, 20, number)
        y = np.where(recurs, values[which], x[:, 0] + 0.1 * random.randn(number))
        return np.where(recurs[:, None], points[which], x), y

    with pytest.warns(UserWarning, match="copies") as told:
        model = PartitionGPRegressor("forest", 50, random_state=0).fit(*drawn(200))
    assert any("these rows recur" in str(warning.message) for warning in told) == (least > 0)
    coverage = model.judge(*drawn(500)).coverage()
    assert coverage > 0.85 if least else coverage < 0.7
    assert len(model.model_.train_targets) == 200 if least else len(model.model_.train_targets) < 150


def test_a_column_of_targets_is_judged_as_numbers():
    model, y = fitted("forest"), np.arange(float(len(NEW)))
    assert np.array_equal(model.judge(NEW, y[:, None]).log_density, model.judge(NEW, y).log_density)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_joint_density_is_that_of_dense_algebra_and_of_gpytorch(kernel):
    model, y = fitted(kernel), np.arange(float(len(NEW)))
    mean, covariance = posterior(model, NEW)
    x, known = model._fitted.points(NEW), model._fitted
    noise = np.diag(known.noise_of(x))
    found = model.judge(NEW, y, joint=True)
    assert model.judge(NEW, y).joint_log_density is None
    assert found.joint_log_density == pytest.approx(multivariate_normal(mean, covariance + noise).logpdf(y), abs=1e-3)
    weights = np.linspace(0.5, 8, len(y))
    expected = multivariate_normal(mean, covariance + noise / weights).logpdf(y)
    assert model.judge(NEW, y, weights, joint=True).joint_log_density == pytest.approx(expected, abs=1e-3)
    with torch.no_grad():
        distribution = model.likelihood_(model.model_(x), x)
        own = distribution.log_prob(known.unit.apply_array(y).to(distribution.mean)).item()
    assert found.joint_log_density == pytest.approx(own - len(y) * np.log(known.scale), abs=1e-3)


@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0])
def test_estimated_variances_spread_as_the_true_ones(spread):
    """Draws of chi squared, whose quantiles are further out: by 43, 13 and 4 %."""
    random = np.random.RandomState(0)
    true = np.exp(spread * random.randn(20_000))
    estimates = torch.from_numpy(true * random.chisquare(32, 20_000) / 32)
    found = fitted_regressor._with_true_spread(estimates, 32)
    wanted = np.quantile(true, 0.95)
    assert float(found.quantile(0.95)) == pytest.approx(wanted, rel=0.015)
    assert float(found.mean()) == pytest.approx(float(estimates.mean()), rel=1e-9)
    assert float(estimates.quantile(0.95)) > 1.03 * wanted


def test_as_many_samples_as_deviations_of_observations_need(monkeypatch):
    """By the function's share in the variance at rows that were not learned from, against dense algebra."""
    random = np.random.RandomState(0)
    x = random.rand(300, 3)
    model = PartitionGPRegressor("forest", 50, random_state=0).fit(x, x[:, 0] + 0.3 * random.randn(300))
    fit, fitted_model = model._fitted, model.model_
    noise = float(model.likelihood_.noise)
    covariance = fitted_model.covar_module(fit.train_x).to_dense().double().detach()
    inverse = (covariance + noise * torch.eye(300)).inverse()
    left_out = (1 / inverse.diagonal() - noise)[torch.linspace(0, 299, 200).long()]  # Rasmussen & Williams, eq. 5.12
    share = float((left_out / (left_out + noise)).quantile(0.95))
    expected = 0.5 * (1.96 * share / 0.03) ** 2
    monkeypatch.setattr(fitted_regressor, "_with_true_spread", lambda variances, _: variances)  # these are exact
    assert fit._num_samples_beside_noise == pytest.approx(expected, rel=0.02)
    monkeypatch.setattr(fitted_regressor.max_cholesky_size, "value", lambda: 100)
    monkeypatch.setattr(FittedRegressor, "_chosen_number", lambda self: 70)
    assert fit._num_samples_beside_noise > 70
    fitted_model.train()  # its strategy goes, and with it the number
    fitted_model.eval()
    model.predict(x)
    model.predict(x[:5], return_std=True)
    assert fitted_model.prediction_strategy.num_samples_beside_noise is None  # means and few points take no samples
    for num_observations, number in ((100, 70), (20, 512), (0, 512)):
        with fit._samples_of_variances(num_observations):
            assert settings.num_variance_samples.value() == number
    with skip_posterior_variances(), fit._samples_of_variances(100):
        assert settings.num_variance_samples.value() == 512
    with settings.num_variance_samples(50), fit._samples_of_variances(100):
        assert settings.num_variance_samples.value() == 50
