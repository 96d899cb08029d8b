"""Student-t noise: its densities, precisions and quantiles against SciPy's integrals, and its likelihood in models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from scipy.integrate import quad, trapezoid
from scipy.optimize import brentq
from scipy.stats import norm, t

from gpytorch_partition import MondrianKernel
from gpytorch_partition.likelihoods import (
    FITCGaussianLikelihood,
    StudentTLikelihood,
    StudentTNoise,
    student_t_noise,
)
from gpytorch_partition.likelihoods.scale_mixture import (
    expected_precisions,
    log_densities,
    student_crps,
    student_quantiles,
)
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.training.predictive_density import fit_heavy_tails

CASES = [(0.0, 0.0, 1.0, 2.5), (3.0, 0.5, 1.0, 4.0), (9.0, 2.0, 0.1, 3.0), (-0.7, 1.0, 0.01, 10.0)]
FAR_CASES = [*CASES, (1e5, 0.5, 1.0, 2.5), (1e5, 0.5, 1.0, 4.0)]
GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(60, 2, generator=GENERATOR, dtype=torch.float64)
Y = (4 * X[:, 0]).sin()
W = torch.rand(60, generator=GENERATOR, dtype=torch.float64) + 0.1


def integral(f, variance):
    """Of a function of the standardized function value."""
    return quad(lambda z: f(np.sqrt(variance) * z) * norm.pdf(z), -12, 12, limit=500, points=[0.0])[0]


def tensors(*numbers):
    return [torch.tensor([float(number)], dtype=torch.float64) for number in numbers]


@pytest.mark.parametrize(("error", "variance", "scale", "df"), FAR_CASES)
def test_densities_are_those_of_the_convolution(error, variance, scale, df):
    noise = t(df, scale=np.sqrt(scale))
    expected = integral(lambda f: noise.pdf(error - f), variance)
    assert float(log_densities(*tensors(error, variance, scale), df).exp()) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("error", "variance", "scale", "df"), CASES)
def test_crps_is_the_squared_distance_between_distribution_functions(error, variance, scale, df):
    """Which differ by F below the observation and by 1 - F above it, where F is a sum over function values."""
    unit, units = np.sqrt(variance + scale), np.linspace(-8, 8, 801)
    steps, shares = np.sinh(np.linspace(0, 9, 800)) * unit, norm.pdf(units) / norm.pdf(units).sum()
    expected = 0.0
    for side in (-1, 1):
        places = side * (np.sqrt(variance) * units - error) - steps[:, None]
        beyond = t.cdf(places, df, scale=np.sqrt(scale)) @ shares
        expected += trapezoid(beyond**2, steps)
    found = student_crps(*(np.array([number]) for number in (error, variance, scale)), df)
    assert found == pytest.approx(expected, abs=2e-4 * unit)


@pytest.mark.parametrize(("error", "variance", "scale", "df"), FAR_CASES)
def test_precisions_are_averages_over_the_function(error, variance, scale, df):
    noise = t(df, scale=np.sqrt(scale))

    def weighted(f):
        return noise.pdf(error - f) * (df + 1) / (df + (error - f) ** 2 / scale)

    expected = integral(weighted, variance) / integral(lambda f: noise.pdf(error - f), variance)
    assert float(expected_precisions(*tensors(error, variance, scale), df)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("error", "variance", "scale", "df"), CASES)
@pytest.mark.parametrize("probability", [0.005, 0.05, 0.5, 0.9])
def test_quantiles_are_those_of_the_convolution(error, variance, scale, df, probability):
    noise = t(df, scale=np.sqrt(scale))
    expected = brentq(lambda y: integral(lambda f: noise.cdf(y - f), variance) - probability, -60, 60)
    arrays = [np.array([number]) for number in (error, variance, scale)]
    found = student_quantiles(*arrays, df, np.array([probability]))[0, 0] - error
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-3)


def noise_of(**options):
    base = HomoskedasticNoise()
    base.initialize(noise=0.2)
    return StudentTNoise(base, W, **options).double()


def test_training_rows_have_weights_and_new_ones_tails():
    likelihood = StudentTLikelihood(noise_of(unit=2.0, df=4.0, factor=0.5))
    prior = MultivariateNormal(torch.zeros(60).double(), torch.eye(60).double())
    torch.testing.assert_close(likelihood.train()(prior, X).variance, 1 + 0.2 * 2 / W)
    torch.testing.assert_close(likelihood.eval()(prior, [X]).variance, 1 + 0.2 * 2 / W)
    assert float(likelihood(prior, X).variance.mean()) == pytest.approx(1 + 0.2 * 2 * 0.5 * 2)
    assert float(likelihood.noise) == pytest.approx(0.4)
    values = torch.zeros(60).double()
    assert float(likelihood.forward(values, X).variance.mean()) == pytest.approx(0.4)
    found = likelihood.log_marginal(torch.full((60,), 3.0).double(), prior, X)
    torch.testing.assert_close(found[:1], log_densities(*tensors(3.0, 1.0, 0.2), 4.0))


def test_means_of_a_model_are_those_of_dense_algebra():
    model = PartitionGP(X, Y, StudentTLikelihood(noise_of()), MondrianKernel(X, 30, lifetime=2.0, random_state=0))
    gram, mean = model.covar_module(X).to_dense().detach(), model.mean_module.constant.detach()
    expected = mean + gram @ torch.linalg.solve(gram + torch.diag(0.2 / W), Y - mean)
    with torch.no_grad():
        torch.testing.assert_close(model.eval().likelihood(model(X), X).mean, expected)


def test_beside_what_inducing_points_leave_out():
    kernel, half = ScaleKernel(RBFKernel()).double(), ScaleKernel(RBFKernel()).double()
    half.outputscale = 0.5 * kernel.outputscale
    likelihood = StudentTLikelihood(FITCGaussianLikelihood(noise_of(df=4.0), kernel, half).noise_covar).double().eval()
    prior = MultivariateNormal(torch.zeros(60).double(), torch.eye(60).double())
    missing = 0.5 * float(kernel.outputscale.detach())
    assert float(likelihood(prior, X).variance.mean().detach()) == pytest.approx(1 + missing + 0.4)
    found = likelihood.log_marginal(torch.full((60,), 3.0).double(), prior, X)
    torch.testing.assert_close(found[:1].detach(), log_densities(*tensors(3.0, 1 + missing, 0.2), 4.0))


def test_other_noise_is_refused():
    with pytest.raises(TypeError, match="StudentTNoise"):
        StudentTLikelihood(HomoskedasticNoise())
    with pytest.raises(ValueError, match="more than 2 degrees"):
        noise_of(df=2.0)
    assert student_t_noise(StudentTLikelihood(noise_of())) is not None


@pytest.mark.parametrize(("df", "gains"), [(2.5, True), (1e6, False)])
def test_tails_are_found_where_they_are(df, gains):
    errors = torch.from_numpy(t(df).rvs(1500, random_state=0) + 0.5 * norm.rvs(size=1500, random_state=1))
    variances, ones = torch.full((1500,), 0.25).double(), torch.ones(1500).double()
    found = fit_heavy_tails(errors, variances, (errors.var() - 0.25) * ones)
    assert (found.gain > 5) is gains
    if gains:
        assert found.df in (2.5, 3.0)
        assert found.factor * float(errors.var() - 0.25) == pytest.approx(1.0, rel=0.2)
        best = log_densities(errors, variances, ones, 2.5).sum()
        assert found.log_density == pytest.approx(float(best), abs=3)
